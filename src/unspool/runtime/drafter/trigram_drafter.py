"""Chimera: a layer whose keys are the target's states, asked by what the last three tokens make (arXiv 2402.15758)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..network.attention import turn
from ..network.linear import rms
from ..network.network import Row
from .cells import trigrams
from .feature_drafter import FeatureDrafter
from .guess import DraftedText, Guess, Step, Unread


class TrigramDrafter(FeatureDrafter):
    """The last token of a text and every drafted one are queries made of three tokens each, and keys of those below.

    What comes out, o, is read beside the last state h that the target has computed: W_k·[h; norm(o)], k tokens ahead.
    """

    ahead = 0  # the last token of the text has a place of its own, behind the states

    def slots_of(self, count: int) -> int:
        return count

    @torch.no_grad()
    def read(self, texts: Sequence[Unread]) -> list[Guess]:
        rows: list[Row] = []
        for text, states in texts:
            self._note(text, states)
            self.slots.drop(text.drafts)  # of a reading that failed
            text.drafts, text.depths = self.slots.take(1), [0]
            rows.append(Row(len(rows), 1, [*text.slots, *text.drafts], range(len(text.slots) + 1)))
        lines = [unread.text.tokens[-3:] for unread in texts]
        last = torch.stack([unread.states[-1] for unread in texts])
        out = self._asked(lines, rows)
        return [
            Guess(text.tokens[-1], 0, self._mixed(0, h, o), h, order=0)
            for (text, _), h, o in zip(texts, last, out, strict=True)
        ]

    @torch.no_grad()
    def grow(self, steps: Sequence[Step], slots: Sequence[int]) -> list[Guess]:
        found = [Guess(s.token, s.under.depth + 1, s.under.ahead[:0], s.under.state, above=s.under) for s in steps]
        order, rows = self._placed(steps, slots, found)
        out = self._asked([_line(steps[n].text, found[n]) for n in order], rows)
        for row, number in enumerate(order):
            guess = found[number]
            assert guess.state is not None, "all below a text have its last state"
            if guess.depth < (self.spec.depth or 0):
                guess.ahead = self._mixed(guess.depth, guess.state, out[row])
        return found

    def _mixed(self, head: int, state: Tensor, out: Tensor) -> Tensor:
        return (self.tensors[f"heads.{head}.mix.weight"] @ torch.cat([state, out]))[None]

    def _asked(self, lines: Sequence[Sequence[int]], rows: Sequence[Row]) -> Tensor:
        """What comes out for tokens that end these lines, normed; what a line is too short for is its first token."""
        words = self.embedded([x for line in lines for x in ([line[0]] * (3 - len(line)) + list(line))])
        x = trigrams(self.tensors, words.view(len(lines), -1))
        places = [place for row in rows for place in row.places[-row.count :]]
        into = self.slots.where([slot for row in rows for slot in row.slots[-row.count :]], x.device)
        plan = self.layers.planner.plan(rows, None)
        return self.normed("norm", self.layers.through(x, places, into, lambda _: plan))

    def _note(self, text: DraftedText, states: Tensor) -> None:
        """Store keys and values of new states."""
        count, shape, (layer,) = len(states), self.spec.shape, self.layers.stack
        assert layer.before_attention is not None
        context = rms(states, layer.before_attention, self.eps)
        into = self.slots.where(text.slots[-count:], context.device)
        turns = self.layers.turns(range(len(text.slots) - count, len(text.slots)))
        qkv = layer.attention.qkv(context).reshape(count, -1, shape.head_dim)[:, shape.heads :]
        keys, values = qkv[:, : shape.kv_heads], qkv[:, shape.kv_heads :]
        if layer.attention.qk_norm is not None:
            keys = rms(keys, layer.attention.qk_norm[shape.heads :], shape.norm_eps)
        self.slots.write(0, into, turn(keys, *turns).transpose(0, 1), values.transpose(0, 1))


def _line(text: DraftedText, guess: Guess) -> list[int]:
    """The last three tokens of a path below a text."""
    line, above = list[int](), guess
    while len(line) < 3 and above.above is not None:
        line.append(above.token)
        above = above.above
    return [*text.tokens[-3:], *line[::-1]][-3:]
