"""Counts: what a server has done and is doing, as Prometheus reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.types import Scope

from ...core.asks import TARGET
from .histogram import Histogram
from .journal import Sparing
from .ration import Ration
from .worker import Worker

KIND = "text/plain; version=0.0.4; charset=utf-8"
OUTCOMES = ("completed", "refused", "busy", "timeout", "left", "failed")
RATION = "unspool.ration"  # in the scope of a request, what its client has left


def client(scope: Scope) -> str:
    """Who sent a request: the name that goes with the key, else the address that it came from."""
    if RATION in scope:
        return f"key {scope[RATION].client.name}"
    return str((scope.get("client") or ("",))[0])


@dataclass
class Counts:
    """Requests by outcome, status and client, how long they take, and the worker's own figures."""

    worker: Worker
    rations: Sequence[Ration] = ()
    outcomes: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    sparing: Sparing = field(default_factory=Sparing)  # of lines about requests that cost a client nothing
    first: Histogram = field(
        default_factory=lambda: Histogram("unspool_first_token_seconds", "From a request's coming to its first token.")
    )
    between: Histogram = field(
        default_factory=lambda: Histogram("unspool_token_seconds", "From one token of a text to the next.")
    )
    whole: Histogram = field(
        default_factory=lambda: Histogram("unspool_request_seconds", "From a request's coming to its complete answer.")
    )

    def took(self, scope: Scope, tokens: int) -> None:
        """Count tokens of a request for its client."""
        if RATION in scope:
            scope[RATION].spend(tokens)

    def ended(self, scope: Scope, outcome: str, about: dict[str, object]) -> None:
        """Count a request; its client's name is put with what is told of it."""
        self.outcomes[outcome] += 1
        if RATION in scope:
            about["key"] = scope[RATION].client.name

    def text(self) -> str:
        """All figures in Prometheus' text format; those of texts count a text when it ends."""
        worker, total = self.worker, self.worker.total
        lines = _metric("requests_total", "counter", "Requests for completions, by how they ended.")
        lines += [f'unspool_requests_total{{outcome="{name}"}} {self.outcomes[name]}' for name in OUTCOMES]
        lines += _metric("responses_total", "counter", "Responses by status; health checks are not counted.")
        lines += [f'unspool_responses_total{{status="{status}"}} {n}' for status, n in sorted(self.statuses.items())]
        slots = getattr(getattr(worker.lm.model, "slots", None), "in_use", None)
        for name, kind, told, value in (
            (
                "worker_last_beat_seconds",
                "gauge",
                "Since the worker last came round; 0 if idle.",
                worker.silent,
            ),
            ("queue_length", "gauge", "Requests that wait to be begun.", len(worker.waiting)),
            ("live_requests", "gauge", "Requests that are being answered.", len(worker.live)),
            ("live_texts", "gauge", "Texts that are being written.", len(worker.engine.live)),
            ("cache_tokens_reserved", "gauge", "Tokens of cache that those texts may need.", worker.reserved),
            ("cache_slots_in_use", "gauge", "Slots of the cache that hold something, finished texts too.", slots),
            ("tokens_total", "counter", "Tokens written.", total.tokens),
            ("forwards_total", "counter", "Forwards of the model, once for each text in them.", total.forwards[TARGET]),
            ("drafted_total", "counter", "Tokens drafted.", total.drafted),
            ("accepted_total", "counter", "Drafted tokens that stood.", total.accepted_tokens),
        ):
            if value is not None:
                lines += [*_metric(name, kind, told), f"unspool_{name} {value}"]
        for histogram in (self.first, self.between, self.whole):
            lines += histogram.lines()
        return "\n".join([*lines, *self._by_key()]) + "\n"

    def _by_key(self) -> list[str]:
        """What each client did, by its name."""
        lines: list[str] = []
        for name, kind, told in (
            ("requests", "counter", "Requests that came with a key."),
            ("refused", "counter", "Requests refused because the key's limits were reached."),
            ("tokens", "counter", "Tokens read and written for a key."),
            ("inside", "gauge", "Requests of a key that are being answered."),
        ):
            metric = f"key_{name}_total" if kind == "counter" else f"key_{name}"
            lines += _metric(metric, kind, told) if self.rations else []
            for ration in self.rations:
                lines.append(f'unspool_{metric}{{key="{ration.client.name}"}} {getattr(ration, name)}')
        return lines


def _metric(name: str, kind: str, told: str) -> list[str]:
    return [f"# HELP unspool_{name} {told}", f"# TYPE unspool_{name} {kind}"]
