"""The application: every route of the server, and its OpenAPI document, which FastAPI makes of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.openapi.utils import get_openapi
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from . import window
from .answers import ChatAnswer, CompletionAnswer, ErrorAnswer, Model, Models, StreamEvent
from .asking import chat, completion
from .authentication import Authentication
from .bodies import ChatRequest, CompletionRequest
from .clients import RateLimit
from .counts import KIND, ServerMetrics
from .forwarded import ForwardedClient
from .handler import HEADER, Completions, RequestIds
from .limits import Limits
from .refusal import Refusal
from .running import Shutdown
from .server_config import ServerConfig
from .worker import Worker

WORDS = {
    400: "The request cannot be understood or not be done; the message says why.",
    401: "The API key is missing or wrong.",
    403: "The server does not go by this name.",
    404: "There is no such model.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "Too many wait, or a key's limits are reached; Retry-After says when to try again.",
    500: "The server failed.",
    503: "The server is shutting down or full.",
    504: "The answer was not complete in time.",
}
WRITING = (400, 404, 408, 413, 415, 429, 500, 503, 504)


def refusals(config: ServerConfig, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """Responses that a route may give besides its own, those of the guard among them."""
    refusals = ((401,) if config.guarded else ()) + ((403,) if config.hosts else ())
    return {status: {"model": ErrorAnswer, "description": WORDS[status]} for status in sorted((*statuses, *refusals))}


def described(app: FastAPI, config: ServerConfig, limits: Limits, size: int) -> dict[str, Any]:
    """OpenAPI of all routes but those of the window, for a model of `size` tokens."""
    about = f"OpenAI's interface over {config.model}."
    whole = get_openapi(title=app.title, version="1", description=about, routes=app.routes)
    for path in whole["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)  # FastAPI's own refusal, which none of our routes gives
    schemas = whole["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for kind in ("ChatRequest", "CompletionRequest"):
        fields = schemas[kind]["properties"]
        _only(fields["model"])["enum"] = [config.model]
        _only(fields["n"])["maximum"] = limits.texts
    _only(fields["best_of"])["maximum"] = limits.texts
    _, texts, tokens, several = fields["prompt"]["anyOf"]
    for listed in (texts, several):
        listed["maxItems"] = limits.texts
    for row in (tokens, several["items"]):
        row["items"]["maximum"] = size - 1
    if config.methods:
        _only(schemas["Decoding"]["properties"]["method"])["enum"] = list(config.offered)
    if config.guarded:
        whole["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        whole["security"] = [{"key": []}]
    return whole


def _only(field: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field beside null."""
    schema: dict[str, Any] = field["anyOf"][0]
    return schema


OPEN: dict[str, Any] = {"security": []}  # said of routes that ask for no key


def application(worker: Worker, config: ServerConfig) -> FastAPI:
    """OpenAI's interface over a worker, which starts and stops with it."""
    rate_limits = tuple(map(RateLimit, config.clients))
    ending = Shutdown(worker, config.grace)
    counts = ServerMetrics(worker, rate_limits)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        worker.start()
        try:
            yield
        except asyncio.CancelledError:  # somebody would not wait; but a process should not end under a running thread
            ending.join(0)
        else:
            await run_in_threadpool(ending.join)

    app = FastAPI(title="unspool", lifespan=life, docs_url=None, redoc_url=None)
    app.state.ending = ending  # for whoever runs it, to begin with before its connections are closed
    _writing(app, worker, counts, config)
    _reading(app, worker, counts, config)
    if config.window:
        app.router.routes += window.routes(worker, counts, config)
    document = partial(described, app, config, worker.limits, worker.lm.vocabulary.size)
    app.openapi = cache(document)  # type: ignore[method-assign]

    @app.exception_handler(HTTPException)
    async def missing(request: Request, error: HTTPException) -> Response:
        told = f"{request.method} {request.url.path[:80]}: {error.detail}"
        return JSONResponse(Refusal(error.status_code, told).record(), error.status_code, error.headers)

    pages = window.OPEN if config.window else ()
    app.add_middleware(
        Authentication, keys=config.keys, hosts=config.hosts, pages=pages, rate_limits=rate_limits, counts=counts
    )
    if config.origins:  # outside the guard: a browser asks without a key whether it may send one
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=[HEADER],
        )
    if config.proxies:
        app.add_middleware(ForwardedClient, trusted=config.proxies)
    app.add_middleware(RequestIds)  # outside all else: what is refused has a name too
    return app


def _writing(app: FastAPI, worker: Worker, counts: ServerMetrics, config: ServerConfig) -> None:
    """The routes that write text. FastAPI describes them by these functions, and handlers of our own answer.

    They read the body within limits of size and time, hear when a client leaves, and send no faster than it reads, for
    which FastAPI has no means.
    """
    stream = {"content": {"text/event-stream": {"schema": StreamEvent.model_json_schema()}}}

    async def chat_completions(body: ChatRequest) -> None:
        """Write an answer to messages."""

    async def completions(body: CompletionRequest) -> None:
        """Go on from a prompt."""

    for path, described_by, understand, answer in (
        ("/v1/chat/completions", chat_completions, chat, ChatAnswer),
        ("/v1/completions", completions, completion, CompletionAnswer),
    ):
        app.router.add_api_route(
            path,
            described_by,
            methods=["POST"],
            responses={200: {"model": answer, **stream}, **refusals(config, *WRITING)},
            route_class_override=Completions(worker, counts, config, understand).route(),
        )


def _reading(app: FastAPI, worker: Worker, counts: ServerMetrics, config: ServerConfig) -> None:
    """The routes that tell about the server."""
    about = {"id": config.model, "object": "model", "created": int(time.time()), "owned_by": "unspool"}

    @app.get("/v1/models", response_model=Models, responses=refusals(config))
    async def models() -> Response:
        """The model of this server, as a list."""
        return JSONResponse({"object": "list", "data": [about]})

    @app.get("/v1/models/{name:path}", response_model=Model, responses=refusals(config, 404))
    async def model(name: str) -> Response:
        """The model of this name."""
        if name == config.model:
            return JSONResponse(about)
        refused = Refusal(404, f"there is no model {name[:80]!r} here", param="model", code="model_not_found")
        return JSONResponse(refused.record(), refused.status)

    @app.get("/healthz", response_class=PlainTextResponse, openapi_extra=OPEN)
    async def health() -> Response:
        """Whether it runs."""
        return PlainTextResponse("ok\n")

    not_now: dict[int | str, dict[str, Any]] = {503: {"description": "Not now.", "content": {"text/plain": {}}}}

    @app.get("/readyz", response_class=PlainTextResponse, responses=not_now, openapi_extra=OPEN)
    async def ready() -> Response:
        """Whether it takes requests."""
        why = worker.trouble
        return PlainTextResponse("ready\n") if why is None else PlainTextResponse(f"not ready: {why}\n", 503)

    @app.get("/metrics", response_class=PlainTextResponse, responses=refusals(config))
    async def metrics(request: Request) -> Response:
        """Figures for Prometheus."""
        return Response(counts.text(request.scope), media_type=KIND)
