"""The few best tokens of every row of scores, best first."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait

CHUNK, WARP = 4096, 512  # scores per program, and of one warp
FEW = 8  # tokens up to which a program has one warp, whose maxima wait for no other
MOST = 32  # tokens that can be asked for; each costs a round

# A score and its token make one whole number that orders as they do: above, the bits of the score, those of negative
# ones turned round; below, the token, turned round as well, for of equals the lower is better. NaN is below −∞, and
# what is not there is below everything.


@triton.jit
def _select(
    scores, found, sums, vocab, chunks, stride,
    k: tl.constexpr, block: tl.constexpr, weighed: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    row, chunk = tl.program_id(0), tl.program_id(1)
    x = chunk * block + tl.arange(0, block)
    score = tl.load(scores + row.to(tl.int64) * stride + x, mask=x < vocab, other=0.0).to(tl.float32)
    score = tl.where(score == 0.0, 0.0, score)  # −0 equals 0, but its bits do not
    bits = score.to(tl.int32, bitcast=True)
    order = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    order = tl.where(score == score, order, -0x80000000).to(tl.int64)
    keys = (order << 32) | (0x7FFFFFFF - x).to(tl.int64)
    keys = tl.where(x < vocab, keys, -0x8000000000000000)
    if weighed:
        score = tl.where(x < vocab, score, float("-inf"))
        most = tl.max(score, 0)
        base = tl.where(most == float("-inf"), 0.0, most)
        tl.store(sums + 2 * (row * chunks + chunk), base)
        tl.store(sums + 2 * (row * chunks + chunk) + 1, tl.sum(tl.exp(score - base), 0))
    for i in tl.static_range(k):
        best = tl.max(keys, 0)
        tl.store(found + (row * chunks + chunk) * k + i, best)
        keys = tl.where(keys < best, keys, -0x8000000000000000)  # no two are equal: what is below is all that is left


@triton.jit
def _merge(
    found, sums, values, tokens, held, chunks,
    k: tl.constexpr, lanes: tl.constexpr, parts: tl.constexpr, weighed: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    row = tl.program_id(0)
    lane = tl.arange(0, lanes)
    keys = tl.load(found + row * held + lane, mask=lane < held, other=-0x8000000000000000)
    total = tl.full([], 0.0, tl.float32)
    if weighed:
        part = tl.arange(0, parts)
        base = tl.load(sums + 2 * (row * chunks + part), mask=part < chunks, other=float("-inf"))
        most = tl.max(base, 0)
        weight = tl.load(sums + 2 * (row * chunks + part) + 1, mask=part < chunks, other=0.0)
        total = most + tl.log(tl.sum(weight * tl.exp(base - most), 0))
    for i in tl.static_range(k):
        best = tl.max(keys, 0)
        order = (best >> 32).to(tl.int32)
        bits = tl.where(order < 0, order ^ 0x7FFFFFFF, order)
        tl.store(values + row * k + i, bits.to(tl.float32, bitcast=True) - total)
        tl.store(tokens + row * k + i, 0x7FFFFFFF - (best & 0x7FFFFFFF).to(tl.int32))
        keys = tl.where(keys < best, keys, -0x8000000000000000)


def top(
    logits: Tensor, k: int, out: tuple[Tensor, Tensor] | None = None, weighed: bool = False
) -> tuple[Tensor, Tensor]:
    """The k ≤ 32 largest logits of each row [n, vocab]: values [n, k], float32, and tokens [n, k], int32; best first.

    Of equal ones the lower token comes first. −∞ counts as a score; NaN comes only where nothing else is left. If the
    vocabulary has fewer than k tokens, all of them come. If they are `weighed`, values are log-probabilities, NaN where
    some score is. Both are put into `out` where that is given.
    Cost: logits once; two launches, k rounds of one maximum in each.
    """
    n, vocab = logits.shape
    k = min(k, vocab)
    if not 1 <= k <= MOST:
        raise ValueError(f"k is {k}; expected 1 to {MOST} tokens. For more, sort: torch.topk.")
    chunk = WARP if k <= FEW else CHUNK
    chunks, block = triton.cdiv(vocab, chunk), min(chunk, triton.next_power_of_2(vocab))
    found = torch.empty(n, chunks * k, dtype=torch.int64, device=logits.device)
    values, tokens = out or (
        torch.empty(n, k, dtype=torch.float32, device=logits.device),
        torch.empty(n, k, dtype=torch.int32, device=logits.device),
    )
    sums = torch.empty(n, chunks, 2, dtype=torch.float32, device=logits.device) if weighed else values
    chain = chained()
    _select[(n, chunks)](
        logits, found, sums, vocab, chunks, logits.stride(0), k=k, block=block, weighed=weighed,
        num_warps=max(1, min(8, block // WARP)), chained=chain, launch_pdl=chain,
    )  # fmt: skip
    lanes = max(16, triton.next_power_of_2(chunks * k))
    _merge[(n,)](
        found, sums, values, tokens, chunks * k, chunks, k=k, lanes=lanes, parts=triton.next_power_of_2(chunks),
        weighed=weighed, num_warps=max(1, min(8, lanes // 256)), chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return values, tokens


def reference(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The same, by a stable sort."""
    scores = logits.float()
    _, order = torch.where(scores.isnan(), -torch.inf, scores).sort(dim=1, descending=True, stable=True)
    broken = scores.isnan().gather(1, order)
    last = broken.int().argsort(dim=1, stable=True)[:, :k]  # NaN behind −∞
    tokens = order.gather(1, last)
    return scores.gather(1, tokens), tokens.int()
