"""The likeliest scores of every node by themselves: what truncations keep lies among them nearly always.

Scores stand in groups of a few neighbours. The groups with the highest maxima are copied side by side, and every score
above the best one that was left behind (`floor`) is then among them; what a truncation has to know of the others is how
much they weigh.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait

GROUP, MOST = 32, 256  # scores of a group, and groups that are copied
CHUNK = 2048  # scores per program that looks through them
EACH, AT_ONCE = 32, 512  # groups per program that copies them, and with how many others it compares them at a time


class Likely(NamedTuple):
    """Of every node: the copied scores, the floor, and of each chunk its highest score, Z and Σw·d below that."""

    near: Tensor  # [n, up to GROUP · MOST], float32
    floor: Tensor  # [n], written where there are more than MOST groups
    tops: Tensor  # [n, chunks]
    masses: Tensor  # [n, chunks, 2], float64


@triton.jit
def _survey(
    scores, temperature, tops, masses, maxima, tokens, vocab, chunks, groups, stride,
    group: tl.constexpr, block: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """Of one chunk: the highest score, Z = Σw and Σw·d with w = e^d and d = (s − highest) / t, and groups' maxima."""
    start(chained)
    wait(chained)
    node, chunk = tl.program_id(0), tl.program_id(1)
    t = tl.load(temperature + node // tokens)
    x = chunk * block + tl.arange(0, block)
    s = tl.load(scores + node.to(tl.int64) * stride + x, mask=x < vocab, other=float("-inf")).to(tl.float32)
    top = tl.max(s, 0)
    warm, there = 1.0 / tl.where(t > 0, t, 1.0), s > float("-inf")
    d = tl.where(there, s - tl.where(top > float("-inf"), top, 0.0), 0.0) * warm
    w = tl.where(there, tl.exp(d), 0.0).to(tl.float64)
    at = node * chunks + chunk
    tl.store(tops + at, top)
    tl.store(masses + 2 * at, tl.sum(w, 0))
    tl.store(masses + 2 * at + 1, tl.sum(w * d.to(tl.float64), 0))
    own = chunk * (block // group) + tl.arange(0, block // group)
    best = tl.max(tl.reshape(s, [block // group, group]), 1)
    tl.store(maxima + node * groups + own, best, mask=own < groups)


@triton.jit
def _gather(
    scores, maxima, near, floor, vocab, groups, stride,
    group: tl.constexpr, most: tl.constexpr, each: tl.constexpr, at_once: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """Copy those of some groups that are among the first, each to its place in the order of all maxima."""
    start(chained)
    wait(chained)
    node = tl.program_id(0)
    own = tl.program_id(1) * each + tl.arange(0, each)
    best = tl.load(maxima + node * groups + own, mask=own < groups, other=float("-inf"))
    rank = tl.zeros([each], tl.int32)
    for first in range(0, groups, at_once):
        other = first + tl.arange(0, at_once)
        rival = tl.load(maxima + node * groups + other, mask=other < groups, other=float("-inf"))[None, :]
        ahead = (rival > best[:, None]) | ((rival == best[:, None]) & (other[None, :] < own[:, None]))
        rank += tl.sum(ahead.to(tl.int32), 1)
    x = own[:, None] * group + tl.arange(0, group)[None, :]
    s = tl.load(scores + node.to(tl.int64) * stride + x, mask=x < vocab, other=float("-inf")).to(tl.float32)
    place = node.to(tl.int64) * tl.minimum(groups, most) * group + rank[:, None] * group + tl.arange(0, group)[None, :]
    tl.store(near + place, s, mask=((rank < most) & (own < groups))[:, None])
    tl.store(floor + node + tl.zeros_like(own), best, mask=(rank == most) & (own < groups))


def likely(scores: Tensor, temperature: Tensor) -> Likely:
    """The likeliest of scores [n, vocab], n = R·T, at temperatures [R]. Cost: two launches."""
    n, vocab = scores.shape
    chunks, groups, chain = triton.cdiv(vocab, CHUNK), triton.cdiv(vocab, GROUP), chained()
    tops, maxima = (torch.empty(n, size, dtype=torch.float32, device=scores.device) for size in (chunks, groups))
    masses = torch.empty(n, chunks, 2, dtype=torch.float64, device=scores.device)
    near = torch.empty(n, min(groups, MOST) * GROUP, dtype=torch.float32, device=scores.device)
    floor = torch.empty(n, dtype=torch.float32, device=scores.device)
    block = min(CHUNK, triton.next_power_of_2(groups * GROUP))
    _survey[(n, chunks)](
        scores, temperature, tops, masses, maxima, n // temperature.shape[0], vocab, chunks, groups, scores.stride(0),
        group=GROUP, block=block, num_warps=max(1, block // 512), chained=chain, launch_pdl=chain,
    )  # fmt: skip
    _gather[(n, triton.cdiv(groups, EACH))](
        scores, maxima, near, floor, vocab, groups, scores.stride(0),
        group=GROUP, most=MOST, each=EACH, at_once=AT_ONCE, num_warps=8, chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return Likely(near, floor, tops, masses)
