"""A chain that ends where a trained head expects a refusal, read off the draft model's own states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ...core.asks import Score, Scores
from ...core.chance import At, Chance, Role
from ...core.claim import LAW, claims
from ...core.errors import BadRequest
from ...core.files import plain_file
from ...core.option import expect, real, whole
from ...core.tree import NOTHING, ROOT
from ...core.warp.warp import Prefix
from ...loops.drafter import Memoryless, Proposing, possible
from ...loops.speculate import Speculate
from ..verify.rejection import rejection
from .chain import DRAFT

STATE = "hidden:-1"  # what leaves the last norm of the draft model
LARGEST = 2**28  # bytes of a file that may be read as a head
Judge: TypeAlias = Callable[[Tensor], Tensor]
"""From states [tokens, width] of a draft model that has read drafted tokens to logits: whether each of them stands."""


class AcceptanceHead(nn.Module):
    """Residual layers x + SiLU(Wx + b) over a state, and one logit of it."""

    def __init__(self, width: int, blocks: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.out = nn.Linear(width, 1)

    @property
    def width(self) -> int:
        """How wide the states are that it reads."""
        return self.out.in_features

    def forward(self, states: Tensor) -> Tensor:
        """A logit for each state."""
        if states.shape[-1] != self.width:
            raise BadRequest(
                f"this head reads states of {self.width} numbers, and those of this model have "
                f"{states.shape[-1]}: train one for it with `unspool train length` or `unspool train judge`"
            )
        for block in self.blocks:
            states = states + nn.functional.silu(block(states))
        logits: Tensor = self.out(states)[..., 0]
        return logits

    def save(self, path: str | Path) -> None:
        """Write the weights to a safetensors file."""
        save_file({name: part.contiguous() for name, part in self.state_dict().items()}, path)

    @staticmethod
    def load(path: str | Path) -> AcceptanceHead:
        """The head that was saved there."""
        try:
            if plain_file(path).stat().st_size > LARGEST:
                raise ValueError("it is larger than any head")
            weights = load_file(path)
            blocks = sum(name.startswith("blocks.") and name.endswith(".weight") for name in weights)
            made = AcceptanceHead(weights["out.weight"].shape[1], blocks)
            made.load_state_dict({name: part.float() for name, part in weights.items()})
        except (OSError, KeyError, IndexError, ValueError, RuntimeError, SafetensorError) as error:
            raise BadRequest(
                f"{path} is no acceptance head ({error}); expected a file that `unspool train length` has written"
            ) from error
        return made.requires_grad_(False).eval()


@claims(
    LAW,
    name="specdecpp",
    trials=lambda rule: [
        Speculate(rule(lambda states: torch.logit(states.amax(-1).double()), 0.6, 1, 2), rejection, budget=2),
        Speculate(rule(lambda states: states[:, 0] - 0.5, 0.4, 1, 3), rejection, budget=3),
    ],
    paper="2405.19715",
    systems=("SpecDec++ (with its trained head)",),
    needs=(DRAFT,),
)
@dataclass(frozen=True)
class SpecDecPP(Memoryless):
    """Draw a chain; stop when 1 − Π a(h_i) exceeds `doubt`, a(h_i) being a head's guess that token i is accepted.

    h_i is the draft model's state once it has read token i, which the forward that would draft token i + 1 gives. The
    best stopping rule is such a threshold on the chance that something has been refused. What is judged is kept: the
    head decides only whether another token is drawn. At least `least` and at most `longest` tokens are drafted.

    Claim: LAW under rejection, whatever the head says. Cost: one forward of the draft model per drafted token and one
    more where it stops early, and the head, which is small beside a layer.
    """

    judge: Judge
    doubt: float = 0.3
    least: int = 2
    longest: int = 20

    def __post_init__(self) -> None:
        expect(real(self.doubt, 0, 1), "specdecpp:doubt", self.doubt, "a probability; usual is 0.3")
        expect(whole(self.least, 1), "specdecpp:least", self.least, "at least 1 token; usual is 2")
        expect(whole(self.longest, self.least), "specdecpp:longest", self.longest, "no fewer than `least`; usual is 20")

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        tree, node, start, stands = NOTHING, ROOT, len(prefix), 1.0
        while len(tree) < prefix.ahead(min(self.longest, budget)):
            scores: Scores = yield Score(tree, by=DRAFT, want=(STATE,))
            if node >= 0:
                stands *= self._accepted(states_of(scores)[node])
                if len(tree) >= self.least and 1 - stands > self.doubt:
                    break
            law = possible(prefix, scores.law(node))
            if law is None:
                break
            drawn = law.draw(chance, At(start + len(tree), Role.DRAFT, round=start))
            tree, node = tree.grow(drawn, node)
            prefix = prefix.then((drawn.token,))
        return tree

    @torch.no_grad()
    def _accepted(self, state: Tensor) -> float:
        return float(self.judge(state[None].float())[0].sigmoid())


def states_of(scores: Scores) -> Tensor:
    """The states of a draft model's nodes; BadRequest if it tells none."""
    if STATE not in scores.hidden:
        raise BadRequest(
            "specdecpp reads the states of its draft model, and this one tells none; use a draft model on the native "
            "runtime with the target's tokenizer, or paced:length=confident"
        )
    return scores.hidden[STATE]
