"""Truncations on the device: which scores of every node stay, as the lowest and the highest of them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..core.law import Law
from ..core.warp import truncate as host
from .draft_chain import chained, start, wait

BLOCK = 16384  # scores at a time
CUTS = 7  # numbers per row: top_n_sigma, top_k, top_p, log(min_p), typical, log(epsilon), log(eta)
NONE = (-1.0, 0.0, 1.0, float("-inf"), 1.0, float("-inf"), float("-inf"))
"""The row that truncates nothing."""

# Every truncation keeps the tokens whose score lies between two others, `typical` too: its tokens are those of nearly
# the same probability. So what one leaves to the next is two numbers, and nothing is sorted, copied or written.
# Those are scores s before the temperature: y = s / t has the same order, and a division by token costs most of a pass.


@triton.jit
def _scores(line, x, low, high, vocab):
    """Scores, and which of them have stayed so far."""
    s = tl.load(line + x, mask=x < vocab, other=float("-inf")).to(tl.float32)
    return s, (s >= low) & (s <= high) & (s > float("-inf"))


@triton.jit
def _ends(line, low, high, vocab, block: tl.constexpr):
    """The lowest and the highest score that have stayed."""
    most, least = tl.full([block], float("-inf"), tl.float32), tl.full([block], float("inf"), tl.float32)
    for first in range(0, vocab, block):
        s, stays = _scores(line, first + tl.arange(0, block), low, high, vocab)
        most = tl.maximum(most, tl.where(stays, s, float("-inf")))
        least = tl.minimum(least, tl.where(stays, s, float("inf")))
    return tl.min(least, 0), tl.max(most, 0)


@triton.jit
def _above(line, t, bar, low, high, vocab, block: tl.constexpr):
    """The lowest score that has stayed and is not below the bar, which is one of y, rounded as `Law.temper` does."""
    least = tl.full([block], float("inf"), tl.float32)
    for first in range(0, vocab, block):
        s, stays = _scores(line, first + tl.arange(0, block), low, high, vocab)
        stays = stays & (tl.div_rn(s, tl.zeros_like(s) + t) >= bar)
        least = tl.minimum(least, tl.where(stays, s, float("inf")))
    return tl.min(least, 0)


@triton.jit
def _sigma(line, low, high, top, vocab, block: tl.constexpr):
    """The standard deviation of what has stayed."""
    count = tl.zeros([block], tl.int32)
    first_moment, second_moment = tl.zeros([block], tl.float64), tl.zeros([block], tl.float64)
    for first in range(0, vocab, block):
        s, stays = _scores(line, first + tl.arange(0, block), low, high, vocab)
        d = tl.where(stays, s - top, 0.0).to(tl.float64)
        count += stays.to(tl.int32)
        first_moment += d
        second_moment += d * d
    n = tl.sum(count, 0)
    mean = tl.sum(first_moment, 0) / n
    return tl.sqrt(tl.maximum(tl.sum(second_moment, 0) / n - mean * mean, 0.0))


@triton.jit
def _mass(line, warm, low, high, top, vocab, block: tl.constexpr):
    """Of what has stayed: Z = Σw and Σw·d, where w = e^d and d = y − max y."""
    z, zd = tl.zeros([block], tl.float64), tl.zeros([block], tl.float64)
    for first in range(0, vocab, block):
        s, stays = _scores(line, first + tl.arange(0, block), low, high, vocab)
        d = tl.where(stays, (s - top) * warm, 0.0)
        w = tl.where(stays, tl.exp(d), 0.0).to(tl.float64)
        z += w
        zd += w * d.to(tl.float64)
    return tl.sum(z, 0), tl.sum(zd, 0)


@triton.jit
def _rank(s, top, warm, shift, typical: tl.constexpr):
    """What tokens are taken by, highest first: their score, or how near their surprise is to the expected one."""
    if typical:
        return -tl.abs((s - top) * warm - shift)
    return s


@triton.jit
def _border(
    line, warm, low, high, top, shift, wanted, total, vocab,
    counted: tl.constexpr, typical: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """The rank of the last token needed, taking them by rank, to gather `wanted`: as many, if counted, or such mass.

    `under` always holds enough, above `over` there is never enough, and both are ranks that tokens have. What lies
    between is halved, or cut where a straight line through the logarithms of what both hold would be at `wanted`.
    """
    most, least = tl.full([block], float("-inf"), tl.float32), tl.full([block], float("inf"), tl.float32)
    for first in range(0, vocab, block):
        s, stays = _scores(line, first + tl.arange(0, block), low, high, vocab)
        r = _rank(s, top, warm, shift, typical)
        most = tl.maximum(most, tl.where(stays, r, float("-inf")))
        least = tl.minimum(least, tl.where(stays, r, float("inf")))
    under, over = tl.min(least, 0), tl.max(most, 0)
    target = tl.maximum(wanted.to(tl.float32), 1e-30)
    much, little = tl.maximum(total.to(tl.float32), target), tl.minimum(target, 1.0) * 0.5
    turn = 0
    while under < over:
        part = tl.log(much / target) / tl.maximum(tl.log(much / little), 1e-6)
        part = tl.where(turn % 2 == 0, tl.minimum(tl.maximum(part, 0.02), 0.98), 0.5)
        middle = under + (over - under) * part
        middle = tl.where((middle > under) & (middle <= over), middle, over)
        held = tl.zeros([block], tl.float32)
        above, below = tl.full([block], float("inf"), tl.float32), tl.full([block], float("-inf"), tl.float32)
        for first in range(0, vocab, block):
            s, stays = _scores(line, first + tl.arange(0, block), low, high, vocab)
            r = _rank(s, top, warm, shift, typical)
            taken = stays & (r >= middle)
            if counted:
                held += tl.where(taken, 1.0, 0.0)
            else:
                held += tl.where(taken, tl.exp((s - top) * warm), 0.0)
            above = tl.minimum(above, tl.where(taken, r, float("inf")))
            below = tl.maximum(below, tl.where(stays & (r < middle), r, float("-inf")))
        gathered = tl.sum(held.to(tl.float64), 0)
        if gathered >= wanted:
            under, much = tl.min(above, 0), gathered.to(tl.float32)
        else:
            over, little = tl.max(below, 0), tl.maximum(gathered.to(tl.float32), 1e-30)
        turn += 1
    return under


@triton.jit
def _truncate(
    scores, temperature, cuts, count, bars, tokens, vocab, stride,
    wide: tl.constexpr, block: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    node = tl.program_id(0)
    row = node // tokens
    t = tl.load(temperature + row)
    own = cuts + row * wide
    sigma, k, p, min_p = tl.load(own), tl.load(own + 1), tl.load(own + 2), tl.load(own + 3)
    mass, epsilon, eta = tl.load(own + 4), tl.load(own + 5), tl.load(own + 6)
    low, high = tl.full([], float("-inf"), tl.float32), tl.full([], float("inf"), tl.float32)
    bottom, roof = low, high
    never = float("-inf")
    acts = (sigma >= 0) | (k > 0) | (p < 1) | (min_p > never) | (mass < 1) | (epsilon > never) | (eta > never)
    if acts & (t > 0) & (node % tokens < tl.load(count + row)):
        line = scores + node.to(tl.int64) * stride
        _lowest, top = _ends(line, low, high, vocab, block)
        if top > never:
            warm = 1.0 / t
            if sigma >= 0:
                spread = (_sigma(line, low, high, top, vocab, block) / t).to(tl.float32)
                bar = tl.div_rn(top, t) - sigma.to(tl.float32) * spread
                low = _above(line, t, bar, low, high, vocab, block)
            if k > 0:
                low = _border(line, warm, low, high, top, top, k, k * 0 + vocab, vocab, True, False, block)
            if p < 1:
                z, zd = _mass(line, warm, low, high, top, vocab, block)
                low = _border(line, warm, low, high, top, top, p * z, z, vocab, False, False, block)
            if min_p > never:
                low = _above(line, t, tl.div_rn(top, t) + min_p.to(tl.float32), low, high, vocab, block)
            if mass < 1:
                z, zd = _mass(line, warm, low, high, top, vocab, block)
                # −log p − H = (log Z − d) − (log Z − Σw·d / Z) = Σw·d / Z − d
                shift = (zd / z).to(tl.float32)
                at = _border(line, warm, low, high, top, shift, mass * z, z, vocab, False, True, block)
                most, least = tl.full([block], float("-inf"), tl.float32), tl.full([block], float("inf"), tl.float32)
                for first in range(0, vocab, block):
                    s, stays = _scores(line, first + tl.arange(0, block), low, high, vocab)
                    stays = stays & (_rank(s, top, warm, shift, True) >= at)
                    most = tl.maximum(most, tl.where(stays, s, float("-inf")))
                    least = tl.minimum(least, tl.where(stays, s, float("inf")))
                high, low = tl.max(most, 0), tl.min(least, 0)
                top = high
                roof = tl.div_rn(high, t)
            if epsilon > never:
                z, zd = _mass(line, warm, low, high, top, vocab, block)
                bar = (tl.div_rn(top, t).to(tl.float64) + tl.log(z) + epsilon).to(tl.float32)
                low = _above(line, t, tl.minimum(bar, tl.div_rn(top, t)), low, high, vocab, block)
            if eta > never:
                z, zd = _mass(line, warm, low, high, top, vocab, block)
                bar = tl.minimum(eta, eta * 0.5 - (tl.log(z) - zd / z))
                bar = (tl.div_rn(top, t).to(tl.float64) + tl.log(z) + bar).to(tl.float32)
                low = _above(line, t, tl.minimum(bar, tl.div_rn(top, t)), low, high, vocab, block)
            bottom = tl.div_rn(low, t)
    tl.store(bars + 2 * node, bottom)
    tl.store(bars + 2 * node + 1, roof)


def truncate(scores: Tensor, temperature: Tensor, cuts: Tensor, count: Tensor) -> Tensor:
    """The lowest and the highest score over the temperature that stays after each node: bars [n, 2], float32.

    scores [n, vocab], n = R·T; temperature [R] in float32; cuts [R, 7] in float64 (see `NONE`), applied in the order of
    `Settings.warp`, each to what those before it have left; count [R] as for `pick`. Where nothing is dropped, and at
    temperature 0, the bars are −∞ and ∞. Borders are those of the host's warps, at tokens' own scores; masses are
    float32 and sums float64, in another order than the host's: a border within rounding (about 1e-6 of the mass) of the
    mass that is wanted may fall on the next token.
    Cost: one launch; a row that truncates reads its scores about ten times per border, from the cache of the chip.
    """
    n, vocab = scores.shape
    bars = torch.empty(n, 2, dtype=torch.float32, device=scores.device)
    block, chain = min(BLOCK, triton.next_power_of_2(vocab)), chained()
    _truncate[(n,)](
        scores, temperature, cuts, count, bars, n // count.shape[0], vocab, scores.stride(0),
        wide=CUTS, block=block, num_warps=max(1, min(32, block // 512)), chained=chain, launch_pdl=chain,
        enable_fp_fusion=False,
    )  # fmt: skip
    return bars


def reference(scores: Tensor, temperature: Tensor, cuts: Tensor, count: Tensor) -> Tensor:
    """The same, by the host's warps."""
    n, each = scores.shape[0], scores.shape[0] // count.shape[0]
    bars = torch.tensor([float("-inf"), float("inf")]).repeat(n, 1)
    for node in range(n):
        row = node // each
        t = float(temperature[row])
        if t == 0 or node % each >= int(count[row]) or cuts[row].tolist() == list(NONE):
            continue
        sigma, k, p, min_p, mass, epsilon, eta = cuts[row].tolist()
        law = Law(scores[node].float()).temper(t)
        law = host.TopNSigma(sigma)(None, law) if sigma >= 0 else law
        law = host.TopK(int(k))(None, law) if k > 0 else law
        law = host.TopP(p)(None, law)
        law = host.at_least(law, law.scores, law.scores.amax() + min_p)
        law = host.Typical(mass)(None, law)
        law = host.probable(law, epsilon)
        law = host.probable(law, min(eta, eta / 2 - host.entropy(law, -law.scores.log_softmax(0))))
        left = law.scores[law.scores > float("-inf")]
        bars[node] = torch.stack((left.min(), left.max()))
    return bars.to(scores.device)
