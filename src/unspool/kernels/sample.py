"""Truncated sampling on the device: temperature, top-k, top-p and min-p, then the token whose interval holds a number.

Each truncation keeps the tokens whose score is not below a bar, so all of them together are one bar. It is found by
halving the scores in question, never by a sort, and as soon as few are left they are copied together and the rest is
done on them.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..core.law import Law
from ..core.warp import MinP, Prefix, Temperature, TopK, TopP, Warp
from .chain import chained, start, wait

BLOCK = 4096  # scores at a time
FEW = 2048  # scores worth copying together
AHEAD = 8.0  # how many nats below the best the first guess lies


@triton.jit
def _narrow(
    values, size, low, top, many, held, need, highest, t, enough, ahead, weighted: tl.constexpr, block: tl.constexpr
):
    """The bar from which on scores weigh at least `need`, by mass or by number, and how many there are.

    The bar lies from `low` on, from where `many` weigh `held`, up to `top`; both are scores themselves, so each pass
    rules out one at least. It ends early when no more than `enough` are left: then the bar is not below `low`.
    """
    lane = tl.arange(0, block)
    reach = ahead * t
    while (low < top) & (held > need) & (many > enough):
        middle = tl.maximum(0.5 * low + 0.5 * top, top - reach)
        middle = tl.where(middle > low, middle, top)
        reach *= 4.0
        number = tl.zeros([block], tl.int32)
        mass = tl.zeros([block], tl.float64)
        over = tl.full([block], float("inf"), tl.float32)
        under = tl.full([block], float("-inf"), tl.float32)
        for first in range(0, size, block):
            x = tl.load(values + first + lane, mask=first + lane < size, other=float("-inf")).to(tl.float32)
            above = x >= middle
            number += above.to(tl.int32)
            if weighted:
                mass += tl.where(above, tl.exp((x - highest) / t), 0.0).to(tl.float64)
            over = tl.minimum(over, tl.where(above, x, float("inf")))
            under = tl.maximum(under, tl.where(x < middle, x, float("-inf")))
        count = tl.sum(number, 0)
        weight = count.to(tl.float64)
        if weighted:
            weight = tl.sum(mass, 0)
        heavy = weight >= need
        low = tl.where(heavy, tl.min(over, 0), low)
        many = tl.where(heavy, count, many)
        held = tl.where(heavy, weight, held)
        top = tl.where(heavy, top, tl.max(under, 0))
    return low, many


@triton.jit
def _mass(values, size, bar, highest, t, block: tl.constexpr):
    """What the scores from the bar on weigh, the least of them, and the index of the last."""
    lane = tl.arange(0, block)
    mass = tl.zeros([block], tl.float64)
    least = tl.full([block], float("inf"), tl.float32)
    last = tl.zeros([block], tl.int32)
    for first in range(0, size, block):
        x = tl.load(values + first + lane, mask=first + lane < size, other=float("-inf")).to(tl.float32)
        weight = tl.where(x >= bar, tl.exp((x - highest) / t), 0.0)
        mass += weight.to(tl.float64)
        least = tl.minimum(least, tl.where(x >= bar, x, float("inf")))
        last = tl.where(weight > 0.0, first + lane, last)
    return tl.sum(mass, 0), tl.min(least, 0), tl.max(last, 0)


@triton.jit
def _draw(values, size, bar, highest, t, uniform, block: tl.constexpr):
    """The index of the score whose interval holds the number, and what those from the bar on weigh."""
    lane = tl.arange(0, block)
    # A sum that rounds short of the number ends at the last token that has any mass.
    total, _, index = _mass(values, size, bar, highest, t, block)
    wanted = uniform * total
    before = total * 0.0
    first = size * 0
    while first < size:
        x = tl.load(values + first + lane, mask=first + lane < size, other=float("-inf")).to(tl.float32)
        weight = tl.where(x >= bar, tl.exp((x - highest) / t), 0.0).to(tl.float64)
        after = before + tl.sum(weight, 0)
        if after > wanted:
            passed = tl.sum(tl.where(before + tl.cumsum(weight, 0) <= wanted, 1, 0), 0)
            index = first + tl.minimum(passed, tl.max(tl.where(weight > 0.0, lane, 0), 0))
            first = size
        before = after
        first += block
    return index, total


@triton.jit
def _gather(values, size, bar, some, tokens, few: tl.constexpr, block: tl.constexpr):
    """Copy the scores from the bar on, as many as fit, with their tokens, and count them."""
    lane = tl.arange(0, block)
    many = size * 0
    for first in range(0, size, block):
        x = tl.load(values + first + lane, mask=first + lane < size, other=float("-inf")).to(tl.float32)
        kept = (x >= bar).to(tl.int32)
        to = many + tl.cumsum(kept, 0) - 1
        tl.store(some + to, x, mask=(kept > 0) & (to < few))
        tl.store(tokens + to, first + lane, mask=(kept > 0) & (to < few))
        many += tl.sum(kept, 0)
    tl.debug_barrier()  # what one thread has copied, others read
    return many


@triton.jit
def _sample(
    logits, temperature, top_k, top_p, min_p, uniforms, count, some, names, picks, logprobs,
    each, vocab, stride, ahead, block: tl.constexpr, few: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    node = tl.program_id(0)
    row = node // each
    size = tl.where(node % each < tl.load(count + row), vocab, 0)
    line = logits + node.to(tl.int64) * stride
    some += node.to(tl.int64) * few
    names += node.to(tl.int64) * few
    t = tl.load(temperature + row)
    cold = t <= 0
    t = tl.where(cold, 1.0, t)
    k = tl.where(cold, 0, tl.load(top_k + row))
    p = tl.where(cold, 1.0, tl.load(top_p + row).to(tl.float64))
    m = tl.where(cold, 0.0, tl.load(min_p + row).to(tl.float64))

    # The best, the lowest that is possible at all, and the masses before and after the temperature.
    lane = tl.arange(0, block)
    tops = tl.full([block], float("-inf"), tl.float32)
    firsts = tl.full([block], 2147483647, tl.int32)
    lows = tl.full([block], float("inf"), tl.float32)
    number = tl.zeros([block], tl.int32)
    for first in range(0, size, block):
        x = tl.load(line + first + lane, mask=first + lane < size, other=float("-inf")).to(tl.float32)
        firsts = tl.where(x > tops, first + lane, firsts)
        tops = tl.where(x > tops, x, tops)
        lows = tl.minimum(lows, tl.where(x > float("-inf"), x, float("inf")))
        number += (x > float("-inf")).to(tl.int32)
    highest = tl.max(tops, 0)
    best = tl.min(tl.where(tops == highest, firsts, 2147483647), 0)
    low = tl.min(lows, 0)
    many = tl.sum(number, 0)
    raws = tl.zeros([block], tl.float64)
    warms = tl.zeros([block], tl.float64)
    for first in range(0, size, block):
        inside = first + lane < size
        x = tl.load(line + first + lane, mask=inside, other=float("-inf")).to(tl.float32)
        below = tl.where(inside, x - highest, float("-inf"))
        raws += tl.exp(below).to(tl.float64)
        warms += tl.exp(below / t).to(tl.float64)
    raw_z = tl.sum(raws, 0)
    z = tl.sum(warms, 0)

    size = tl.where(cold, 0, size)  # then the best is all that is asked for

    # Narrow the row down to few scores, or to the bar itself if from there on they are many.
    by_number = (k > 0) & (k < many)
    by_mass = p < 1.0
    if by_number:
        low, many = _narrow(
            line, size, low, highest, many, many.to(tl.float64), k.to(tl.float64), highest, t, few, ahead, False, block
        )
        if many > few:
            by_number = many < 0  # done
            z, _, _ = _mass(line, size, low, highest, t, block)
    if by_mass & (many > few):
        low, many = _narrow(line, size, low, highest, many, z, p * z, highest, t, few, ahead, True, block)
    floor = (highest + t * tl.log(m)).to(tl.float32)  # −∞ for 0
    bar = low
    if not by_number:
        bar = tl.maximum(low, floor)
    fits = (many <= few) | (bar > low)
    if fits:
        many = _gather(line, size, bar, some, names, few, block)
        fits = many <= few
    index = size * 0
    total = z
    if fits:
        if by_number:
            bar, _ = _narrow(
                some, many, bar, highest, many, many.to(tl.float64), k.to(tl.float64), highest, t, 0, ahead, False, few
            )
            z, _, _ = _mass(some, many, bar, highest, t, few)
        if by_mass:
            held, least, _ = _mass(some, many, bar, highest, t, few)
            bar, _ = _narrow(some, many, least, highest, many, held, p * z, highest, t, 0, ahead, True, few)
        index, total = _draw(some, many, tl.maximum(bar, floor), highest, t, tl.load(uniforms + node), few)
        index = tl.load(names + index)
    else:
        index, total = _draw(line, size, tl.maximum(bar, floor), highest, t, tl.load(uniforms + node), block)
    token = tl.maximum(tl.minimum(tl.where(cold, best, index), vocab - 1), 0)
    picked = tl.load(line + token).to(tl.float32) - highest
    tl.store(picks + node, token)
    tl.store(logprobs + 2 * node, (picked - tl.log(raw_z)).to(tl.float32))
    after = (picked / t - tl.log(total)).to(tl.float32)
    after = tl.where(cold, 0.0, after)
    tl.store(logprobs + 2 * node + 1, tl.where(raw_z == raw_z, after, float("nan")))  # of broken scores nothing holds


def sample(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    uniforms: Tensor,
    count: Tensor,
) -> tuple[Tensor, Tensor]:
    """The token after each node [n], int32, and its log-probability before and after all warps [n, 2], float32.

    logits [n, vocab], n = R·T, temperature [R] in float32 (0: the best token), uniforms [n] and count [R] are as `pick`
    takes them. top_k [R] is int32, 0 for off; top_p, 1 for off, and min_p, 0 for off, are [R] in float64 or float32.
    The token is that of Temperature | TopK | TopP | MinP and `Law.invert`, ties at a bar all kept. As masses are added
    in another order and scores are compared before the temperature divides them, a number within rounding (about 1e-6)
    of the end of an interval may fall on its other side, and a token within rounding of a bar on its other side too.
    Padding gets no particular token. Where `Law` would refuse the scores, the log-probabilities are NaN.
    Cost: one launch, a program per node; logits twice, once or twice more per truncation in ordinary laws (a pass for
    each halving where more than FEW tokens pass all of them), and once to copy the few, or twice to draw from many.
    """
    n, vocab = logits.shape
    block, few = (min(most, triton.next_power_of_2(vocab)) for most in (BLOCK, FEW))
    some = torch.empty(n, few, dtype=torch.float32, device=logits.device)
    names = torch.empty(n, few, dtype=torch.int32, device=logits.device)
    picks = torch.empty(n, dtype=torch.int32, device=logits.device)
    logprobs = torch.empty(n, 2, dtype=torch.float32, device=logits.device)
    chain = chained()
    _sample[(n,)](
        logits, temperature, top_k, top_p, min_p, uniforms, count, some, names, picks, logprobs,
        n // count.shape[0], vocab, logits.stride(0), AHEAD,
        block=block, few=few, num_warps=max(1, min(16, block // 256)), chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return picks, logprobs


def reference(
    logits: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    min_p: Tensor,
    uniforms: Tensor,
    count: Tensor,
) -> tuple[Tensor, Tensor]:
    """The same, by the warps themselves; padding gets token 0."""
    n, each = logits.shape[0], logits.shape[0] // count.shape[0]
    picks, logprobs = torch.zeros(n, dtype=torch.int32), torch.zeros(n, 2)
    for node in range(n):
        row = node // each
        if node % each >= int(count[row]):
            continue
        warp: Warp = Temperature(float(temperature[row]))
        warp = warp if int(top_k[row]) == 0 else warp | TopK(int(top_k[row]))
        warp = warp | TopP(float(top_p[row])) | MinP(float(min_p[row]))
        law = Law(logits[node].float())
        after = Prefix.of((), warp).shape(law)
        picks[node] = token = after.invert(float(uniforms[node]))
        logprobs[node] = torch.tensor([law.logprob(token), after.logprob(token)])
    return picks.to(logits.device), logprobs.to(logits.device)
