"""A step that was recorded as CUDA graphs, and the stream on which it is tried before."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor


class CapturedStep(NamedTuple):
    """A captured step and the tensors that hold its outputs; logits are kept in a buffer that all graphs share."""

    graphs: tuple[torch.cuda.CUDAGraph, ...]  # the whole step, or the forward and what is decided with masks
    verdicts: Tensor
    best: Tensor
    hidden: dict[int, Tensor]
    ahead: Tensor


@lru_cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream on which steps are run before they are captured; they share its memory."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
