"""Drafters in feature space: EAGLE-1, 2, 3 and 3.1, MTP modules, LLM-to-SLM; P-EAGLE guesses a block at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ...models.drafters.description import DrafterFile
from ..network.linear import EmbeddingAndHead
from ..network.network import Row
from .drafter_network import DrafterLayers, DrafterNetwork
from .family_layers import FamilyLayers
from .guess import Guess, Step, Unread, by_text, line_of

CHUNK = 1024  # tokens of a long prompt that are read at a time


class FeatureDrafter(DrafterNetwork):
    """A few layers over pairs (state of token i, embedding of token i + 1): the first guess after the last pair.

    Below it, a drafted token is paired with what came out above it (an autoregression in feature space), or with a
    learned mask where the drafter guesses a block: then all places are told in the forward that reads the text.
    """

    ahead = -1  # of a drafted token's place less its depth, counted from the end of the pairs

    def __init__(self, file: DrafterFile, ends: EmbeddingAndHead, room: int) -> None:
        super().__init__(file, ends, room)
        if self.caches:
            self.layers = self._layers()

    def _layers(self) -> DrafterLayers:
        return FamilyLayers(self, self.slots) if self.spec.of_family else DrafterLayers(self, self.slots)

    def slots_of(self, count: int) -> int:
        return 0 if self.spec.block else count

    @torch.no_grad()
    def read(self, texts: Sequence[Unread]) -> list[Guess]:
        for text, states in texts:
            self._read_ahead(text.tokens, text.slots, states)
        masks = max(0, self.spec.block - 1)
        spare = self.slots.take(masks * len(texts)) if masks else []
        try:
            return self._read(texts, masks, spare)
        finally:
            self.slots.drop(spare)

    def _read_ahead(self, tokens: list[int], slots: list[int], states: Tensor) -> None:
        """Read all but the last chunk of a long text, alone and without an answer."""
        start = len(slots) - len(states)
        for first in range(0, (len(states) - 1) // CHUNK * CHUNK, CHUNK):
            end = start + first + CHUNK
            row = Row(0, CHUNK, slots[:end], range(end))
            self._forward(tokens[end - CHUNK + 1 : end + 1], self.fused(states[first : first + CHUNK]), [row])

    def _read(self, texts: Sequence[Unread], masks: int, spare: list[int]) -> list[Guess]:
        tokens, states, rows, last = list[int](), list[Tensor](), list[Row](), list[int]()
        for number, (text, given) in enumerate(texts):
            count = (len(given) - 1) % CHUNK + 1
            own = spare[number * masks : (number + 1) * masks]
            rows.append(Row(len(tokens), count + masks, [*text.slots, *own], range(len(text.slots) + masks)))
            last.append(len(tokens) + count - 1)
            tokens += text.tokens[len(text.tokens) - count :]
            states.append(given[len(given) - count :])
            if masks:
                assert self.spec.mask is not None
                tokens += [self.spec.mask] * masks
                mask = self.tensors.get("mask_state", given.new_zeros(given.shape[1]))
                states.append(mask.expand(masks, -1))
        return self._guesses(texts, self._forward(tokens, self.fused(torch.cat(states)), rows), last, masks)

    def _guesses(self, texts: Sequence[Unread], y: Tensor, last: Sequence[int], masks: int) -> list[Guess]:
        """What follows each text, whose last pair is in this row of what has left the layers."""
        out, kept = self._outputs(y)
        found = []
        for (text, _), row in zip(texts, last, strict=True):
            ahead = self._ahead(out, row, 0) if not masks else out[row : row + 1 + masks]
            found.append(Guess(text.tokens[-1], 0, ahead, None if masks else kept[row]))
        return found

    def _ahead(self, out: Tensor, row: int, depth: int) -> Tensor:
        """What heads read [places, dim] at this depth and, if more is told, behind it."""
        return out[row : row + 1]

    @torch.no_grad()
    def grow(self, steps: Sequence[Step], slots: Sequence[int]) -> list[Guess]:
        if self.spec.block:
            return [Guess(s.token, s.under.depth + 1, s.under.ahead[1:], above=s.under) for s in steps]
        guesses = [Guess(s.token, s.under.depth + 1, s.under.ahead[:0], above=s.under) for s in steps]
        order, rows = self._placed(steps, slots, guesses)
        states = torch.stack([_state_of(steps[number].under) for number in order])
        y = self._forward([steps[number].token for number in order], states, rows)
        out, kept = self._outputs(y)
        for row, number in enumerate(order):
            guesses[number].ahead = self._ahead(out, row, guesses[number].depth)
            guesses[number].state = kept[row]
        return guesses

    def _placed(
        self, steps: Sequence[Step], slots: Sequence[int], guesses: Sequence[Guess]
    ) -> tuple[list[int], list[Row]]:
        """Give drafted tokens their slots; the order of their rows, and what each sees: the text and its own line."""
        order, rows, taken = list[int](), list[Row](), iter(slots)
        for group in by_text(steps):
            text = steps[group[0]].text
            for number in group:
                guesses[number].order = len(text.drafts)
                text.drafts.append(next(taken))
                text.depths.append(guesses[number].depth)
            past = len(text.slots)
            hidden = torch.ones(len(group), past + len(text.drafts), dtype=torch.bool)
            hidden[:, :past] = False
            for n, number in enumerate(group):
                hidden[n, [past + i for i in line_of(guesses[number])]] = False
            places = [*range(past), *(past + self.ahead + depth for depth in text.depths)]
            rows.append(Row(len(order), len(group), [*text.slots, *text.drafts], places, hidden))
            order += group
        return order, rows

    def _outputs(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """What the head reads of what leaves the last layer, and what the next token is paired with: 0 if nothing."""
        out = self.normed("norm", y)
        if self.spec.join == "add":
            return out, torch.zeros_like(out)
        return out, out if self.spec.recycles_normed else y

    def _forward(self, tokens: Sequence[int], states: Tensor, rows: Sequence[Row]) -> Tensor:
        """What leaves the last layer for these tokens, each with its state of the drafter's own width."""
        spec, words = self.spec, self.embedded(tokens)
        places = [place for row in rows for place in row.places[-row.count :]]
        into = self.slots.where([slot for row in rows for slot in row.slots[-row.count :]], words.device)
        plans = {window: self.layers.planner.plan(rows, window) for window in set(spec.shape.windows)}
        x, first, entry_norm = self._entering(words, states, rows)
        return self.layers.through(
            x, places, into, lambda i: plans[spec.shape.windows[i]], first=first, entry_norm=entry_norm
        )

    def _entering(self, words: Tensor, states: Tensor, rows: Sequence[Row]) -> tuple[Tensor, Tensor | None, bool]:
        """What enters the layers, what the first attends with where that is something else, and if that is normed."""
        spec = self.spec
        if spec.join == "add":
            return words + self._lifted(states), None, True
        state, attends = self.normed("state_norm", states), spec.join == "attend"
        pair = [self.normed("layers.0.input_layernorm" if attends else "embed_norm", words), state]
        both = torch.cat(pair if spec.embedding_first else pair[::-1], -1)
        if attends:
            return state if spec.residual_normed else states, both, True
        return F.linear(both, self.tensors["join.weight"], self.tensors.get("join.bias")), None, spec.entry_norm

    def _lifted(self, states: Tensor) -> Tensor:
        """W2·ReLU(W1·h) of states, which is 0 where there is none; 0 for a drafter that reads tokens alone."""
        if "lift.up.weight" not in self.tensors:
            return torch.zeros_like(states)
        return F.linear(F.relu(F.linear(states, self.tensors["lift.up.weight"])), self.tensors["lift.down.weight"])


def _state_of(guess: Guess) -> Tensor:
    assert guess.state is not None, "only a drafter that guesses a whole block has none"
    return guess.state
