"""The guard at the door: API keys, compared in constant time, and the names that the server goes by."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from .refusal import Refusal

OPEN = ("/healthz", "/readyz")  # for those who watch over the process, who have no key


@dataclass(frozen=True)
class Guard:
    """Lets requests in that bear one of the keys and call the server by one of its names; without any, all of them.

    The names are for a server without keys on somebody's own machine: a web page can have its own name lead there, but
    then its requests say that name.
    """

    app: ASGIApp
    keys: tuple[str, ...]
    hosts: tuple[str, ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        refused = self._refused(Request(scope)) if scope["type"] == "http" and scope["path"] not in OPEN else None
        if refused is None:
            await self.app(scope, receive, send)
            return
        await JSONResponse(refused.record(), refused.status, refused.headers)(scope, receive, send)

    def _refused(self, request: Request) -> Refusal | None:
        called = re.sub(r":\d*$", "", request.headers.get("host", "")).lower()
        if self.hosts and called not in self.hosts:
            return Refusal(403, f"this server is not called {called[:80]!r}", code="unknown_host")
        if self.keys and not self._known(request):
            told = "the API key is missing or wrong; send it as: Authorization: Bearer KEY"
            return Refusal(401, told, code="invalid_api_key")
        return None

    def _known(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        sent = given.strip().encode("latin-1")  # the bytes of the header
        fits = [hmac.compare_digest(sent, key.encode()) for key in self.keys]  # all of them, not up to the first
        return scheme.lower() == "bearer" and any(fits)
