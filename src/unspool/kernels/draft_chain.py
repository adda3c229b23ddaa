"""Launches that overlap: a kernel starts while the one before it ends, and waits only where it needs its results.

Hopper's programmatic dependent launch. Every kernel lets the next one start and waits for the one before; so what a
kernel may touch before it waits is what no kernel writes, its weights. Long kernels let the next one start only when
their sums are done: programs that wait take room, and would crowd together where the last kernel left some.
UNSPOOL_CHAIN=0 turns it off.
"""

import os
from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

FETCHERS = 512  # programs of a small kernel that only fetch what comes, if there is something
ON = os.environ.get("UNSPOOL_CHAIN") != "0"


class Ahead(NamedTuple):
    """Weights that a later kernel reads and this one has fetched: `lines` of 128 bytes from `first` on.

    If there is a `jump`, half of them are so many lines further on.
    """

    weights: Tensor
    first: int
    lines: int
    jump: int = 0


def chained() -> bool:
    """Whether launches overlap; measured to help from one token to a batch of many."""
    return ON and _capable()


@lru_cache
def _capable() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)


@triton.jit
def start(chained: tl.constexpr):
    """Let the next kernel start."""
    if chained:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait(chained: tl.constexpr):
    """Wait until all that the kernels before have written is there."""
    if chained:
        tl.extra.cuda.gdc_wait()


@triton.jit
def fetch(pointers):
    """Bring the lines at these addresses into the cache, without waiting for them."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [pointers], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def fetch_share(weights, first, lines, jump, program, programs, threads: tl.constexpr):
    """Bring a program's share of `lines` of 128 bytes of weights, from `first` on, into the cache.

    If there is a `jump`, half of them are so many lines further on: those of the other half of a gated matrix.
    """
    half = tl.where(jump > 0, lines // 2, lines)
    for begin in range(program * threads, lines, programs * threads):
        line = tl.minimum(begin + tl.arange(0, threads), lines - 1)
        line = first + tl.where(line < half, line, line - half + jump)
        fetch(weights + line.to(tl.int64) * (1024 // weights.dtype.element_ty.primitive_bitwidth))
