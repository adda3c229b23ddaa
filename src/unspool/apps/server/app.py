"""The application: every route of the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from . import window
from .asking import chat, completion
from .completions import Completions
from .counts import KIND, Counts
from .ending import Ending
from .guard import Guard
from .house import House
from .ration import Ration
from .refusal import Refusal
from .request_id import HEADER, RequestIds
from .spec import spec
from .worker import Worker


def application(worker: Worker, house: House) -> FastAPI:
    """OpenAI's interface over a worker, which starts and stops with it."""
    rations, created = tuple(map(Ration, house.clients)), int(time.time())
    ending = Ending(worker, house.grace)
    counts = Counts(worker, rations)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        worker.start()
        try:
            yield
        except asyncio.CancelledError:  # somebody would not wait; but a process should not end under a running thread
            ending.join(0)
        else:
            await run_in_threadpool(ending.join)

    app = FastAPI(title="unspool", lifespan=life, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.ending = ending  # for whoever runs it, to begin with before its connections are closed
    for path, understand in (("/v1/chat/completions", chat), ("/v1/completions", completion)):
        handler = Completions(worker, counts, house, understand)
        app.router.routes.append(Route(path, handler, methods=["POST"]))
    about = {"id": house.model, "object": "model", "created": created, "owned_by": "unspool"}

    @app.get("/v1/models")
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [about]})

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        if name == house.model:
            return JSONResponse(about)
        refused = Refusal(404, f"there is no model {name[:80]!r} here", param="model", code="model_not_found")
        return JSONResponse(refused.record(), refused.status)

    @app.get("/healthz")
    async def health() -> Response:
        return PlainTextResponse("ok\n")

    @app.get("/readyz")
    async def ready() -> Response:
        why = worker.trouble
        return PlainTextResponse("ready\n") if why is None else PlainTextResponse(f"not ready: {why}\n", 503)

    @app.get("/openapi.json")
    async def described() -> Response:
        return JSONResponse(spec(house, worker.limits, worker.lm.vocabulary.size))

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(counts.text(), media_type=KIND)

    @app.exception_handler(HTTPException)
    async def missing(request: Request, error: HTTPException) -> Response:
        told = f"{request.method} {request.url.path[:80]}: {error.detail}"
        return JSONResponse(Refusal(error.status_code, told).record(), error.status_code, error.headers)

    if house.window:
        app.router.routes += window.routes(worker, counts, house)
    pages = window.OPEN if house.window else ()
    app.add_middleware(Guard, keys=house.keys, hosts=house.hosts, pages=pages, rations=rations, counts=counts)
    if house.origins:  # outside the guard: a browser asks without a key whether it may send one
        app.add_middleware(
            CORSMiddleware,
            allow_origins=house.origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=[HEADER],
        )
    app.add_middleware(RequestIds)  # outside all else: what is refused has a name too
    return app
