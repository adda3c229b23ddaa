"""The options of `unspool serve` that spread it over a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from .. import server
from ..cluster import ReplicaRange, crew, joined
from .group import option
from .loading import Loading

if TYPE_CHECKING:
    from ...api.lm import LM
    from ..server import Limits, ServerConfig


@dataclass(frozen=True)
class Replicas:
    """Whether there are replicas on a cluster, how many, and what each has."""

    ray: bool = option("--ray", is_flag=True, help="As replicas on a Ray cluster; RAY_ADDRESS names it.")
    replicas: str = option(
        "--replicas", default="1", metavar="N|MIN..MAX", help="How many (with --ray); 1..4: as requests come."
    )
    cpus: float = option("--cpus", type=click.FloatRange(0.1), default=1.0, help="Of each replica (with --ray).")
    gpus: float | None = option(
        "--gpus", type=click.FloatRange(0), metavar="N", help="Of each replica; 1 where there are any, unless told."
    )

    def serve(self, loading: Loading, limits: Limits, house: ServerConfig, host: str, port: int) -> int:
        """Serve until told to end."""
        span = ReplicaRange.of(self.replicas)
        with joined("`unspool serve --ray`", echo=True):
            each = crew(span.low, self.cpus, self.gpus, loading.device)
            load = partial(_loaded, loading, house, limits.longest)
            server.server_replicas.run(server.server_replicas.deployment(load, limits, house, span, each), host, port)
        return 0


def _loaded(loading: Loading, house: ServerConfig, longest: int) -> LM:
    lm = loading.load(True, longest)
    loading.prepare(lm, (house.method, *house.methods))
    return lm
