"""The routes of the window: the page and its files for everybody, methods and decoding for those who have a key."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..bodies import ENDLESS
from ..config import ServerConfig
from ..counts import ServerMetrics
from ..worker import Worker
from .choices import choices
from .decode import Decode
from .files import KINDS, POLICY, SAVED, names, saved, text

FILES = "/window/"
OPEN = ("/", *(FILES + name for name in (*names(), SAVED)))  # there is nothing secret in them


def routes(worker: Worker, counts: ServerMetrics, house: ServerConfig) -> list[Route]:
    """Everything that the window needs."""

    async def page(_: Request) -> Response:
        return _sent(text("index.html"), ".html")

    async def file(request: Request) -> Response:
        name = request.url.path.removeprefix(FILES)
        return _sent(text(name), name[name.rindex(".") :])

    async def blank(_: Request) -> Response:
        return _sent(saved(), ".html")

    @cache
    def about() -> dict[str, Any]:
        lm = worker.lm
        return {
            "model": house.model,
            "chat": lm.vocabulary.chat_template is not None,
            "method": house.method,
            "options": not house.methods,  # whether a method may be given other options
            "tokens": min(worker.limits.tokens, lm.model.context or ENDLESS),
            "methods": choices(lm, house),
        }

    async def methods(_: Request) -> Response:
        return JSONResponse(await run_in_threadpool(about), headers={"cache-control": "no-store"})

    return [
        Route("/", page),
        Route(FILES + SAVED, blank),
        Route(FILES + "methods", methods),
        Route(FILES + "decode", Decode(worker, counts, house), methods=["POST"]),
        *(Route(FILES + name, file) for name in names()),
    ]


def _sent(body: str, suffix: str) -> Response:
    headers = {
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
        "cache-control": "no-cache",  # a newer server may have a newer page
    }
    return Response(body, media_type=KINDS[suffix], headers=headers)
