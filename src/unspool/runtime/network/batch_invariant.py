"""Fixed shapes: a token's numbers depend on its text and on nothing else, bit for bit.

Which kernel computes a product, and in which order it sums, depends on how many rows there are; so a drafted tree and
plain decoding differ in the last bit, and where two tokens are nearly tied, in the text. With fixed shapes every matrix
is applied to the same number of rows, filled up with zeros, and every token gathers its keys alone, in the order of the
text. Plain and speculative decoding, a batch and a request alone, a warm cache and a cold one then agree exactly.

What is here runs on PyTorch's own kernels, with a launch per operation;
`runtime.cuda.batch_invariant_fused` does the same on fused ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ...core.asks import Look, Scores
from ...core.canvas import Canvas
from ...core.errors import BadRequest
from ...core.law import Law, chosen
from ...core.tree import NOTHING, ROOT, Tree
from ..cache.kv_pool import Where
from ..engine.contracts import Causal, Infill, LookRequest, ScoreRequest
from .attention import Planner, QuerySpan, SlidingWindow
from .linear import Linear, MakeLinear
from .network import Row

ROWS = 8


@dataclass(frozen=True)
class FixedRowsLinear:
    """A matrix that is always applied to `rows` rows."""

    linear: Linear
    rows: int

    def __call__(self, x: Tensor) -> Tensor:
        count = x.shape[0]
        whole = F.pad(x, (0, 0, 0, -count % self.rows))
        chunks = [self.linear(whole[at : at + self.rows]) for at in range(0, whole.shape[0], self.rows)]
        return torch.cat(chunks)[:count]


def padded(make: MakeLinear, rows: int) -> MakeLinear:
    """Make matrices as `make` does, for so many rows at a time."""
    return lambda weight, bias: FixedRowsLinear(make(weight, bias), rows)


@dataclass(frozen=True)
class PerTokenPlanner(Planner):
    """Every token gathers its keys alone."""

    alone: ClassVar = True

    def _row(self, row: Row, sliding: SlidingWindow | None) -> Iterator[QuerySpan]:
        past = len(row.slots) - row.count
        for number in range(row.count):
            if row.hidden_from is None:
                seen: Sequence[int] = range(past + number + 1)
            else:
                seen = (~row.hidden_from[number]).nonzero()[:, 0].tolist()
            if sliding is not None:
                first = sliding.first(row.places[past + number])
                seen = [key for key in seen if row.places[key] >= first]
            slots = [row.slots[key] for key in seen]
            yield QuerySpan(row.first + number, 1, self._where(slots))

    def _where(self, slots: list[int]) -> Where:
        """On a GPU always by number, so that keys lie the same way in memory whichever slots they have."""
        if self.device.type == "cpu":
            return self.slots.where(slots, self.device)
        return torch.tensor(slots, device=self.device)


def check(model: Causal) -> None:
    """Read a short text in different ways and refuse a machine on which the bits differ."""
    text = [(7 * i + 3) % model.vocab for i in range(19)]
    once = _laws(model, text[:1], [text[1:]])
    tree = Tree(tuple(chosen(x) for x in (*text[1:4], *text[5:8])), (ROOT, 0, 1, ROOT, 3, 4))
    steps = _laws(model, text[:1], [[x] for x in text[1:]])
    session = model.open(text[:1])
    scores = model.score([ScoreRequest(session, tree)])[0]
    session.close()
    model.forget()
    branch = [scores.leaf[0], *scores.after[:3]]
    _refuse(all(_same(a, b) for a, b in zip((*once, *branch), (*steps, *steps), strict=False)))


def check_looks(model: Infill) -> None:
    """Look at canvases alone and together and refuse a machine on which the bits differ."""
    text = [(7 * i + 3) % model.vocab for i in range(19)]
    looks = [LookRequest(None, Look(Canvas.blank(text[:size], 5).fill({size + 2: text[1]}))) for size in (2, 19, 7)]
    alone = [model.look([look])[0] for look in looks]
    _refuse(all(torch.equal(a.scores, b.scores) for a, b in zip(alone, model.look(looks), strict=True)))


def _refuse(kept: bool) -> None:
    if not kept:
        raise BadRequest(
            "batch_invariant cannot be kept here: this machine's kernels give a row other bits beside other rows. "
            "Load without it, and judge near ties by `unspool.divergence`."
        )


def _laws(model: Causal, start: list[int], chunks: list[list[int]]) -> list[Law]:
    """The law after every token, the rest being drafted chunk by chunk."""
    session, laws = model.open(start), list[Law]()
    for chunk in chunks:
        tree = Tree.chain([chosen(x) for x in chunk])
        scores: Scores = model.score([ScoreRequest(session, tree)])[0]
        laws += [scores.leaf[0], *scores.after[:-1]]
        session.keep(tree, (len(tree) - 1,), (None,))
    laws.append(model.score([ScoreRequest(session, NOTHING)])[0].leaf[0])
    session.close()
    model.forget()
    return laws


def _same(a: Law, b: Law) -> bool:
    return torch.equal(a.scores, b.scores)
