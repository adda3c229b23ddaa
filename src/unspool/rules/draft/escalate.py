"""Several draft models, the smallest first: where one is not sure of a token, the next larger one is asked for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ...core.asks import Score, Scores
from ...core.chance import At, Chance, Role
from ...core.claim import LAW, SEED, claims
from ...core.law import Drawn, Law, chosen
from ...core.option import expect, real, whole
from ...core.tree import NOTHING, ROOT
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing, possible
from ...loops.speculate import Speculate
from ..verify.rejection import rejection
from .cascade import SMALL
from .chain import DRAFT

Write: TypeAlias = Callable[[Law, At], Drawn]


@claims(
    LAW,
    trials=lambda _: [
        Speculate(Escalate(0.6, 1), rejection, budget=1),
        Speculate(Escalate(0.6, 2), rejection, budget=2),
    ],
    paper="2407.01955",
    systems=("S2D (sorted exits, or a cascade of models)",),
    needs=(DRAFT, SMALL),
)
@dataclass(frozen=True)
class Escalate(Memoryless):
    """Draw each token from the first of `models` whose most probable one has at least `sure`, else from the last.

    q is the law that finally gave the token. Whether to ask the next model is decided by a model's law before anything
    is drawn from it: to draw, dislike the token and draw again elsewhere would bias it. The law that is judged is the
    model's own, before warps, since greedy decoding would make every model sure. In the paper the models are sorted
    exits of one trained network; exits of one network share their work here too (`--draft layers:20 --small
    layers:12`), other models have caches of their own. The threshold, which we could not find, is ours.

    Claim: LAW under rejection. Cost: a forward of the small model per token, and one of each larger model that is
    asked; a model that was passed over catches up with all tokens since in one forward.
    """

    sure: float = 0.6
    depth: int = 6
    models: tuple[str, ...] = (SMALL, DRAFT)

    def __post_init__(self) -> None:
        _check("escalate", self.sure, self.depth, self.models)

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:

        def draw(law: Law, at: At) -> Drawn:
            return law.draw(chance, at)

        return (yield from escalated(prefix, min(self.depth, budget), self.sure, self.models, draw))


@claims(
    SEED,
    trials=lambda _: [Speculate(Surest(0.6, 2), budget=2)],
    paper="2407.01955",
    systems=("S2D (greedy drafts)",),
    needs=(DRAFT, SMALL),
)
@dataclass(frozen=True)
class Surest(Memoryless):
    """Write the most probable token of the first of `models` that gives it at least `sure`, else that of the last.

    As `escalate`, but with chosen tokens, whose laws are point masses: best near greedy decoding.

    Claim: SEED under sample matching. Cost: as `escalate`.
    """

    sure: float = 0.6
    depth: int = 6
    models: tuple[str, ...] = (SMALL, DRAFT)

    def __post_init__(self) -> None:
        _check("surest", self.sure, self.depth, self.models)

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        def choose(law: Law, at: At) -> Drawn:
            return chosen(law.best)

        return (yield from escalated(prefix, min(self.depth, budget), self.sure, self.models, choose))


def escalated(prefix: Prefix, depth: int, sure: float, models: tuple[str, ...], write: Write) -> Proposing:
    """A chain in which each token is written by the first model that is sure enough, or by the last one."""
    tree, node, start = NOTHING, ROOT, len(prefix)
    for i in range(prefix.ahead(depth)):
        law: Law | None = None
        for model in models:
            scores: Scores = yield Score(tree, by=model)
            raw = scores.law(node)
            found = possible(prefix, raw)
            if found is not None:
                law = found  # a model that has nothing to say leaves it to the one before
                if raw[raw.best] >= sure:
                    break
        if law is None:
            break
        drawn = write(law, At(start + i, Role.DRAFT, round=start))
        tree, node = tree.grow(drawn, node)
        prefix = prefix.then((drawn.token,))
    return tree


def _check(name: str, sure: float, depth: int, models: tuple[str, ...]) -> None:
    expect(real(sure, 0, 1), f"{name}:sure", sure, "a probability; usual is 0.6")
    expect(whole(depth, 1), f"{name}:depth", depth, "a whole number of tokens from 1 on")
    expect(len(models) > 0, f"{name}:models", models, "at least one model, the smallest first")
