"""The server's description of itself in OpenAPI, as it is set up."""

from __future__ import annotations

from typing import Any

from .house import House
from .limits import Limits
from .shapes import CHAT_REPLY, COMPLETION_REPLY, ERROR, MODEL, MODELS, TEXT, answer, chat_body, completion_body

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


def spec(house: House, limits: Limits, size: int) -> dict[str, Any]:
    """OpenAPI 3.1 of all routes but those of the window, for a model of `size` tokens."""
    door = ((401,) if house.guarded else ()) + ((403,) if house.hosts else ())
    paths = {
        "/v1/chat/completions": _writing("Write an answer to messages.", chat_body(limits, house), CHAT_REPLY, door),
        "/v1/completions": _writing(
            "Go on from a prompt.", completion_body(limits, house, size), COMPLETION_REPLY, door
        ),
        "/v1/models": {"get": _reading("The model of this server, as a list.", _json(MODELS), door)},
        "/v1/models/{model}": {
            "get": {
                **_reading("The model of this name.", _json(MODEL), (404, *door)),
                "parameters": [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}],
            }
        },
        "/metrics": {"get": _reading("Figures for Prometheus.", _text(), door)},
        "/openapi.json": {"get": _reading("This description.", _json({"type": "object"}), door)},
        "/healthz": {"get": {**_reading("Whether it runs.", _text(), ()), "security": []}},
        "/readyz": {"get": {**_reading("Whether it takes requests.", _text(), ()), "security": []}},
    }
    paths["/readyz"]["get"]["responses"]["503"] = {"description": "Not now.", "content": _text()}
    whole: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "unspool", "version": "1", "description": f"OpenAI's interface over {house.model}."},
        "paths": paths,
    }
    if house.guarded:
        whole["components"] = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
        whole["security"] = [{"key": []}]
    return whole


def _writing(about: str, body: dict[str, Any], reply: dict[str, Any], door: tuple[int, ...]) -> dict[str, Any]:
    content = {**_json(reply), "text/event-stream": {"schema": answer(data=TEXT)}}
    refused = (400, 404, 408, 413, 415, 429, 500, 503, 504, *door)
    return {"post": {**_reading(about, content, refused), "requestBody": {"required": True, "content": _json(body)}}}


def _reading(about: str, content: dict[str, Any], refused: tuple[int, ...]) -> dict[str, Any]:
    responses = {str(status): {"description": WORDS[status], "content": _json(ERROR)} for status in sorted(refused)}
    return {"summary": about, "responses": {"200": {"description": "Here it is.", "content": content}, **responses}}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _text() -> dict[str, Any]:
    return {"text/plain": {"schema": {"type": "string"}}}
