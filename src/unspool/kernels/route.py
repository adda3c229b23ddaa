"""Which experts a token is sent to, decided on the device: scores, the best of them, and pairs sorted by expert."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .norm import scaled, squares

FEW = 64  # tokens up to which every one has programs of its own
TOGETHER = 16  # tokens of a program otherwise
BLOCK, STEP = 4, 4096  # experts of a program, and numbers of a token at a time
PIECE = 64  # pairs that are compared at a time


@triton.jit
def _score(
    x, norm, weight, bias, out, kept, n, count, depth, eps,
    together: tl.constexpr, block: tl.constexpr, step: tl.constexpr, whole: tl.constexpr, normed: tl.constexpr,
    has_bias: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """Products lane by lane and then across lanes: a token's bits do not depend on how many tokens there are."""
    expert = tl.program_id(0) * block + tl.arange(0, block)
    inside = expert < count
    lane = tl.arange(0, step)
    line = weight + expert.to(tl.int64)[:, None] * depth + lane[None, :]
    w = tl.zeros([block, step], weight.dtype.element_ty)
    if whole:  # all weights are on their way while the kernel before ends
        w = tl.load(line, mask=inside[:, None] & (lane < depth)[None, :], other=0.0)
    start(chained)
    wait(chained)
    first = tl.program_id(1) * together
    for i in range(tl.minimum(together, n - first)):
        token = (first + i).to(tl.int64)
        square = tl.zeros([step], tl.float64)
        if normed:
            for at in range(0, depth, step):
                square += squares(tl.load(x + token * depth + at + lane, mask=at + lane < depth, other=0.0))
        size = tl.sum(square, 0)
        y = tl.zeros([block, step], tl.float32)
        for at in range(0, depth, step):
            here = at + lane < depth
            part = tl.load(x + token * depth + at + lane, mask=here, other=0.0)
            if normed:
                factor = tl.load(norm + at + lane, mask=here, other=0.0).to(tl.float32)
                part = scaled(part, size, factor, depth, eps)
                if tl.program_id(0) == 0:
                    tl.store(kept + token * depth + at + lane, part, mask=here)
            if not whole:
                w = tl.load(line + at, mask=inside[:, None] & here[None, :], other=0.0)
            y += w.to(tl.float32) * part.to(tl.float32)[None, :]
        g = tl.sum(y, 1)
        if has_bias:
            g += tl.load(bias + expert, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + token * count + expert, g, mask=inside)


@triton.jit
def _choose(
    scores, bias, chosen, weights, count, scale,
    active: tl.constexpr, slots: tl.constexpr, lanes: tl.constexpr,
    softmax: tl.constexpr, normed: tl.constexpr, biased: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    token = tl.program_id(0)
    expert, slot = tl.arange(0, lanes), tl.arange(0, slots)
    real = expert < count
    s = tl.load(scores + token * count + expert, mask=real, other=float("-inf")).to(tl.float64)
    if softmax:
        s = tl.exp(s - tl.max(s, 0))
        s = s / tl.sum(s, 0)
    else:
        s = 1.0 / (1.0 + tl.exp(-s))
    judged = s
    if biased:
        judged += tl.load(bias + expert, mask=real, other=0.0).to(tl.float64)
    judged = tl.where(judged == judged, judged, float("-inf"))  # NaN is equal to nothing
    # As whole numbers of the same order, whose last bits say which expert it is: no two are equal, the first is larger.
    key = judged.to(tl.int64, bitcast=True)
    key = ((key ^ ((key >> 63) & 0x7FFFFFFFFFFFFFFF)) & -lanes) | (lanes - 1 - expert)
    key = tl.where(real, key, -0x8000000000000000)
    picked = tl.zeros([slots], tl.int32)
    for k in tl.static_range(active):
        at = lanes - 1 - (tl.max(key, 0) & (lanes - 1)).to(tl.int32)
        picked = tl.where(slot == k, at, picked)
        key = tl.where(expert == at, -0x8000000000000000, key)
    own = (expert[None, :] == picked[:, None]) & (slot < active)[:, None]
    weight = tl.sum(tl.where(own, s[None, :], 0.0), 1)
    if normed:
        weight = weight / tl.sum(weight, 0)
    tl.store(chosen + token * active + slot, picked, mask=slot < active)
    tl.store(weights + token * active + slot, (weight * scale).to(tl.float32), mask=slot < active)


@triton.jit
def _arrange(
    chosen, order, ends, pairs, count,
    piece: tl.constexpr, lanes: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """Every pair's place among all: behind those of earlier experts and the earlier ones of its own; last, the ends."""
    start(chained)
    wait(chained)
    if tl.program_id(0) == tl.num_programs(0) - 1:
        expert = tl.arange(0, lanes)
        upto = tl.zeros([lanes], tl.int32)
        for at in range(0, pairs, piece):
            other = at + tl.arange(0, piece)
            theirs = tl.load(chosen + other, mask=other < pairs, other=lanes)
            upto += tl.sum((theirs[None, :] <= expert[:, None]).to(tl.int32), 1)
        tl.store(ends + expert, upto, mask=expert < count)
    else:
        pair = tl.program_id(0) * piece + tl.arange(0, piece)
        own = tl.load(chosen + pair, mask=pair < pairs, other=lanes)
        place = tl.zeros([piece], tl.int32)
        for at in range(0, pairs, piece):
            other = at + tl.arange(0, piece)
            theirs = tl.load(chosen + other, mask=other < pairs, other=lanes + 1)
            same = (theirs[None, :] == own[:, None]) & (other[None, :] < pair[:, None])
            place += tl.sum(((theirs[None, :] < own[:, None]) | same).to(tl.int32), 1)
        tl.store(order + place, pair, mask=pair < pairs)


def scores(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x·Wᵀ + b [n, experts] in float32, of tokens in any type: a token's bits are the same in whatever number of them.

    Cost: one launch; W from the cache once for every token or every few.
    """
    return _scores(x, None, 0.0, weight, bias)[0]


def normed_scores(
    x: Tensor, norm: Tensor, eps: float, weight: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """rms(x, norm, eps), and the scores of that; in one launch."""
    found, kept = _scores(x, norm, eps, weight, bias)
    return kept, found


def _scores(x: Tensor, norm: Tensor | None, eps: float, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    (n, depth), count = x.shape, weight.shape[0]
    out = torch.empty(n, count, dtype=torch.float32, device=x.device)
    kept = x if norm is None else torch.empty_like(x)
    chain, together, step = chained(), 1 if n <= FEW else TOGETHER, min(STEP, triton.next_power_of_2(depth))
    _score[(triton.cdiv(count, BLOCK), triton.cdiv(n, together))](
        x, x if norm is None else norm, weight, out if bias is None else bias, out, kept, n, count, depth, eps,
        together=together, block=BLOCK, step=step, whole=step >= depth, normed=norm is not None,
        has_bias=bias is not None, num_warps=8 if step > 2048 else 4, chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return out, kept


def choose(
    scores: Tensor, active: int, bias: Tensor | None, softmax: bool, normed: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """The experts of each token (int32) and their weights (float32), both [n, active], of its scores [n, experts].

    s is the softmax of the scores, or the sigmoid of each, in float64. Those with the largest s + bias are chosen, the
    first of equals; their weights are s, divided by their sum if `normed`, times `scale`. Cost: one launch.
    """
    n, count = scores.shape
    chosen = torch.empty(n, active, dtype=torch.int32, device=scores.device)
    weights = torch.empty(n, active, dtype=torch.float32, device=scores.device)
    chain = chained()
    _choose[(n,)](
        scores, scores if bias is None else bias, chosen, weights, count, scale,
        active=active, slots=triton.next_power_of_2(active), lanes=triton.next_power_of_2(count),
        softmax=softmax, normed=normed, biased=bias is not None, num_warps=1, chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return chosen, weights


def arrange(chosen: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The pairs of tokens and experts in the order of experts, and where those of each of `count` experts end; int32.

    Pair i is number i of `chosen` [n, active]. Cost: one launch; every pair is compared with all.
    """
    pairs = chosen.numel()
    order = torch.empty(pairs, dtype=torch.int32, device=chosen.device)
    ends = torch.empty(count, dtype=torch.int32, device=chosen.device)
    chain = chained()
    _arrange[(triton.cdiv(pairs, PIECE) + 1,)](
        chosen, order, ends, pairs, count,
        piece=PIECE, lanes=triton.next_power_of_2(count), num_warps=4, chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return order, ends
