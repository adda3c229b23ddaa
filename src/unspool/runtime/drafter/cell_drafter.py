"""Drafters whose heads follow each other: Hydra, Hydra++, Clover, Amphista, FLASH, Falcon, blockwise decoding."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...models.drafters.description import LSTMS, DrafterFile
from ..network.linear import EmbeddingAndHead
from ..network.network import Row
from .cells import begun, followed, lstm_step, regressed
from .feature_drafter import FeatureDrafter
from .guess import Guess, Step, Unread

MOST_CARRIED = 4096  # ends of texts that an LSTM's state is kept of


class CellDrafter(FeatureDrafter):
    """Heads over the last state, or over what a few layers make of all states before it.

    The layers read a text once, as a feature drafter's do; what is drafted below it goes through small matrices alone,
    so that trees cost no attention and no slots.
    """

    def __init__(self, file: DrafterFile, ends: EmbeddingAndHead, room: int) -> None:
        self.caches = file.spec.shape.layers > 0
        self._carried: dict[int, tuple[Tensor, ...]] = {}  # what an LSTM holds behind the token of a slot
        super().__init__(file, ends, room)

    def slots_of(self, count: int) -> int:
        return 0

    @torch.no_grad()
    def read(self, texts: Sequence[Unread]) -> list[Guess]:
        if self.caches:
            return super().read(texts)
        return self._first(texts, torch.stack([unread.states[-1] for unread in texts]))

    def _guesses(self, texts: Sequence[Unread], y: Tensor, last: Sequence[int], masks: int) -> list[Guess]:
        return self._first(texts, y[list(last)])

    def _first(self, texts: Sequence[Unread], h: Tensor) -> list[Guess]:
        tokens = [unread.text.tokens[-1] for unread in texts]
        ahead, carried = begun(self.spec, self.tensors, h, self.embedded(tokens))
        states = [None] * len(texts) if carried is None else list(carried)
        return [Guess(token, 0, told, state) for token, told, state in zip(tokens, ahead, states, strict=True)]

    @torch.no_grad()
    def grow(self, steps: Sequence[Step], slots: Sequence[int]) -> list[Guess]:
        found = [Guess(s.token, s.under.depth + 1, s.under.ahead[1:], above=s.under) for s in steps]
        by_depth: dict[int, list[int]] = {}
        for number, step in enumerate(steps):
            if step.under.state is not None and found[number].depth < (self.spec.depth or 0):
                by_depth.setdefault(found[number].depth, []).append(number)
        for depth, numbers in by_depth.items():
            carried = torch.stack([_state_of(steps[n].under) for n in numbers])
            words = self.embedded([steps[n].token for n in numbers])
            ahead, carried = followed(self.spec, self.tensors, carried, words, depth)
            for row, number in enumerate(numbers):
                found[number].ahead, found[number].state = ahead[row], carried[row]
        return found

    def _entering(self, words: Tensor, states: Tensor, rows: Sequence[Row]) -> tuple[Tensor, Tensor | None, bool]:
        if self.spec.reads == "met":
            return regressed(self.spec, self.tensors, "meet", states, words), None, True
        if self.spec.reads == "lstm":
            return states + self._mixed(torch.cat([words, states], -1), rows), None, True
        if self.spec.reads == "token":
            return super()._entering(words, states, rows)
        return states, None, True

    def _mixed(self, x: Tensor, rows: Sequence[Row]) -> Tensor:
        """What an LSTM makes of the pairs of texts that go on where they stood; what it holds is kept by slots."""
        out = x.new_empty(len(x), self.spec.shape.dim)
        for row in rows:
            start = len(row.slots) - row.count
            blank = (x.new_zeros(1, self.spec.shape.dim),) * (2 * LSTMS)
            state = self._carried.get(row.slots[start - 1], blank) if start else blank
            for n in range(row.count):
                state = lstm_step(self.tensors, x[row.first + n : row.first + n + 1], state)
                out[row.first + n] = state[-2][0]
                if n >= row.count - 2:  # the last pair is read anew where a fork has read it
                    self._carried.pop(row.slots[start + n], None)
                    self._carried[row.slots[start + n]] = state
        while len(self._carried) > MOST_CARRIED:  # the oldest; a text that comes back to it drafts a little worse
            del self._carried[next(iter(self._carried))]
        return out


def _state_of(guess: Guess) -> Tensor:
    assert guess.state is not None, "only those that carry one are grown"
    return guess.state
