"""Blocks that end where a line or sentence does."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from ...core.canvas import Canvas
from ...core.claim import HEURISTIC, Method, claims
from ...core.errors import BadRequest
from ...core.option import MODEL, expect, level, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from ...loops.unmasker import Narrowing, StatefulRule, sized
from .confident import Confident


def _trials(rule: type[Adaptive]) -> list[Method]:
    return [Denoise(Confident(0.6), 3, rule(2, 0.3, ends=(0,), reach=1.0))]


@claims(HEURISTIC, shaped=False, trials=_trials, paper="2509.26432", systems=("AdaBlock-dLLM",))
@dataclass(frozen=True)
class Adaptive(StatefulRule):
    """End a block with the surest delimiter nearby, if that is sure enough, else where a fixed block would end.

    The block begins at the first hole and the look that finds its end also fills its first holes:
    b = argmax {p_i : argmax of hole i is a delimiter, i < start + reach·length}, block = [start, b] if p_b ≥ delimiter.
    Fixed blocks have the model's own size unless told. `ends` are the delimiters; a method that is run by name takes
    the tokens of the vocabulary that end in one of `signs`, which are line ends unless told.

    Claim: HEURISTIC. With a threshold above 1 these are fixed blocks. It loses on text without delimiters, where it is
    those blocks, and where a sure line end far off makes one long block. Cost: no look of its own.
    """

    size: int = 32
    threshold: float = 0.3
    ends: Collection[int] = ()
    signs: str = "\n"
    reach: float = 0.25

    def __post_init__(self) -> None:
        fits = whole(self.size, 1) or self.size == MODEL
        expect(fits, "adaptive:block", self.size, f"a block of at least 1, or {MODEL} for the model's own")
        expect(level(self.threshold), "adaptive:delimiter", self.threshold, "a number; usual is 0.3")
        expect(0 < self.reach <= 1, "adaptive:reach", self.reach, "a share of the answer, above 0 and at most 1")

    def fit(self, vocabulary: Any) -> Adaptive:
        size = sized(self.size, vocabulary)
        if self.ends:
            return replace(self, size=size)
        signs = tuple(sign.encode() for sign in self.signs)
        ends = frozenset(i for i in range(vocabulary.size) if vocabulary.piece(i).endswith(signs))
        return replace(self, size=size, ends=ends)

    def begin(self) -> _CurrentBlock:
        if not self.ends and self.threshold <= 1:
            raise BadRequest(
                "adaptive blocks need to know the tokens that end a line: run the method through a loaded model, which "
                "gives its vocabulary, or give ends=(id, …)."
            )
        return _CurrentBlock(self)


@dataclass
class _CurrentBlock(Narrowing):
    """The block that is being filled."""

    rule: Adaptive
    block: tuple[int, int] = (0, 0)

    def __call__(self, canvas: Canvas) -> Canvas:
        if not any(canvas.is_open(i) for i in range(*self.block)):
            self.block = (0, 0)
        return canvas.within(*(self.block if any(self.block) else (canvas.settled, len(canvas))))

    def saw(self, state: DenoiseState) -> DenoiseState:
        if not any(self.block):
            self.block = self._found(state)
        return state.within(*self.block)

    def _found(self, state: DenoiseState) -> tuple[int, int]:
        start, end = state.canvas.window
        far = start + math.ceil(self.rule.reach * (end - state.canvas.prompt))
        near = {i: state.peak(i) for i in state.holes if i < far}
        marks = {i: peak.p for i, peak in near.items() if peak.token in self.rule.ends}
        best = max(marks, key=lambda i: marks[i], default=start)
        if marks.get(best, 0.0) >= self.rule.threshold:
            return start, best + 1
        return start, min(start + sized(self.rule.size), end)
