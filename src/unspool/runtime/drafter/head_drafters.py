"""Drafters without attention: Medusa's heads, and the MLP speculator's small recurrence."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from .drafter_network import DrafterNetwork
from .guess import Guess, Step, Unread

_EPS = 1e-6


class MedusaDrafter(DrafterNetwork):
    """Head k reads the state behind the last token but one, and guesses the k-th token after the last.

    head_k(h) = W_k·x_D, x_0 = h, x_d = x_{d−1} + SiLU(A_kd·x_{d−1} + a_kd), with the target's head if it has no W_k.
    """

    caches = False

    @torch.no_grad()
    def read(self, texts: Sequence[Unread]) -> list[Guess]:
        states, tensors = torch.stack([unread.states[-1] for unread in texts]), self.tensors
        outs = []
        for head in range(self.spec.depth or 0):
            x, block = states, 0
            while f"heads.{head}.{block}.weight" in tensors:
                at = f"heads.{head}.{block}"
                x = x + F.silu(F.linear(x, tensors[f"{at}.weight"], tensors.get(f"{at}.bias")))
                block += 1
            outs.append(x)
        return [Guess(text.tokens[-1], 0, out) for (text, _), out in zip(texts, torch.stack(outs, 1), strict=True)]

    def grow(self, steps: Sequence[Step], slots: Sequence[int]) -> list[Guess]:
        return [Guess(s.token, s.under.depth + 1, s.under.ahead[1:], above=s.under) for s in steps]

    def logits(self, guesses: Sequence[Guess]) -> Tensor:
        if "heads.0.out" not in self.tensors:
            return super().logits(guesses)
        return torch.cat([F.linear(guess.ahead[:1], self.tensors[f"heads.{guess.depth}.out"]) for guess in guesses])


class MLPSpeculator(DrafterNetwork):
    """s ← GELU(ln_k(P_k·s + w·E_k[x])) for every token x, from the last known one on; step k's head reads s."""

    caches = False

    @torch.no_grad()
    def read(self, texts: Sequence[Unread]) -> list[Guess]:
        states = torch.stack([unread.states[-1] for unread in texts])
        if self.spec.scale_input:
            states = F.rms_norm(states, states.shape[-1:], None, _EPS) / math.sqrt(2)
        tokens = [unread.text.tokens[-1] for unread in texts]
        found = self._step(states, tokens, 0)
        return [Guess(token, 0, s[None], s) for token, s in zip(tokens, found, strict=True)]

    @torch.no_grad()
    def grow(self, steps: Sequence[Step], slots: Sequence[int]) -> list[Guess]:
        guesses = []
        for step in steps:
            depth, state = step.under.depth + 1, step.under.state
            if depth >= (self.spec.depth or 0) or state is None:
                guesses.append(Guess(step.token, depth, step.under.ahead[:0], above=step.under))
                continue
            (s,) = self._step(state[None], [step.token], depth)
            guesses.append(Guess(step.token, depth, s[None], s, above=step.under))
        return guesses

    def logits(self, guesses: Sequence[Guess]) -> Tensor:
        return torch.cat([F.linear(guess.ahead[:1], self.tensors[f"steps.{guess.depth}.out"]) for guess in guesses])

    def _step(self, states: Tensor, tokens: Sequence[int], step: int) -> Tensor:
        part = {name: self.tensors[f"steps.{step}.{name}"] for name in ("embed", "proj", "norm", "shift")}
        share = 0.5 ** (0.5 / (self.spec.depth or 1))  # of a step's variance that is the state's
        weight = math.sqrt((1 - share**2) * self.spec.shape.dim / 2) / share
        words = F.embedding(torch.tensor(tokens, device=states.device), part["embed"])
        s = F.linear(states, part["proj"]) + weight * words
        return F.gelu(F.rms_norm(s, s.shape[-1:], part["norm"], _EPS) + part["shift"])
