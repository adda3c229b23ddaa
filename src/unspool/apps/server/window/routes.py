"""The routes of the window: the page and its files for everybody, methods and decoding for those who have a key."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ....api.lm import LM
from ....core.claim import Entry
from ....core.errors import UnspoolError
from ....core.option import options, products
from ....recipes.methods import described, fills, requested, runnable
from ....runtime.engine.contracts import HasHeads, Infill
from ..bodies import ENDLESS
from ..counts import ServerMetrics
from ..server_config import ServerConfig
from ..worker import Worker
from .decode_stream import Decode

FOLDER = Path(__file__).with_name("page")
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
NOTHING_ELSE = "default-src 'none'; base-uri 'none'; form-action 'none'"
POLICY = (
    f"{NOTHING_ELSE}; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'"
)
SAVED = "saved.html"  # a template, and the name of the file that is made of it
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|const|class)", re.MULTILINE)
FILES = "/window/"


def choices(lm: LM, config: ServerConfig) -> list[dict[str, Any]]:
    """Every method that a client may choose, as plain data; `missing` says what it lacks here, "" if nothing."""
    allowed = config.offered if config.methods else (config.method, *(entry.name for entry in runnable()))
    return [_record(spec, described(spec), lm, config) for spec in dict.fromkeys(allowed)]


def _record(spec: str, entry: Entry, lm: LM, config: ServerConfig) -> dict[str, Any]:
    build = entry.build  # a composition has none, and is taken as it is
    free = [option for option in options(build).values() if not option.operator] if build else []
    return {
        "spec": spec,
        "family": entry.family,
        "claim": entry.claim.name,
        "promise": f"{entry.claim.value} {entry.note}".rstrip(),
        "summary": entry.summary,
        "options": ",".join(option.spelt for option in free),
        "ranges": {option.name: option.expected for option in free},
        "together": [str(product) for product in products(build)] if build else [],
        "missing": _missing(spec, entry, lm, config),
    }


def _missing(spec: str, entry: Entry, lm: LM, config: ServerConfig) -> str:
    drafts = {"draft": lm.draft, "small": None if lm.draft is None else lm.draft.draft}
    for need in entry.needs:
        if need == "heads" and not (isinstance(lm.model, HasHeads) and lm.model.heads is not None):
            return "asks for heads that look ahead; start the server with --heads FILE"
        if need != "heads" and drafts.get(need) is None:
            return f"asks a {need} model; start the server with --{need} MODEL"
    if fills(entry) and not isinstance(lm.model, Infill):
        return "fills holes; load a model that was trained to, such as smollm2-diffusion"
    try:
        requested(spec, config.offered)
    except UnspoolError as error:
        return str(error)
    return ""


@cache
def names() -> tuple[str, ...]:
    """What may be asked for besides the page itself."""
    return tuple(sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".js", ".css")))


@cache
def text(name: str) -> str:
    """One file of the page."""
    return (FOLDER / name).read_text(encoding="utf-8")


@cache
def saved() -> str:
    """The page for a saved trace: all in one file, whose own policy lets nothing else in.

    The trace belongs where `null` stands in the element `trace`.
    """
    style, script = text("window.css"), bundle("saved.js")
    policy = f"{NOTHING_ELSE}; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    return Template(text(SAVED)).substitute(policy=policy, style=style, script=script)


def bundle(entry: str) -> str:
    """A module with all that it imports as one script, as a file on a disk may not import others.

    Modules here import names as they are and export where they define, so that one after the other, without these
    words, they mean the same.
    """
    ordered: dict[str, str] = {}

    def add(name: str) -> None:
        for other in _IMPORT.findall(text(name)):
            if other not in ordered:
                add(other)
        ordered.setdefault(name, _EXPORT.sub("", _IMPORT.sub("", text(name))))

    add(entry)
    return '(() => {\n"use strict";\n' + "".join(ordered.values()) + "})();\n"


def _digest(inline: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()


OPEN = ("/", *(FILES + name for name in (*names(), SAVED)))  # there is nothing secret in them


def routes(worker: Worker, counts: ServerMetrics, config: ServerConfig) -> list[Route]:
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
            "model": config.model,
            "chat": lm.vocabulary.chat_template is not None,
            "method": config.method,
            "options": not config.methods,  # whether a method may be given other options
            "tokens": min(worker.limits.tokens, lm.model.context or ENDLESS),
            "methods": choices(lm, config),
        }

    async def methods(_: Request) -> Response:
        return JSONResponse(await run_in_threadpool(about), headers={"cache-control": "no-store"})

    return [
        Route("/", page),
        Route(FILES + SAVED, blank),
        Route(FILES + "methods", methods),
        Route(FILES + "decode", Decode(worker, counts, config), methods=["POST"]),
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
