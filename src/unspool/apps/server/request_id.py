"""Request ids: a name for every request, told in the header of its answer and in the log."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER = "x-request-id"
ID = "unspool.request_id"  # in the scope of a request
PLAIN = re.compile(rb"[!-~]{1,128}")  # what may be repeated: short, and nothing that could break a line


@dataclass(frozen=True)
class RequestIds:
    """Gives every request an id, the client's own if it sends one that is short and printable, and answers with it."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = [value for name, value in scope["headers"] if name == HEADER.encode()]
        plain = len(given) == 1 and PLAIN.fullmatch(given[0]) is not None
        name = given[0] if plain else f"req_{secrets.token_hex(16)}".encode()

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (HEADER.encode(), name)]}
            await send(message)

        await self.app({**scope, ID: name.decode("ascii")}, receive, answer)
