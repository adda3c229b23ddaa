"""Two texts that should be the same: where they part, and whether that is a near tie or a bug."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.law import chosen
from ..core.tree import NOTHING, Tree
from ..runtime.engine.contracts import Causal, ScoreRequest

Pass = Callable[[tuple[int, ...]], Tensor]  # a way to compute the logits after a text


@dataclass(frozen=True)
class Divergence:
    """The first difference of two greedy texts.

    `gap` is how far apart the two tokens' logits are; `noise` is the largest difference between any two ways of
    computing them. A gap within the noise is a near tie that rounding decides; a larger one is a bug.
    """

    position: int
    ours: int | None
    theirs: int | None
    gap: float
    noise: float

    @property
    def near_tie(self) -> bool:
        """Whether rounding explains the difference."""
        return self.gap <= 2 * self.noise  # both logits may be off, in opposite directions

    def __str__(self) -> str:
        verdict = "near tie" if self.near_tie else "NOT explained by rounding"
        return (
            f"position {self.position}: token {self.ours} against {self.theirs}; "
            f"logits {self.gap:.2e} apart, noise {self.noise:.2e}: {verdict}"
        )


def divergence(
    prompt: Sequence[int], ours: Sequence[int], theirs: Sequence[int], passes: Sequence[Pass]
) -> Divergence | None:
    """Where two greedy continuations of a prompt part; None if they are the same."""
    if tuple(ours) == tuple(theirs):
        return None
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    if at == min(len(ours), len(theirs)):  # one text goes on where the other ended: no pair of tokens to weigh
        a, b = (texts[at] if at < len(texts) else None for texts in (ours, theirs))
        return Divergence(at, a, b, gap=float("inf"), noise=0.0)
    pair = [ours[at], theirs[at]]
    seen = torch.stack([run((*prompt, *ours[:at]))[pair].double().cpu() for run in passes])
    gap = float((seen[:, 0] - seen[:, 1]).abs().min())
    noise = float((seen.max(0).values - seen.min(0).values).max())
    return Divergence(at, pair[0], pair[1], gap, noise)


def passes_of(model: Causal, block: int = 8) -> list[Pass]:
    """Three ways for one model to read a text: in one go, last token alone, and the last tokens as a drafted block."""

    def read(text: tuple[int, ...], last: int) -> Tensor:
        model.forget()
        head, tail = text[: len(text) - last], text[len(text) - last :]
        session = model.open(head)
        try:
            model.score([ScoreRequest(session, NOTHING)])
            tree = Tree.chain([chosen(token) for token in tail])
            (scores,) = model.score([ScoreRequest(session, tree)])
            return scores.law(len(tree) - 1).scores
        finally:
            session.close()

    def reader(last: int) -> Pass:
        return lambda text: read(text, min(last, len(text) - 1))

    return [reader(0), reader(1), reader(block)]
