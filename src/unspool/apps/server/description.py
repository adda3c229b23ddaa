"""The server's OpenAPI document: FastAPI makes it of the routes and their models, and what is set up is put in."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from .answers import ErrorAnswer
from .config import ServerConfig
from .limits import Limits

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


def refusals(house: ServerConfig, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """Responses that a route may give besides its own, those of the guard among them."""
    refusals = ((401,) if house.guarded else ()) + ((403,) if house.hosts else ())
    return {status: {"model": ErrorAnswer, "description": WORDS[status]} for status in sorted((*statuses, *refusals))}


def described(app: FastAPI, house: ServerConfig, limits: Limits, size: int) -> dict[str, Any]:
    """OpenAPI of all routes but those of the window, for a model of `size` tokens."""
    about = f"OpenAI's interface over {house.model}."
    whole = get_openapi(title=app.title, version="1", description=about, routes=app.routes)
    for path in whole["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)  # FastAPI's own refusal, which none of our routes gives
    schemas = whole["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for kind in ("ChatRequest", "CompletionRequest"):
        fields = schemas[kind]["properties"]
        _only(fields["model"])["enum"] = [house.model]
        _only(fields["n"])["maximum"] = limits.texts
    _only(fields["best_of"])["maximum"] = limits.texts
    _, texts, tokens, several = fields["prompt"]["anyOf"]
    for listed in (texts, several):
        listed["maxItems"] = limits.texts
    for row in (tokens, several["items"]):
        row["items"]["maximum"] = size - 1
    if house.methods:
        _only(schemas["Decoding"]["properties"]["method"])["enum"] = list(house.offered)
    if house.guarded:
        whole["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        whole["security"] = [{"key": []}]
    return whole


def _only(field: dict[str, Any]) -> dict[str, Any]:
    """The schema of a field beside null."""
    schema: dict[str, Any] = field["anyOf"][0]
    return schema
