"""Drafters that fill a block of masks in one forward: DFlash, DSpark with its Markov head, JetSpec's causal head."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ...models.drafters.description import DrafterFile
from ..network.attention import QuerySpan, turn
from ..network.linear import EmbeddingAndHead, rms
from ..network.network import Row
from .drafter_network import DrafterLayers, DrafterNetwork
from .guess import Guess, Step, Unread


class BlockDrafter(DrafterNetwork):
    """States of the text are keys and values of every layer; the last token and masks behind it are the queries.

    One forward tells what stands at every place of the block, given the text: marginals, of which any tree can be made
    (DDTree, 2604.12989). With a Markov head the token before a place shifts its scores, w2·w1[x], so that a tree knows
    its own paths; "gated" and "rnn" heads let the place's own output decide how much.
    """

    def __init__(self, file: DrafterFile, ends: EmbeddingAndHead, room: int) -> None:
        super().__init__(file, ends, room)
        self.layers = DrafterLayers(self, self.slots)

    @torch.no_grad()
    def read(self, texts: Sequence[Unread]) -> list[Guess]:
        for unread in texts:
            self._note(unread)
        block, mask = self.spec.block, self.spec.mask
        assert mask is not None
        tokens = [x for text, _ in texts for x in (text.tokens[-1], *[mask] * (block - 1))]
        spare = self.slots.take(block * len(texts))
        try:
            rows = [
                Row(
                    n * block, block, [*text.slots, *spare[n * block : (n + 1) * block]], range(len(text.slots) + block)
                )
                for n, (text, _) in enumerate(texts)
            ]
            places = [place for row in rows for place in row.places[-block:]]
            plans = {window: self._plan(rows, window) for window in set(self.spec.shape.windows)}
            into = self.slots.where(spare, self.embedding.device)
            windows = self.spec.shape.windows
            y = self.layers.through(self.embedded(tokens), places, into, lambda i: plans[windows[i]])
        finally:
            self.slots.drop(spare)
        out = self.normed("norm", y).view(len(texts), block, -1)
        found = []
        for (text, _), places_out in zip(texts, out, strict=True):
            guess = Guess(text.tokens[-1], 0, places_out)
            if not self.spec.anchored:
                self._hinted(guess, None)
                guess = Guess(text.tokens[-1], 0, places_out[1:], state=guess.state)
            found.append(self._hinted(guess, guess.state))
        return found

    def grow(self, steps: Sequence[Step], slots: Sequence[int]) -> list[Guess]:
        return [
            self._hinted(Guess(s.token, s.under.depth + 1, s.under.ahead[1:], above=s.under), s.under.state)
            for s in steps
        ]

    def logits(self, guesses: Sequence[Guess]) -> Tensor:
        logits = super().logits(guesses)
        hints = [guess.hint for guess in guesses if guess.hint is not None]
        return logits + F.linear(torch.stack(hints), self.tensors["markov.w2"]) if hints else logits

    @torch.no_grad()
    def _hinted(self, guess: Guess, state: Tensor | None) -> Guess:
        """The guess with what the token before it says of it, given the head's state before."""
        kind = self.spec.markov
        if kind is None or not len(guess.ahead):
            return guess
        word, here = self.tensors["markov.w1"][guess.token], guess.ahead[0]
        guess.hint = word
        if kind == "gated":
            guess.hint = torch.sigmoid(self._affine("gate_proj", here, word)) * word
        elif kind == "rnn":
            state = torch.zeros_like(word) if state is None else state
            gate, new, out = self._affine("joint_proj", state, word, here).chunk(3)
            gate = torch.sigmoid(gate)
            guess.state = gate * state + (1 - gate) * torch.tanh(new)
            guess.hint = torch.tanh(out)
        return guess

    def _affine(self, name: str, *parts: Tensor) -> Tensor:
        return F.linear(torch.cat(parts), self.tensors[f"markov.{name}.weight"], self.tensors[f"markov.{name}.bias"])

    def _note(self, unread: Unread) -> None:
        """Store keys and values of new states in every layer."""
        text, states = unread
        count, shape = len(states), self.spec.shape
        context = self.normed("state_norm", self.fused(states))
        into = self.slots.where(text.slots[-count:], context.device)
        turns = self.layers.turns(range(len(text.slots) - count, len(text.slots)))
        for index, layer in enumerate(self.layers.stack):
            qkv = layer.attention.qkv(context).reshape(count, -1, shape.head_dim)[:, shape.heads :]
            keys, values = qkv[:, : shape.kv_heads], qkv[:, shape.kv_heads :]
            if layer.attention.qk_norm is not None:
                keys = rms(keys, layer.attention.qk_norm[shape.heads :], shape.norm_eps)
            self.slots.write(index, into, turn(keys, *turns).transpose(0, 1), values.transpose(0, 1))

    def _plan(self, rows: Sequence[Row], window: int | None) -> list[QuerySpan]:
        """What places of a block see: the text, or its last `window` tokens, and the block or what is before them."""
        causal = self.spec.causal or (window is not None and self.spec.causal_windows)
        seen = []
        for row in rows:
            past = len(row.slots) - row.count
            hidden = torch.zeros(row.count, len(row.slots), dtype=torch.bool)
            if window is not None:
                hidden[:, : max(0, past - window)] = True
            if causal:
                hidden[:, past:] = torch.ones(row.count, row.count, dtype=torch.bool).triu(1)
            seen.append(Row(row.first, row.count, row.slots, row.places, hidden))
        return self.layers.planner.plan(seen, None)
