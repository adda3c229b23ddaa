"""What a lookahead may fill holes with: the likeliest tokens of each, under a constraint's masks."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property, reduce
from operator import or_

from torch import Tensor

from ...core.law import Law
from ...core.warp.warp import Same, Temperature, Warp
from ...loops.denoise_state import DenoiseState
from ...loops.guard import parts
from ..constrain.constraint import State

AHEAD = 24  # tokens of a hole that are tried before the whole vocabulary is
FEW = 4  # of them are asked about one by one; for more, a mask of all tokens costs less


class Outlook:
    """One look, seen from a constraint: the laws before the greedy choice, and their best tokens, made when needed."""

    def __init__(self, state: DenoiseState) -> None:
        self.state = state
        self._best: dict[int, list[tuple[int, float]]] = {}

    def law(self, i: int) -> Law:
        """The law at a place after all warps but the greedy choice, so that there is a second best."""
        return self._warm.law(i)

    def best(self, i: int, state: State, count: int, without: Collection[int] = frozenset()) -> list[tuple[int, float]]:
        """The likeliest tokens for a place that a state allows, with their log-probabilities, best first."""
        found: list[tuple[int, float]] = []
        mask: Tensor | None = None
        for rank, (token, logprob) in enumerate(self._likeliest(i)):
            mask = state.mask() if rank == FEW else mask
            if token not in without and (state.allows(token) if mask is None else mask[token]):
                found.append((token, logprob))
                if len(found) == count:
                    return found
        if found:
            return found
        law = self.law(i)
        law = law.only((state.mask() if mask is None else mask).to(law.scores.device))
        law = law.without(*without) if without else law
        scores, tokens = law.scores.topk(min(count, law.size))
        pairs = zip(tokens.tolist(), scores.tolist(), strict=True)
        return [(token, score - self.law(i).log_z) for token, score in pairs if score > float("-inf")]

    def _likeliest(self, i: int) -> list[tuple[int, float]]:
        if i not in self._best:
            law = self.law(i)
            scores, tokens = law.scores.topk(min(AHEAD, law.size))
            pairs = zip(tokens.tolist(), scores.tolist(), strict=True)
            self._best[i] = [(token, score - law.log_z) for token, score in pairs if score > float("-inf")]
        return self._best[i]

    @cached_property
    def _warm(self) -> DenoiseState:
        state = self.state
        warm: Warp = reduce(or_, (part for part in parts(state.warp) if part != Temperature(0)), Same())
        return DenoiseState(state.canvas, state.raw, warm, state.chance)
