"""Replicas: the server as an application of Ray Serve, several times over and each with its own engine."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from threading import Event
from typing import Any

from fastapi import FastAPI
from ray import serve

from ...api.lm import LM
from ...core.errors import UnspoolError
from ..cluster import ADDRESS, Crew, ReplicaRange
from .app import application
from .limits import Limits
from .running import heard
from .server_config import ServerConfig
from .server_log import log
from .worker import Worker

NAME = "unspool"  # of the application, among others that a cluster may run
WATCH = 5.0  # seconds between looks at a replica's health


class ServerReplica:
    """One server: it loads the model by itself and is healthy while its worker takes requests."""

    def __init__(self, load: Callable[[], LM], limits: Limits, config: ServerConfig) -> None:
        self._worker, self._config = Worker(load(), limits), config
        self._worker.prepare()

    def __serve_build_asgi_app__(self) -> FastAPI:
        """What Ray Serve passes requests to; it starts the worker, and stops it when the replica is to go."""
        return application(self._worker, self._config)

    def check_health(self) -> None:
        """Raise if the replica is to be replaced: its thread has ended or hangs, so that no request is answered."""
        if (why := self._worker.trouble) is not None:
            raise RuntimeError(f"the worker takes no requests: {why}")


def deployment(load: Callable[[], LM], limits: Limits, config: ServerConfig, span: ReplicaRange, crew: Crew) -> Any:
    """The application as Ray Serve runs it; `crew` says what each replica has to itself."""
    made = serve.deployment(
        serve.ingress()(ServerReplica),
        name=NAME,
        # More than a replica writes and lets wait: it is to say so itself, with a 429 that clients understand.
        max_ongoing_requests=limits.connections,
        max_queued_requests=limits.connections,
        health_check_period_s=WATCH,
        graceful_shutdown_timeout_s=config.grace,
        ray_actor_options={"num_cpus": crew.cpus, "num_gpus": crew.gpus},
        **_scale(span, limits.parallel),
    )
    return made.bind(load, limits, config)


def run(app: Any, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM, then let the replicas finish what they have and take the application away."""
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    quiet = {"enable_access_log": False, "log_level": "ERROR"}
    before = {kind: signal.signal(kind, _end) for kind in heard()}
    try:
        with suppress(KeyboardInterrupt):
            serve.start(http_options={"host": host, "port": port}, logging_config=quiet)
            serve.run(app, name=NAME, route_prefix="/", logging_config=quiet)
            log("ready", {"host": host, "port": port})
            Event().wait()
    except RuntimeError as error:  # with the whole traceback of a replica in it
        said = str(error).strip().splitlines()[-1]
        raise UnspoolError(f"the replicas did not start, as they say above: {said}") from None
    finally:
        serve.delete(NAME)
        if ADDRESS in os.environ and not serve.status().applications:  # of a cluster that stays, and serves nobody else
            serve.shutdown()
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _end(*_: object) -> None:
    raise KeyboardInterrupt


def _scale(span: ReplicaRange, target: int) -> dict[str, Any]:
    """A span as Ray Serve has it; `target` is how many requests at a time each replica is meant to have."""
    if span.low == span.high:
        return {"num_replicas": span.low}
    scale = {"min_replicas": span.low, "max_replicas": span.high, "target_ongoing_requests": target}
    return {"autoscaling_config": scale}
