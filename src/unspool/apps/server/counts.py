"""Counts: what a server has done and is doing, kept and written out for Prometheus by its own client library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from starlette.types import Scope

from ...core.asks import TARGET
from ...runtime.engine.contracts import HasSlots
from .clients import RateLimit
from .server_log import Sparing
from .worker import Worker

KIND = "text/plain; version=0.0.4; charset=utf-8"  # which every Prometheus reads
OUTCOMES = ("completed", "refused", "busy", "timeout", "left", "failed")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
SUBSCRIBER = 64  # bits of an IPv6 address that say whose it is
RATE_LIMIT = "unspool.rate_limit"  # in the scope of a request, what its client has left
HOLDER = "unspool.holder"  # in the scope of a request, the same whether or not it takes from that
CLIENT = "unspool.client"  # in the scope of a request, whose key it bears


def client(scope: Scope) -> str:
    """Who sent a request, whose turns, memories and cached prompts these are: its key, else the address it came from.

    It is the key that fitted, not the header that was sent, which can be spelt in many ways.
    """
    return str(scope[CLIENT] if CLIENT in scope else subscriber(str((scope.get("client") or ("",))[0])))


@lru_cache(maxsize=4096)
def subscriber(address: str) -> str:
    """Who calls from an address, for limits: of IPv6 its first 64 bits, as the others are the caller's to choose."""
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found.ipv4_mapped or IPv6Network((found, SUBSCRIBER), strict=False))


class ServerMetrics:
    """Requests by outcome, status and client, how long they take, and the worker's own figures.

    Each server has a registry of its own, so that several can run in one process.
    """

    def __init__(self, worker: Worker, rate_limits: Sequence[RateLimit] = ()) -> None:
        self.sparing = Sparing()  # of lines about requests that cost a client nothing
        self._registry = registry = _Registry(auto_describe=False)
        about = "Requests for completions, by how they ended."
        self._requests = Counter("unspool_requests", about, ["outcome"], registry=registry)
        for outcome in OUTCOMES:
            self._requests.labels(outcome)  # so that each is there from the start, at 0
        about = "Responses by status; health checks are not counted."
        self._responses = Counter("unspool_responses", about, ["status"], registry=registry)
        registry.register(_Worker(worker))
        self._first = _seconds("first_token", "From a request's coming to its first token.", registry)
        self._between = _seconds("token", "From one token of a text to the next.", registry)
        self._whole = _seconds("request", "From a request's coming to its complete answer.", registry)
        self._rate_limits = rate_limits

    def took(self, scope: Scope, tokens: int) -> None:
        """Count tokens of a request for its client."""
        if RATE_LIMIT in scope:
            scope[RATE_LIMIT].spend(tokens)

    def first_token(self, seconds: float) -> None:
        """Count how long a request waited for its first token."""
        self._first.observe(seconds)

    def more_tokens(self, seconds: float, tokens: int) -> None:
        """Count tokens that came together, so many seconds after the one before them."""
        for _ in range(tokens):
            self._between.observe(seconds / tokens)

    def responded(self, status: int) -> None:
        """Count a response."""
        self._responses.labels(status).inc()

    def ended(self, scope: Scope, outcome: str, seconds: float, about: dict[str, object]) -> None:
        """Count a request; its client's name is put with what is told of it."""
        self._requests.labels(outcome).inc()
        if outcome == "completed":
            self._whole.observe(seconds)
        if RATE_LIMIT in scope:
            about["key"] = scope[RATE_LIMIT].client.name

    def text(self, scope: Scope | None = None) -> bytes:
        """All figures in Prometheus' text format; those of texts count a text when it ends.

        Who asks with a named key sees the figures of this key, and no other's: not even which others there are.
        """
        own = (scope or {}).get(HOLDER)
        keys = _Registry(auto_describe=False)
        if seen := self._rate_limits if own is None else (own,):
            keys.register(_RateLimits(seen))
        return generate_latest(self._registry) + generate_latest(keys)


class _Registry(CollectorRegistry):
    """Without the series `…_created` that the library adds to each: when a server started is told by its process."""

    def collect(self) -> Iterable[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class _Worker:
    """The figures that a worker keeps itself, read when somebody asks."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def collect(self) -> Iterable[Metric]:
        worker, total = self._worker, self._worker.total
        model = worker.lm.model
        slots = model.slots.in_use if isinstance(model, HasSlots) else None
        for name, told, value in (
            ("worker_last_beat_seconds", "Since the worker last came round; 0 if idle.", worker.silent),
            ("queue_length", "Requests that wait to be begun.", len(worker.waiting)),
            ("live_requests", "Requests that are being answered.", len(worker.live)),
            ("live_texts", "Texts that are being written.", len(worker.engine.live)),
            ("cache_tokens_reserved", "Tokens of cache that those texts may need.", worker.reserved),
            ("cache_slots_in_use", "Slots of the cache that hold something, finished texts too.", slots),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"unspool_{name}", told, value)
        for name, told, value in (
            ("tokens", "Tokens written.", total.tokens),
            ("forwards", "Forwards of the model, once for each text in them.", total.forwards[TARGET]),
            ("drafted", "Tokens drafted.", total.drafted),
            ("accepted", "Drafted tokens that stood.", total.accepted_tokens),
        ):
            yield CounterMetricFamily(f"unspool_{name}", told, value)


class _RateLimits:
    """What each client did, by its name."""

    def __init__(self, rate_limits: Sequence[RateLimit]) -> None:
        self._rate_limits = rate_limits

    def collect(self) -> Iterable[Metric]:
        for name, family, told in (
            ("requests", CounterMetricFamily, "Requests that came with a key."),
            ("refused", CounterMetricFamily, "Requests refused because the key's limits were reached."),
            ("tokens", CounterMetricFamily, "Tokens read and written for a key."),
            ("inside", GaugeMetricFamily, "Requests of a key that are being answered."),
        ):
            metric = family(f"unspool_key_{name}", told, labels=["key"])
            for rate_limit in self._rate_limits:
                metric.add_metric([rate_limit.client.name], getattr(rate_limit, name))
            yield metric


def _seconds(name: str, told: str, registry: CollectorRegistry) -> Histogram:
    return Histogram(f"unspool_{name}_seconds", told, buckets=SECONDS, registry=registry)
