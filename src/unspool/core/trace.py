"""What happened: rounds, accepted tokens, forwards and where the time went."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(repr=False)
class Trace:
    """The record of one request. Names of acceptance figures are vLLM's."""

    prompt: int = 0
    cached: int = 0  # tokens of it that another text had left in the cache
    warm: int = 0  # entries of a memory that other texts had left
    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: Counter[int] = field(default_factory=Counter)  # accepted tokens of a round -> rounds
    forwards: Counter[str] = field(default_factory=Counter)  # by model
    rows: Counter[str] = field(default_factory=Counter)  # token rows those forwards computed for this request
    asks: int = 0
    seconds_draft: float = 0.0
    seconds_forward: float = 0.0
    seconds_rule: float = 0.0
    seconds_total: float = 0.0
    seconds_first: float | None = None  # from submission to the first token

    def __add__(self, other: Trace) -> Trace:
        """Both requests together; of several requests there is no one first token."""
        summed = [f.name for f in fields(self) if f.name != "seconds_first"]
        return Trace(**{name: getattr(self, name) + getattr(other, name) for name in summed})

    @property
    def seconds_overhead(self) -> float:
        """Time that was spent neither drafting nor in forwards nor in rules: protocol, bookkeeping, other requests."""
        return max(0.0, self.seconds_total - self.seconds_draft - self.seconds_forward - self.seconds_rule)

    @property
    def accepted_tokens(self) -> int:
        """Drafted tokens that stood."""
        return sum(n * rounds for n, rounds in self.accepted.items())

    @property
    def mean_acceptance_length(self) -> float:
        """1 + accepted / rounds: tokens per round, counting the one that every round adds."""
        return 1 + self.accepted_tokens / self.rounds if self.rounds else 1.0

    @property
    def draft_acceptance_rate(self) -> float | None:
        """Accepted / drafted; None if nothing was drafted."""
        return self.accepted_tokens / self.drafted if self.drafted else None

    @property
    def per_position_acceptance_rate(self) -> list[float]:
        """For i = 1, 2, …: the share of rounds in which the i-th drafted token of the path stood."""
        deepest = max(self.accepted, default=0)
        return [sum(n for k, n in self.accepted.items() if k >= i) / self.rounds for i in range(1, deepest + 1)]

    @property
    def tokens_per_forward(self) -> float:
        """New tokens per forward of the target."""
        return self.tokens / self.forwards["target"] if self.forwards["target"] else 0.0

    @property
    def tokens_per_second(self) -> float:
        """New tokens per second, the prompt's forward included."""
        return self.tokens / self.seconds_total if self.seconds_total else 0.0

    def break_even(self, plain_seconds_per_token: float) -> float | None:
        """Tokens per round at which this method is as fast as plain decoding; None before the first round."""
        if not self.rounds or plain_seconds_per_token <= 0:
            return None
        return self.seconds_total / self.rounds / plain_seconds_per_token

    def record(self) -> dict[str, Any]:
        """All figures as plain data."""
        return {
            "prompt_tokens": self.prompt,
            "cached_tokens": self.cached,
            "warm_entries": self.warm,
            "tokens": self.tokens,
            "rounds": self.rounds,
            "drafted": self.drafted,
            "accepted": self.accepted_tokens,
            "mean_acceptance_length": self.mean_acceptance_length,
            "draft_acceptance_rate": self.draft_acceptance_rate,
            "per_position_acceptance_rate": self.per_position_acceptance_rate,
            "accepted_histogram": dict(sorted(self.accepted.items())),
            "asks": self.asks,
            "forwards": dict(self.forwards),
            "rows": dict(self.rows),
            "tokens_per_forward": self.tokens_per_forward,
            "seconds": {
                "total": self.seconds_total,
                "first_token": self.seconds_first,
                "draft": self.seconds_draft,
                "forward": self.seconds_forward,
                "rule": self.seconds_rule,
                "overhead": self.seconds_overhead,
            },
            "tokens_per_second": self.tokens_per_second,
        }

    def _repr_html_(self) -> str:
        parts = str(self).split(" · ")
        return "<ul>" + "".join(f"<li>{part}</li>" for part in parts) + "</ul>"

    def __repr__(self) -> str:
        return f"Trace({self})"

    def __str__(self) -> str:
        many, asked = self.tokens, self.forwards["target"]
        parts = [f"{many} token{'s' * (many != 1)} in {self.seconds_total:.2f} s ({self.tokens_per_second:.1f}/s)"]
        parts.append(f"{asked} forward{'s' * (asked != 1)}, {self.tokens_per_forward:.2f} tokens each")
        rate = self.draft_acceptance_rate
        if rate is not None:
            parts.append(f"{self.accepted_tokens} of {self.drafted} drafted tokens accepted ({rate:.0%})")
        if self.warm:
            parts.append(f"warm: {self.warm} entries of memory from other texts")
        if self.seconds_total:
            named = {
                "method" if rate is None else "draft": self.seconds_draft,  # a search chooses, and drafts nothing
                "forward": self.seconds_forward,
                "rule": self.seconds_rule,
                "overhead": self.seconds_overhead,
            }
            parts.append("time: " + ", ".join(f"{k} {v / self.seconds_total:.0%}" for k, v in named.items()))
        return " · ".join(parts)
