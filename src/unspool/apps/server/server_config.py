"""How a server is set up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...core.claim import Method
from ...core.errors import BadRequest
from ...recipes.methods import NotOffered, refuse_session, requested
from .asking import ReadingTurns
from .clients import Client
from .item_sets import ItemSets
from .refusal import Refusal
from .server_log import log

if TYPE_CHECKING:
    from .forwarded import Network

FIELD = "decoding.method"


@dataclass(frozen=True)
class ServerConfig:
    """What a server is called, what it does unless told, and whom it lets in."""

    model: str
    method: str = "plain"
    methods: tuple[str, ...] = ()  # which others a request may choose; none: all that name no file
    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # by which names it may be called, without port; none: all
    origins: tuple[str, ...] = ()  # whose web pages may call it
    grace: float = 30.0  # seconds that requests have left when it shuts down
    window: bool = True  # whether there is a page to watch methods on
    clients: tuple[Client, ...] = ()  # who have keys with names and limits
    items: ItemSets = field(default_factory=ItemSets)  # sets of items that requests may name
    proxies: tuple[Network, ...] = ()  # which are believed about where a request came from
    reading: ReadingTurns = field(default_factory=ReadingTurns, repr=False, compare=False)  # of all bodies sent to it

    def __post_init__(self) -> None:
        for method in self.offered:
            refuse_session(method)

    @property
    def guarded(self) -> bool:
        """Whether only those come in who have a key."""
        return bool(self.keys or self.clients)

    @property
    def choices(self) -> tuple[str, ...]:
        """Methods that requests may choose and that must be prepared for: without a list, `auto` is among them."""
        return self.offered if self.methods else (self.method, "auto")

    @property
    def offered(self) -> tuple[str, ...]:
        """The methods that the operator has named, and so may be chosen by these very names whatever they read."""
        return tuple(dict.fromkeys((self.method, *self.methods)))

    def made(self, method: str, client: str = "") -> Method:
        """The method that a request names; Refusal if it may not, options included, as they decide what it costs.

        A memory that outlives requests is one for each `client`. This is the only place where a server makes a method
        out of what somebody has sent.
        """
        if self.methods and method not in self.offered:
            message = f"the method {method[:80]!r} may not be chosen here; choose one of: {', '.join(self.offered)}"
            raise Refusal(400, message, param=FIELD, code="method_not_allowed")
        try:
            return requested(method, self.offered, client)
        except NotOffered as error:
            raise Refusal(400, str(error), param=FIELD, code="method_not_allowed") from None
        except BadRequest as error:
            if method in self.offered:  # it could be made when the server started; what became of a file is private
                log("method", {"method": method, "message": str(error)})
                message = f"the method {method[:80]!r} cannot be made any more; the log of the server says why"
                raise Refusal(500, message, param=FIELD, code="method_unavailable") from None
            raise Refusal(400, str(error), param=FIELD, code="invalid_method") from None
