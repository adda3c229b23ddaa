"""Authentication: API keys, compared in constant time, and the names that the server goes by."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .clients import RateLimit
from .counts import CLIENT, HOLDER, RATE_LIMIT, ServerMetrics
from .refusal import Refusal
from .server_log import log

OPEN = ("/healthz", "/readyz")  # for those who watch over the process, who have no key
CROWDED = "unspool.crowded"  # in the scope of a request, why its connection is one too many


def address(scope: Scope) -> str | None:
    """Where a request comes from: the address of its client, as trusted proxies forward it if there are any."""
    client = scope.get("client")
    return client[0] if client else None


@dataclass(frozen=True)
class Authentication:
    """Lets requests in that bear one of the keys and call the server by one of its names; without any, all of them.

    The names are for a server without keys on somebody's own machine: a web page can have its own name lead there, but
    then its requests say that name.
    """

    app: ASGIApp
    keys: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()  # for everybody who calls the server by its name; there is nothing secret in them
    rate_limits: tuple[RateLimit, ...] = ()  # of those whose keys have names and limits
    counts: ServerMetrics | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it and write a line about that; what its client has left goes with it."""
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self.app(scope, receive, send)
            return
        counted, rate_limit = self._counted(send), None  # what the request takes from, if it does
        try:
            if CROWDED in scope:
                raise scope[CROWDED]
            holder, bearer = self._admitted(Request(scope))
            rate_limit = holder if scope["method"] == "POST" else None  # only what writes text is limited
            if rate_limit is not None:
                rate_limit.enter()
        except Refusal as refused:
            self._note(scope, refused, rate_limit)
            headers = {**refused.headers, **({"connection": "close"} if CROWDED in scope else {})}
            await JSONResponse(refused.record(), refused.status, headers)(scope, receive, counted)
            return
        try:
            told = {CLIENT: bearer, RATE_LIMIT: rate_limit, HOLDER: holder}
            await self.app({**scope, **{k: v for k, v in told.items() if v is not None}}, receive, counted)
        finally:
            if rate_limit is not None:
                rate_limit.leave()

    def _counted(self, send: Send) -> Send:
        """Send, and count the statuses of responses."""

        async def counted(message: Message) -> None:
            if self.counts is not None and message["type"] == "http.response.start":
                self.counts.responded(message["status"])
            await send(message)

        return counted

    def _note(self, scope: Scope, refused: Refusal, rate_limit: RateLimit | None) -> None:
        """Write a line about who was not let in; never with what they sent for a key."""
        more = {} if self.counts is None else self.counts.sparing.next()
        if more is not None:
            about = {"path": scope["path"][:80], "status": refused.status, "code": refused.code}
            named = {} if rate_limit is None else {"key": rate_limit.client.name}
            log("refused", {**about, "client": address(scope), **named, **more})

    def _admitted(self, request: Request) -> tuple[RateLimit | None, str | None]:
        """The rate limit of a request's key, if it has one, and who it is; raises why it may not come in."""
        called = re.sub(r":\d*$", "", request.headers.get("host", "")).lower()
        if self.hosts and called not in self.hosts:
            raise Refusal(403, f"this server is not called {called[:80]!r}", code="unknown_host")
        if not (self.keys or self.rate_limits) or request.scope["path"] in self.pages:
            return None, None
        return self._known(request)

    def _known(self, request: Request) -> tuple[RateLimit | None, str]:
        """The rate limit of a request's key, None for one without a name; and what its bearer is called here."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        sent = given.strip().encode("latin-1")  # the bytes of the header
        keys = [*self.keys, *(rate_limit.client.key for rate_limit in self.rate_limits)]
        fits = [hmac.compare_digest(sent, key.encode()) for key in keys]  # all of them, not up to the first
        if scheme.lower() != "bearer" or not any(fits):
            told = "the API key is missing or wrong; send it as: Authorization: Bearer KEY"
            raise Refusal(401, told, code="invalid_api_key")
        place = fits.index(True) - len(self.keys)
        if place < 0:
            return None, f"unnamed key {place}"  # which no name can be, as it has blanks
        return self.rate_limits[place], f"key {self.rate_limits[place].client.name}"
