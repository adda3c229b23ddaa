"""Judge decoding: a drafted token that the target would not have said stands too, if a trained head holds it right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from ...core.asks import Verdict
from ...core.chance import Chance, Role
from ...core.claim import HEURISTIC, claims
from ...core.errors import BadRequest
from ...core.option import expect, real
from ...core.tree import ROOT
from ...core.verifier import token_by_token
from ...core.warp.warp import Scored
from .verify_trials import chained

STATE = "hidden:-1"  # what leaves the last norm of the target
TokenJudge: TypeAlias = Callable[[Tensor], Tensor]
"""From states [tokens, width] of a target that has read drafted tokens to logits: whether each of them is right."""


@claims(
    HEURISTIC,
    name="judged",
    trials=lambda rule: chained(rule(lambda states: 4 * states[:, 0] - 1)),
    paper="2501.19309",
    systems=("Judge decoding (head on self-made labels)",),
)
@token_by_token
@dataclass(frozen=True)
class Judged:
    """Go on with a drafted x if it is what plain decoding draws, or if σ(w·h_x + b) exceeds `threshold`.

    h_x is the target's state once it has read x, from the forward that scores the draft: a model that has seen a token
    knows more of it than one that has to say it. Of several drafted tokens the first is judged. What warps forbid is
    never right. At a threshold of 1 nothing more stands than under sample matching.

    Claim: HEURISTIC. Where the head says yes the text is the drafter's. Cost: one product of width 1 a drafted token.
    """

    judge: TokenJudge
    threshold: float = 0.5

    @property
    def want(self) -> tuple[str, ...]:
        """The states that it looks at."""
        return (STATE,)

    def __post_init__(self) -> None:
        expect(real(self.threshold, 0, 1), "judged:threshold", self.threshold, "a probability; usual is 0.5")

    def __call__(self, scored: Scored, chance: Chance) -> Verdict:
        tree, node = scored.tree, ROOT
        while True:
            token = scored.law(node).draw(chance, scored.at(Role.PICK, node)).token
            kid = tree.child(node, token)
            if kid is None:
                kid = next(iter(tree.kids(node)), None)
                if kid is None or not self._right(scored, node, kid):
                    return Verdict(node, token)
            node = kid

    @torch.no_grad()
    def _right(self, scored: Scored, node: int, kid: int) -> bool:
        if STATE not in scored.hidden:
            raise BadRequest(
                "judged reads the states of the target, and this one tells none; use a model on the native runtime, or "
                "another verifier, such as lenient"
            )
        if scored.soft(node)[scored.tree.drawn[kid].token] <= 0 or scored.ends(kid):
            return False
        return float(self.judge(scored.hidden[STATE][kid : kid + 1].float())[0].sigmoid()) > self.threshold
