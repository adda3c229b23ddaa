"""Counts: what a server has done and is doing, as Prometheus reads it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ..asks import TARGET
from .worker import Worker

KIND = "text/plain; version=0.0.4; charset=utf-8"
OUTCOMES = ("completed", "refused", "busy", "timeout", "left", "failed")


@dataclass
class Counts:
    """Requests by outcome, and the worker's own figures."""

    worker: Worker
    outcomes: Counter[str] = field(default_factory=Counter)

    def text(self) -> str:
        """All figures in Prometheus' text format; those of texts count a text when it ends."""
        worker, total = self.worker, self.worker.total
        lines = _metric("requests_total", "counter", "Requests for completions, by how they ended.")
        lines += [f'unspool_requests_total{{outcome="{name}"}} {self.outcomes[name]}' for name in OUTCOMES]
        slots = getattr(getattr(worker.lm.model, "slots", None), "in_use", None)
        for name, kind, told, value in (
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
        return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, told: str) -> list[str]:
    return [f"# HELP unspool_{name} {told}", f"# TYPE unspool_{name} {kind}"]
