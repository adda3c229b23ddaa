"""A small net that has learnt from the certainties of a block which of its tokens are final."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ...core.canvas import Canvas
from ...core.claim import HEURISTIC, Method, claims
from ...core.errors import BadRequest
from ...core.files import plain_file
from ...core.option import expect, level, whole
from ...loops.denoise import Denoise
from ...loops.denoise_state import DenoiseState
from .certainty import confidence, foremost

Judging: TypeAlias = Callable[[Tensor], Tensor]
"""From the certainties of a block, 1 where it is filled, to a logit for each place: whether its token is final."""


class Filter(nn.Module):
    """Two layers, from the certainties of a block of `size` places to as many logits."""

    def __init__(self, size: int = 32, width: int = 32) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(size, width), nn.Linear(width, size)

    @property
    def size(self) -> int:
        """The places of a block."""
        return self.first.in_features

    def forward(self, sure: Tensor) -> Tensor:
        """A logit for each place."""
        logits: Tensor = self.second(self.first(sure).relu())
        return logits

    def save(self, path: str | Path) -> None:
        """Write the weights to a safetensors file."""
        save_file(self.state_dict(), path)

    @staticmethod
    def load(path: str | Path) -> Filter:
        """The filter that was saved there."""
        try:
            weights = load_file(plain_file(path))
            width, size = weights["first.weight"].shape
            made = Filter(size, width)
            made.load_state_dict(weights)
        except (OSError, KeyError, ValueError, RuntimeError, SafetensorError) as error:
            raise BadRequest(f"{path} is no filter ({error}); expected a file that Filter.save has written") from error
        return made


def _trials(rule: type[Filtered]) -> list[Method]:
    return [Denoise(rule(torch.logit, 3, 0.6), 3)]


@claims(HEURISTIC, shaped=False, trials=_trials, paper="2509.25188", systems=("Learn2PD (filter)",))
@dataclass(frozen=True)
class Filtered:
    """Fill every hole whose token a small net calls final, σ(f(c))ᵢ > `threshold`, and the surest in any case.

    c are the certainties max p of the `size` places of the block. The paper feeds the model's certainty at filled
    places too; here it is 1 there, in training as in decoding, since these are not looked at.

    Claim: HEURISTIC; a threshold from 1 on fills one at a time and is exact, and σ(f(c)) = c is the threshold rule. It
    loses on texts unlike those it was trained on, and knows one block size only. Cost: one look per group; the net
    itself is nothing beside it.
    """

    net: Judging
    size: int = 32
    threshold: float = 0.9

    def __post_init__(self) -> None:
        expect(level(self.threshold), "filtered:threshold", self.threshold, "a number; usual is 0.9")
        expect(whole(self.size, 1), "filtered:size", self.size, "a block of at least 1")

    @torch.no_grad()
    def __call__(self, state: DenoiseState) -> Collection[int]:
        low = state.canvas.window[0]
        sure = torch.tensor(certainties(state.canvas, {i: state.peak(i).p for i in state.holes}, self.size))
        final = self.net(sure).sigmoid().tolist()
        passed = [i for i in state.holes if final[i - low] > self.threshold]
        return sorted({*passed, *foremost(state, confidence, 1)})


def certainties(canvas: Canvas, sure: dict[int, float], size: int) -> list[float]:
    """The certainty of every place of the window, 1 where it is filled and behind the end of the canvas."""
    low, high = canvas.window
    if high - low > size:
        raise BadRequest(f"this filter knows blocks of {size} places, and this one has {high - low}: use Fixed({size})")
    return [sure.get(low + n, 1.0) for n in range(size)]
