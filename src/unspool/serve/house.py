"""The house: how a server is set up."""

from __future__ import annotations

from dataclasses import dataclass

from .clients import Client
from .refusal import Refusal


@dataclass(frozen=True)
class House:
    """What a server is called, what it does unless told, and whom it lets in."""

    model: str
    method: str = "plain"
    methods: tuple[str, ...] = ()  # which others a request may choose; none: all
    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # by which names it may be called, without port; none: all
    origins: tuple[str, ...] = ()  # whose web pages may call it
    grace: float = 30.0  # seconds that requests have left when it shuts down
    window: bool = True  # whether there is a page to watch methods on
    clients: tuple[Client, ...] = ()  # who have keys with names and limits

    @property
    def guarded(self) -> bool:
        """Whether only those come in who have a key."""
        return bool(self.keys or self.clients)

    def check(self, method: str) -> None:
        """Refuse a method that clients may not choose; options count, as they decide what it costs."""
        if self.methods and method not in (self.method, *self.methods):
            allowed = ", ".join(dict.fromkeys((self.method, *self.methods)))
            message = f"the method {method[:80]!r} may not be chosen here; choose one of: {allowed}"
            raise Refusal(400, message, param="decoding.method", code="method_not_allowed")
