"""Drafters without attention over whole texts: Medusa's heads, and the MLP speculator's small recurrence.

Head s reads the state of token t and guesses token t + 2 + s. Medusa's (arXiv 2401.10774) know nothing of the tokens
between; the speculator's (arXiv 2404.19124) take in one of them a step, as the sequential heads of Hydra
(arXiv 2402.05109) and Clover (arXiv 2405.00263) do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from torch import Tensor
from torch.nn import functional

from unspool.models.drafters.description import DrafterSpec

Tensors = Mapping[str, Tensor]
EPS = 1e-6


class ParallelHeads:
    """x ← x + SiLU(A·x + a), a few times for each head."""

    def __init__(self, spec: DrafterSpec, embedding: Tensor) -> None:
        self.spec = spec

    def places(self, width: int) -> None:
        """It guesses at every place."""

    def __call__(self, of: Tensors, tokens: Tensor, states: Tensor, depth: int, places: None) -> Iterator[Tensor]:
        """What the head reads [rows, width, dim] at each of so many steps."""
        for head in range(depth):
            x, block = states, 0
            while (weight := of.get(f"heads.{head}.{block}.weight")) is not None:
                bias = of.get(f"heads.{head}.{block}.bias")
                moved = functional.linear(x, weight.to(x), None if bias is None else bias.to(x))
                x, block = x + functional.silu(moved), block + 1
            yield x


class Recurrence:
    """s ← GELU(ln_k(P_k·s + w·E_k[x])) for every token x from the next one on; steps may share what they have."""

    def __init__(self, spec: DrafterSpec, embedding: Tensor) -> None:
        self.spec = spec

    def places(self, width: int) -> None:
        """It guesses at every place."""

    def __call__(self, of: Tensors, tokens: Tensor, states: Tensor, depth: int, places: None) -> Iterator[Tensor]:
        """What the head of a step reads [rows, width, inner]."""
        share = 0.5 ** (0.5 / (self.spec.depth or 1))
        weight = math.sqrt((1 - share**2) * self.spec.shape.dim / 2) / share
        s = states
        if self.spec.scale_input:
            s = functional.rms_norm(s.float(), s.shape[-1:], None, EPS).to(s) / math.sqrt(2)
        for step in range(depth):
            part = {name: shared(of, step, name).to(s) for name in ("embed", "proj", "norm", "shift")}
            words = functional.embedding(functional.pad(tokens[:, 1 + step :], (0, 1 + step)), part["embed"])
            s = functional.linear(s, part["proj"]) + weight * words
            s = functional.gelu(functional.rms_norm(s, s.shape[-1:], part["norm"], EPS) + part["shift"])
            yield s


def shared(of: Tensors, step: int, name: str) -> Tensor:
    """A step's tensor, or that of the first step that has one for all after it."""
    for number in (step, 1 if name == "proj" and step else 0):
        if (found := of.get(f"steps.{number}.{name}")) is not None:
            return found
    raise KeyError(f"steps.{step}.{name}")


def own_head(of: Tensors, step: int) -> Tensor | None:
    """The head of a step, where each has its own."""
    if f"heads.{step}.out" in of:
        return of[f"heads.{step}.out"]
    return shared(of, step, "out") if "steps.0.out" in of else of.get("head.weight")
