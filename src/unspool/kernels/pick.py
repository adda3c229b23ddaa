"""The token after every node of a batch: the best, or the one whose interval of the cumulative law holds a number."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..core.law import Law
from .draft_chain import chained, start, wait

CHUNK = 4096  # logits per program


@triton.jit
def _within(score, t, bars):
    """Scores without those that truncations drop: below the lower bar or above the upper; NaN stays, to be seen."""
    y = tl.div_rn(score, tl.zeros_like(score) + tl.where(t > 0, t, 1.0))
    return tl.where((y < tl.load(bars)) | (y > tl.load(bars + 1)), float("-inf"), score)


@triton.jit
def _weigh(
    logits, temperature, count, bars, tops, bests, raw, warm, tokens, vocab, chunks, stride,
    barred: tl.constexpr, block: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """Of one chunk: the largest logit, the first token that has it, and the sums of exp below it, at 1 and at t."""
    start(chained)
    wait(chained)
    node, chunk = tl.program_id(0), tl.program_id(1)
    row = node // tokens
    x = chunk * block + tl.arange(0, block)
    used = (x < vocab) & (node % tokens < tl.load(count + row))
    t = tl.load(temperature + row)
    score = tl.load(logits + node.to(tl.int64) * stride + x, mask=used, other=float("-inf")).to(tl.float32)
    if barred:
        score = _within(score, t, bars + 2 * node)
    top = tl.max(score, 0)
    below = tl.where(used, score - tl.where(top == float("-inf"), 0.0, top), float("-inf"))
    at = node * chunks + chunk
    tl.store(tops + at, top)
    tl.store(bests + at, tl.min(tl.where(used & (score == top), x, 2147483647), 0))
    tl.store(raw + at, tl.sum(tl.exp(below).to(tl.float64), 0))
    tl.store(warm + at, tl.sum(tl.exp(below / tl.where(t > 0, t, 1.0)).to(tl.float64), 0))


@triton.jit
def _pick(
    logits, temperature, uniforms, bars, tops, bests, raw, warm, picks, logprobs, tokens, vocab, chunks, stride,
    barred: tl.constexpr, block: tl.constexpr, lanes: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    node = tl.program_id(0)
    t = tl.load(temperature + node // tokens)
    cold = t <= 0
    t = tl.where(cold, 1.0, t)
    lane = tl.arange(0, lanes)
    there = lane < chunks
    top = tl.load(tops + node * chunks + lane, mask=there, other=float("-inf"))
    first = tl.load(bests + node * chunks + lane, mask=there, other=2147483647)
    highest = tl.max(top, 0)
    best = tl.min(tl.where(top == highest, first, 2147483647), 0)
    empty = highest == float("-inf")
    highest = tl.where(empty, 0.0, highest)
    mass = tl.load(raw + node * chunks + lane, mask=there, other=0.0)
    raw_z = tl.sum(tl.where(mass > 0.0, mass * tl.exp(top - highest).to(tl.float64), mass), 0)
    none = empty & (raw_z == 0.0)  # and not NaN, which a maximum passes over
    mass = tl.load(warm + node * chunks + lane, mask=there, other=0.0)
    mass = tl.where(mass > 0.0, mass * tl.exp((top - highest) / t).to(tl.float64), mass)
    # The chunk whose interval holds the number, then the token in it. A sum that rounds short of the number ends at the
    # last token that has any mass.
    ends = tl.cumsum(mass, 0)
    warm_z = tl.sum(mass, 0)
    wanted = tl.load(uniforms + node) * warm_z
    chunk = tl.sum(tl.where(there & (ends <= wanted), 1, 0), 0)
    chunk = tl.minimum(chunk, tl.max(tl.where(mass > 0.0, lane, 0), 0))
    before = tl.sum(tl.where(lane < chunk, mass, 0.0), 0)
    inner = tl.arange(0, block)
    x = chunk * block + inner
    line = logits + node.to(tl.int64) * stride
    score = tl.load(line + x, mask=x < vocab, other=float("-inf")).to(tl.float32)
    if barred:
        score = _within(score, t, bars + 2 * node)
    weight = tl.exp((score - highest) / t).to(tl.float64)
    passed = tl.sum(tl.where(before + tl.cumsum(weight, 0) <= wanted, 1, 0), 0)
    drawn = chunk * block + tl.minimum(passed, tl.max(tl.where(weight > 0.0, inner, 0), 0))
    token = tl.minimum(tl.where(cold, best, drawn), vocab - 1)
    picked = tl.load(line + token).to(tl.float32) - highest
    raw_z, warm_z = tl.where(none, 1.0, raw_z), tl.where(none, 1.0, warm_z)
    before_, after = (picked - tl.log(raw_z)).to(tl.float32), (picked / t - tl.log(warm_z)).to(tl.float32)
    tl.store(picks + node, token)
    tl.store(logprobs + 2 * node, tl.where(none, float("-inf"), before_))
    tl.store(logprobs + 2 * node + 1, tl.where(none, float("-inf"), tl.where(cold, 0.0, after)))


def weigh(
    logits: Tensor, temperature: Tensor, count: Tensor, bars: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of each chunk of CHUNK logits: the largest, its token, Σ exp(logit − largest), and the same over the temperature.

    All are [n, chunks]; the sums are float64. Padding is not read, and what lies outside the bars does not count.
    """
    n, vocab = logits.shape
    chunks, block = triton.cdiv(vocab, CHUNK), min(CHUNK, triton.next_power_of_2(vocab))
    tops = torch.empty(n, chunks, dtype=torch.float32, device=logits.device)
    bests = torch.empty(n, chunks, dtype=torch.int32, device=logits.device)
    raw, warm = (torch.empty(n, chunks, dtype=torch.float64, device=logits.device) for _ in range(2))
    chain = chained()
    _weigh[(n, chunks)](
        logits, temperature, count, temperature if bars is None else bars, tops, bests, raw, warm,
        n // count.shape[0], vocab, chunks, logits.stride(0), barred=bars is not None, block=block, num_warps=8,
        chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return tops, bests, raw, warm


def pick(
    logits: Tensor, temperature: Tensor, uniforms: Tensor, count: Tensor, bars: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The token after each node [n], int32, and its log-probability before and after the temperature [n, 2], float32.

    logits [n, vocab], n = R·T; temperature [R] in float32, 0 for the best token, of several the one with the lowest id;
    else the token whose interval, in id order, holds the node's number of `uniforms` [n] (float64) in [0, 1). Masses
    are float32 and sums float64, as in `Law.invert`, but added in another order: a number within rounding (about 1e-6)
    of the end of an interval may fall on its other side. With `bars` [n, 2] of `truncate` only the tokens between them
    are there. Padding gets no particular token. Where `Law` would refuse the scores, the log-probability is NaN if they
    are NaN or infinite, and −∞ if no token is possible.
    Cost: logits once, one chunk of them twice; two launches.
    """
    n, vocab = logits.shape
    chunks, block = triton.cdiv(vocab, CHUNK), min(CHUNK, triton.next_power_of_2(vocab))
    tops, bests, raw, warm = weigh(logits, temperature, count, bars)
    picks = torch.empty(n, dtype=torch.int32, device=logits.device)
    logprobs = torch.empty(n, 2, dtype=torch.float32, device=logits.device)
    chain = chained()
    _pick[(n,)](
        logits, temperature, uniforms, temperature if bars is None else bars, tops, bests, raw, warm, picks, logprobs,
        n // count.shape[0], vocab, chunks, logits.stride(0), barred=bars is not None,
        block=block, lanes=max(16, triton.next_power_of_2(chunks)), num_warps=8, chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return picks, logprobs


def reference(
    logits: Tensor, temperature: Tensor, uniforms: Tensor, count: Tensor, bars: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same, by `Law`; padding gets token 0."""
    n, tokens = logits.shape[0], logits.shape[0] // count.shape[0]
    picks, logprobs = torch.zeros(n, dtype=torch.int32), torch.zeros(n, 2)
    for node in range(n):
        t = float(temperature[node // tokens])
        if node % tokens >= int(count[node // tokens]):
            continue
        law = Law(logits[node].float())
        if bars is not None:
            y = law.scores / (t or 1.0)
            law = Law(torch.where((y < bars[node, 0]) | (y > bars[node, 1]), float("-inf"), law.scores))
        after = law.temper(t)
        picks[node] = token = after.invert(float(uniforms[node]))
        logprobs[node] = torch.tensor([law.logprob(token), after.logprob(token)])
    return picks.to(logits.device), logprobs.to(logits.device)
