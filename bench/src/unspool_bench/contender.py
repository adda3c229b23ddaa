"""Contenders: ways to write the same text, timed from the same start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Protocol

from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.core.claim import ARGMAX, LAW, SEED
from unspool.core.trace import Trace
from unspool.recipes.methods import claim_of, method

PLAIN = "plain"


@dataclass(frozen=True)
class Sample:
    """What a contender has written for the prompts of one case, and what that took."""

    tokens: tuple[tuple[int, ...], ...]
    texts: tuple[str, ...]
    seconds: float  # wall time, the prompts in it
    forwards: int  # of the target
    first: float | None = None  # seconds to the first token, the mean over texts
    trace: dict[str, Any] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Tokens written."""
        return sum(map(len, self.tokens))


class Contender(Protocol):
    """A way to write."""

    @property
    def name(self) -> str:
        """What it is called in the table."""
        ...

    @property
    def exact(self) -> bool:
        """Whether it claims plain decoding's greedy text."""
        ...

    def write(self, prompts: Sequence[tuple[int, ...]], settings: Settings) -> Sample:
        """Write behind all prompts together, from cold caches."""
        ...


class Ours:
    """A method of this library."""

    def __init__(self, lm: LM, spec: str) -> None:
        self.lm, self.name, self.method = lm, spec, method(spec)
        self.exact = claim_of(spec) in (SEED, LAW, ARGMAX)

    def write(self, prompts: Sequence[tuple[int, ...]], settings: Settings) -> Sample:
        """The method's texts; what another run left in caches is forgotten first."""
        for model in self.lm.models().values():
            model.forget()
        began = perf_counter()
        outputs = self.lm.batch(list(prompts), replace(settings, n=1), self.method)
        spent = perf_counter() - began
        total = sum((output.trace for output in outputs), Trace())
        firsts = [output.trace.seconds_first for output in outputs if output.trace.seconds_first is not None]
        return Sample(
            tuple(output.tokens for output in outputs),
            tuple(output.text for output in outputs),
            spent,
            total.forwards["target"],
            sum(firsts) / len(firsts) if firsts else None,
            total.record(),
        )
