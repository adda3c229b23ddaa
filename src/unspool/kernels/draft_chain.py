"""Launches that overlap: a kernel starts while the one before it ends, and waits only where it needs its results.

Hopper's programmatic dependent launch. Every kernel lets the next one start and waits for the one before; so what a
kernel may touch before it waits is what no kernel writes, its weights; and what was there before the kernel before it
began, if that one lets it start only after its own wait, or before the last kernel of PyTorch's, which waits for all.
Long kernels let the next one start only when their sums are done: programs that wait take room, and would crowd
together where the last kernel left some.
UNSPOOL_CHAIN=0 turns it off.
"""

import os
from functools import lru_cache

import torch
import triton
import triton.language as tl

ON = os.environ.get("UNSPOOL_CHAIN") != "0"


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
