"""Truncations on the device: which scores of every node stay, as the lowest and the highest of them."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..core.law import Law
from ..core.warp import truncate as host
from .draft_chain import chained, start, wait
from .likely import likely

BLOCK = 8192  # scores at a time
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
    counted: tl.constexpr, typical: tl.constexpr, known: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """The rank of the last token needed, taking them by rank, to gather `wanted`: as many, if counted, or such mass.

    `under` always holds enough, above `over` there is never enough, and both are ranks that tokens have. What lies
    between is halved, or cut where a straight line through the logarithms of what both hold would be at `wanted`.
    If they are `known`, `low` and `top` are scores that tokens have.
    """
    under, over = low, top
    if typical or not known:
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
def _near(line, warm, floor, top, vocab, block: tl.constexpr):
    """Of the scores above the floor: the lowest, how many there are, and their mass."""
    least, count = tl.full([block], float("inf"), tl.float32), tl.zeros([block], tl.float32)
    mass = tl.zeros([block], tl.float32)
    for first in range(0, vocab, block):
        x = first + tl.arange(0, block)
        s = tl.load(line + x, mask=x < vocab, other=float("-inf")).to(tl.float32)
        there = s > floor
        least = tl.minimum(least, tl.where(there, s, float("inf")))
        count += tl.where(there, 1.0, 0.0)
        mass += tl.where(there, tl.exp((s - top) * warm), 0.0)
    return tl.min(least, 0), tl.sum(count.to(tl.float64), 0), tl.sum(mass.to(tl.float64), 0)


@triton.jit
def _bars(line, own, t, top, z, zd, floor, vocab, block: tl.constexpr, part: tl.constexpr):
    """The lowest and the highest of a line of scores that stay, over the temperature, and whether that is sound.

    If it is but a `part` of all scores, those above a floor, `top`, `z` and `zd` are those of all; and it is sound
    unless a truncation might keep some that are not in it.
    """
    sigma, k, p, min_p = tl.load(own), tl.load(own + 1), tl.load(own + 2), tl.load(own + 3)
    mass, epsilon, eta = tl.load(own + 4), tl.load(own + 5), tl.load(own + 6)
    low, high = tl.full([], float("-inf"), tl.float32), tl.full([], float("inf"), tl.float32)
    roof, never, warm = high, float("-inf"), 1.0 / t
    beyond = part & (floor > never)  # whether scores below the floor have stayed so far
    unsound, count, held = beyond & (sigma >= 0), z * 0, z * 0
    if part:
        low, count, held = _near(line, warm, floor, top, vocab, block)
    if sigma >= 0:
        spread = (_sigma(line, low, high, top, vocab, block) / t).to(tl.float32)
        bar = tl.div_rn(top, t) - sigma.to(tl.float32) * spread
        low = _above(line, t, bar, low, high, vocab, block)
    if k > 0:
        unsound = unsound | (beyond & (count < k))
        beyond = beyond & False
        low = _border(line, warm, low, high, top, top, k, k * 0 + vocab, vocab, True, False, part, block)
    if p < 1:
        if beyond:
            unsound = unsound | (held < p * z)
        else:
            z, zd = _mass(line, warm, low, high, top, vocab, block)
        beyond = beyond & False
        low = _border(line, warm, low, high, top, top, p * z, z, vocab, False, False, part, block)
    if min_p > never:
        bar = tl.div_rn(top, t) + min_p.to(tl.float32)
        unsound = unsound | (beyond & (tl.div_rn(floor, t) >= bar))
        beyond = beyond & False
        low = _above(line, t, bar, low, high, vocab, block)
    if mass < 1:
        if beyond == 0:
            z, zd = _mass(line, warm, low, high, top, vocab, block)
        # −log p − H = (log Z − d) − (log Z − Σw·d / Z) = Σw·d / Z − d
        shift = (zd / z).to(tl.float32)
        at = _border(line, warm, low, high, top, shift, mass * z, z, vocab, False, True, part, block)
        deepest = (floor - top) * warm - shift  # no other score below the floor comes as near
        unsound = unsound | (beyond & ((held < mass * z) | (deepest > 0) | (deepest >= at)))
        beyond = beyond & False
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
        if beyond == 0:
            z, zd = _mass(line, warm, low, high, top, vocab, block)
        bar = (tl.div_rn(top, t).to(tl.float64) + tl.log(z) + epsilon).to(tl.float32)
        bar = tl.minimum(bar, tl.div_rn(top, t))
        unsound = unsound | (beyond & (tl.div_rn(floor, t) >= bar))
        beyond = beyond & False
        low = _above(line, t, bar, low, high, vocab, block)
    if eta > never:
        if beyond == 0:
            z, zd = _mass(line, warm, low, high, top, vocab, block)
        bar = tl.minimum(eta, eta * 0.5 - (tl.log(z) - zd / z))
        bar = (tl.div_rn(top, t).to(tl.float64) + tl.log(z) + bar).to(tl.float32)
        bar = tl.minimum(bar, tl.div_rn(top, t))
        unsound = unsound | (beyond & (tl.div_rn(floor, t) >= bar))
        low = _above(line, t, bar, low, high, vocab, block)
    return tl.div_rn(low, t), roof, unsound


@triton.jit
def _truncate(
    scores, near, floors, tops, masses, temperature, cuts, count, bars, tokens, vocab, chunks, stride, many, left,
    wide: tl.constexpr, block: tl.constexpr, small: tl.constexpr, lanes: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """Among the likeliest scores of a node, and only if these may not be enough among all of them."""
    start(chained)
    wait(chained)
    node = tl.program_id(0)
    row = node // tokens
    t = tl.load(temperature + row)
    own = cuts + row * wide
    never = float("-inf")
    acts = (tl.load(own) >= 0) | (tl.load(own + 1) > 0) | (tl.load(own + 2) < 1) | (tl.load(own + 3) > never)
    acts = acts | (tl.load(own + 4) < 1) | (tl.load(own + 5) > never) | (tl.load(own + 6) > never)
    bottom, roof = tl.full([], float("-inf"), tl.float32), tl.full([], float("inf"), tl.float32)
    if acts & (t > 0) & (node % tokens < tl.load(count + row)):
        chunk = tl.arange(0, lanes)
        above = tl.load(tops + node * chunks + chunk, mask=chunk < chunks, other=float("-inf"))
        top = tl.max(above, 0)
        if top > never:
            z = tl.load(masses + 2 * (node * chunks + chunk), mask=chunk < chunks, other=0.0)
            zd = tl.load(masses + 2 * (node * chunks + chunk) + 1, mask=chunk < chunks, other=0.0)
            d = tl.where(above > never, above - top, 0.0) * (1.0 / t)
            w = tl.where(above > never, tl.exp(d), 0.0).to(tl.float64)
            z, zd = tl.sum(w * z, 0), tl.sum(w * (zd + z * d.to(tl.float64)), 0)
            floor = tl.load(floors + node, mask=left > 0, other=float("-inf"))
            line = near + node.to(tl.int64) * many
            bottom, roof, unsound = _bars(line, own, t, top, z, zd, floor, many, small, True)
            if unsound:
                every = scores + node.to(tl.int64) * stride
                bottom, roof, unsound = _bars(every, own, t, top, z, zd, floor, vocab, block, False)
    tl.store(bars + 2 * node, bottom)
    tl.store(bars + 2 * node + 1, roof)


def truncate(scores: Tensor, temperature: Tensor, cuts: Tensor, count: Tensor) -> Tensor:
    """The lowest and the highest score over the temperature that stays after each node: bars [n, 2], float32.

    scores [n, vocab], n = R·T; temperature [R] in float32; cuts [R, 7] in float64 (see `NONE`), applied in the order of
    `Settings.warp`, each to what those before it have left; count [R] as for `pick`. Where nothing is dropped, and at
    temperature 0, the bars are −∞ and ∞. Borders are those of the host's warps, at tokens' own scores; masses are
    float32 and sums float64, in another order than the host's: a border within rounding (about 1e-6 of the mass) of the
    mass that is wanted may fall on the next token.
    Cost: three launches; a row that truncates reads its likeliest 8,192 scores about ten times per border, from a cache
    of the processor, and all of them only where those may not be enough.
    """
    n, vocab = scores.shape
    bars = torch.empty(n, 2, dtype=torch.float32, device=scores.device)
    found = likely(scores, temperature)
    (many, chunks), chain = (found.near.shape[1], found.tops.shape[1]), chained()
    block, small = (min(BLOCK, triton.next_power_of_2(size)) for size in (vocab, many))
    _truncate[(n,)](
        scores, found.near, found.floor, found.tops, found.masses, temperature, cuts, count, bars,
        n // count.shape[0], vocab, chunks, scores.stride(0), many, int(vocab > many),
        wide=CUTS, block=block, small=small, lanes=triton.next_power_of_2(chunks),
        num_warps=max(1, min(16, block // 512)), chained=chain, launch_pdl=chain, enable_fp_fusion=False,
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
