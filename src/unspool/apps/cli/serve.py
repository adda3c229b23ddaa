"""`unspool serve`: OpenAI's HTTP interface over a model, with any method for any request, here or on a Ray cluster."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ... import api
from ...core.errors import BadRequest, MissingExtra
from ...rules import constrain
from .. import server
from ..cluster import ReplicaRange, crew, joined
from .group import Grouped, method_option, option, options
from .loading import Loading
from .root import starting
from .terminal import status

if TYPE_CHECKING:
    from ...api.lm import LM
    from ..server import Limits, ServerConfig

LOOPBACK = ("127.0.0.1", "localhost", "::1")
KEYS = "UNSPOOL_API_KEY"


@dataclass(frozen=True)
class Replicas:
    """Whether there are replicas on a cluster, how many, and what each has."""

    HEADING = "Cluster"

    ray: bool = option("--ray", is_flag=True, help="As replicas on a Ray cluster; RAY_ADDRESS names it.")
    replicas: str = option(
        "--replicas", default="1", metavar="N|MIN..MAX", help="How many (with --ray); 1..4: as requests come."
    )
    cpus: float = option("--cpus", type=click.FloatRange(0.1), default=1.0, help="Of each replica (with --ray).")
    gpus: float | None = option(
        "--gpus", type=click.FloatRange(0), metavar="N", help="Of each replica; 1 where there are any, unless told."
    )

    def serve(self, loading: Loading, limits: Limits, config: ServerConfig, host: str, port: int, warm: float) -> int:
        """Serve until told to end."""
        span = ReplicaRange.of(self.replicas)
        with joined("`unspool serve --ray`", echo=True):
            each = crew(span.low, self.cpus, self.gpus, loading.device)
            load = partial(_loaded, loading, config, limits, warm)
            server.server_replicas.run(server.server_replicas.deployment(load, limits, config, span, each), host, port)
        return 0


def _named_file(given: str) -> tuple[str, str]:
    name, equals, file = given.partition("=")
    if not (name and equals and file):
        raise click.UsageError(f"--items {given}: expected NAME=FILE, as in towns=towns.txt")
    return name, file


def _loaded(loading: Loading, config: ServerConfig, limits: Limits, warm: float, quiet: bool = True) -> LM:
    lm = loading.load(quiet, limits.longest)
    loading.prepare(lm, config.choices)
    with status(f"recording steps for up to {limits.parallel} texts …"):
        api.warm_up.warm_up(lm, limits.parallel, warm)
    return lm


@dataclass(frozen=True)
class Lending:
    """What clients may ask for; the fields of `Limits`."""

    HEADING = "Limits"

    tokens: int | None = option(
        "--max-tokens", type=int, metavar="N", help="Tokens of one text; those of the model's context, unless told."
    )
    texts: int = option("--max-texts", type=int, default=16, show_default=True, help="Texts of one request.")
    parallel: int = option(
        "--parallel", type=int, default=16, show_default=True, help="Texts that are written at the same time."
    )
    queue: int = option(
        "--queue", type=int, default=256, show_default=True, help="Requests that may wait; the next one gets a 429."
    )
    connections: int = option(
        "--connections", type=int, default=1000, show_default=True, help="Open ones; the next one gets a 503."
    )
    address: int = option(
        "--per-address", type=int, default=256, show_default=True, help="Open ones of one client; the next gets a 429."
    )
    rows: int = option(
        "--max-rows", type=int, default=4096, show_default=True, help="Rows of the model for one text and step."
    )
    share: float = option(
        "--share",
        type=float,
        default=0.5,
        show_default=True,
        help="Part of the cache and of the parallel texts for one request, and for all large ones.",
    )
    body: int = option("--max-body", type=int, default=1 << 20, show_default=True, help="Bytes of one request.")
    seconds: float = option(
        "--timeout", type=float, default=300.0, show_default=True, help="Seconds that one request may take."
    )
    patience: float = option(
        "--patience", type=float, default=60.0, show_default=True, help="Seconds for a client to send or read on."
    )
    form_bytes: int = option(
        "--max-form", type=int, default=1 << 17, show_default=True, help="Bytes of one schema, grammar or set of tools."
    )
    form_properties: int = option(
        "--max-properties", type=int, default=2000, show_default=True, help="Properties in one schema."
    )
    form_values: int = option(
        "--max-values", type=int, default=4000, show_default=True, help="Values of a schema's enums, or choices."
    )
    form_depth: int = option("--max-depth", type=int, default=100, show_default=True, help="Levels in one schema.")
    form_pattern: int = option(
        "--max-pattern", type=int, default=8192, show_default=True, help="Characters of one regular expression."
    )
    compile_seconds: float = option(
        "--compile-seconds", type=float, default=2.0, show_default=True, help="Processor time to compile one of these."
    )
    stalled: float = option(
        "--stalled", type=float, default=60.0, show_default=True, help="Seconds without a step until /readyz is 503."
    )
    share_prefixes: bool = option(
        "--share-prefixes",
        is_flag=True,
        default=False,
        help="Clients go on from each other's cached prompts, which they can notice.",
    )


@click.command(cls=Grouped, short_help="Answer OpenAI's clients over HTTP.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0 is everywhere.")
@click.option("--port", type=click.IntRange(1, 65535), default=8000, show_default=True)
@click.option("--api-key", "keys", multiple=True, envvar=KEYS, help="Let in only who has it; repeatable.")
@click.option(
    "--keys",
    "listed",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Let in only who has a key of this TOML file, each by a name and with limits.",
)
@click.option("--cors", "origins", multiple=True, metavar="ORIGIN", help="Whose web pages may call; repeatable.")
@click.option(
    "--trusted-proxies",
    "proxies",
    multiple=True,
    metavar="ADDRESSES",
    help="Whose X-Forwarded-For is believed: addresses or networks, joined by commas; repeatable.",
)
@click.option("--name", help="What the model is called by clients; the name it is loaded by, unless told.")
@method_option("plain", "For requests that name none in `decoding`.")
@click.option("--allow", "methods", multiple=True, metavar="METHOD", help="Only these besides, as given; repeatable.")
@click.option(
    "--items",
    multiple=True,
    metavar="NAME=FILE",
    help="A set of items, a line each, that requests may name in `response_format`; repeatable.",
)
@click.option("--grace", type=float, default=30.0, show_default=True, help="Seconds to finish in at shutdown.")
@click.option(
    "--warm-up",
    "warm",
    type=click.FloatRange(0, 3600),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="For a GPU to record steps before it is ready; what is left is done between requests.",
)
@click.option("--no-window", "window", flag_value=False, default=True, help="No page at / to watch methods on.")
@options(Replicas, "replicas")
@options(Lending, "lending")
@options(Loading, "loading")
def serve(
    host: str,
    port: int,
    keys: tuple[str, ...],
    listed: Path | None,
    origins: tuple[str, ...],
    proxies: tuple[str, ...],
    name: str | None,
    method: str,
    methods: tuple[str, ...],
    items: tuple[str, ...],
    grace: float,
    warm: float,
    window: bool,
    replicas: Replicas,
    lending: Lending,
    loading: Loading,
) -> int:
    """Serve a model to OpenAI's clients: /v1/chat/completions, /v1/completions, /v1/models, /metrics.

    It listens on this machine alone unless --host says otherwise, and writes one line of JSON per request to stderr.
    """
    try:
        import uvicorn  # noqa: F401  (first, to say what is missing before anything else is read)

        with starting():
            app, running = server.app, server.running
    except ImportError as error:
        if error.name in ("uvicorn", "fastapi", "starlette", "prometheus_client"):
            raise MissingExtra(error.name, "serve", "`unspool serve`") from None
        raise
    log, clients = server.server_log.log, server.clients
    if any(not key.strip() for key in keys) or (KEYS in os.environ and not keys):
        raise BadRequest(f"an API key (--api-key, {KEYS}) is empty; give one that cannot be guessed, or none at all.")
    if loading.raw:
        raise click.UsageError("--raw is not for a server: clients choose between chats and plain completions")
    given = {field.name: getattr(lending, field.name) for field in fields(server.Limits)}
    limits = server.Limits(**{limit: value for limit, value in given.items() if value is not None})
    loading.check((method, *methods))
    called = name or (Path(loading.model).name if Path(loading.model).exists() else loading.model)
    logging.basicConfig(level=logging.WARNING, handlers=[server.server_log.JournalHandler()])
    logging.captureWarnings(True)
    known = () if listed is None else clients.clients(listed)
    if listed is not None and (warning := clients.exposed(listed)) is not None:
        log("keys", {"level": "warning", "message": warning})
    hosts = (*LOOPBACK, "[::1]") if host in LOOPBACK and not (keys or known) else ()
    trusted = server.forwarded.trusted_networks(proxies)
    sets = server.ItemSets({key: constrain.items(file) for key, file in map(_named_file, items)})
    config = server.ServerConfig(called, method, methods, keys, hosts, origins, grace, window, known, sets, trusted)
    if host not in LOOPBACK and not config.guarded:
        log("open", {"message": "everybody who reaches this address can use the model; --api-key lets in only some"})
    log("starting", {"host": host, "port": port, "model": called, "method": method})
    if replicas.ray:
        return replicas.serve(loading, limits, config, host, port, warm)
    worker = server.Worker(_loaded(loading, config, limits, warm, quiet=False), limits)
    worker.prepare()
    code = running.run(running.configured(app.application(worker, config), limits, grace, host, port))
    return code if code == running.FAILED else running.leave(code)
