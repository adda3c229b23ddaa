"""Speculative sampling of drafted chains on the device: accept with min(1, p/q), then draw from what p has left."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..core.law import Law
from .draft_chain import chained, start, wait
from .pick import CHUNK, weigh
from .verify import Verdicts


@triton.jit
def _mass(tops, sums, node, chunks, t, there, lane):
    """The largest logit of some nodes, and Σ exp((logit − largest) / t), from what their chunks were weighed."""
    at = node[:, None] * chunks + lane[None, :]
    used = there[:, None] & (lane < chunks)[None, :]
    top = tl.load(tops + at, mask=used, other=float("-inf"))
    mass = tl.load(sums + at, mask=used, other=0.0)
    highest = tl.max(top, 1)
    safe = tl.where(there, highest, 0.0)
    return safe, tl.sum(tl.where(mass > 0.0, mass * tl.exp((top - safe[:, None]) / t).to(tl.float64), mass), 1)


@triton.jit
def _accept(
    logits, drafts, p_tops, p_raw, p_warm, q_tops, q_warm, drafted, roots, count, temperature, uniforms,
    nodes, packed, floats, tokens, wide, chunks, p_stride, q_stride,
    block: tl.constexpr, lanes: tl.constexpr, points: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """Try a row's chain; token j hangs below token j − 1, and the law it is tried against is the one after that."""
    start(chained)
    wait(chained)
    row = tl.program_id(0)
    t = tl.load(temperature + row)
    root = tl.load(roots + row)
    many = tl.load(count + row)
    j, lane = tl.arange(0, block), tl.arange(0, lanes)
    tried = (j > root) & (j < many)
    node = row * tokens + j
    token = tl.load(drafted + node, mask=tried, other=0)
    above = tl.maximum(node - 1, 0)
    p_top, p_z = _mass(p_tops, p_warm, above, chunks, t, tried, lane)
    _, raw_z = _mass(p_tops, p_raw, above, chunks, 1.0, tried, lane)
    p = tl.load(logits + above.to(tl.int64) * p_stride + token, mask=tried, other=0.0).to(tl.float32) - p_top
    before = (p - tl.log(tl.where(tried, raw_z, 1.0))).to(tl.float32)
    after = (p / t - tl.log(tl.where(tried, p_z, 1.0))).to(tl.float32)
    ratio = tl.exp(after)
    if not points:
        q_top, q_z = _mass(q_tops, q_warm, node, chunks, t, tried, lane)
        q = tl.load(drafts + node.to(tl.int64) * q_stride + token, mask=tried, other=0.0).to(tl.float32) - q_top
        given = (q / t - tl.log(tl.where(tried, q_z, 1.0))).to(tl.float32)
        # a token that q cannot give was not drawn from it
        ratio = tl.where(given == float("-inf"), 0.0, tl.exp(after - given))
    coin = tl.load(uniforms + node, mask=tried, other=0.0)
    refused = tl.min(tl.where(tried & (coin >= tl.minimum(ratio, 1.0).to(tl.float64)), j, many), 0)
    last = tl.maximum(refused - 1, root)
    tl.store(nodes + 2 * row, last)
    tl.store(nodes + 2 * row + 1, tl.where(refused < many, refused, -1))
    tl.store(packed + row * wide, last)
    tl.store(packed + row * wide + 2, last - root + 1)
    slot = floats + row * wide + 3
    kept = tried & (j <= last)
    tl.store(slot + j, float("nan"), mask=j < tokens)
    tl.store(slot + tokens + j, float("nan"), mask=j < tokens)
    tl.debug_barrier()
    tl.store(slot + 2 * (j - root - 1), before, mask=kept)
    tl.store(slot + 2 * (j - root - 1) + 1, after, mask=kept)


@triton.jit
def _left(
    logits, drafts, drafted, node, refused, first, x, inside, t, p_top, p_z, q_top, q_z, p_stride, q_stride,
    points: tl.constexpr,
):  # fmt: skip
    """p of some tokens, and [p − q]₊, or p itself where nothing was refused."""
    p = tl.load(logits + (first + node).to(tl.int64) * p_stride + x, mask=inside, other=float("-inf")).to(tl.float32)
    p = tl.exp((p - p_top) / t).to(tl.float64) / p_z
    tried = tl.maximum(refused, 0)
    if points:
        q = tl.where(x == tl.load(drafted + first + tried), 1.0, 0.0).to(tl.float64)
    else:
        q = tl.load(drafts + (first + tried).to(tl.int64) * q_stride + x, mask=inside, other=float("-inf"))
        q = tl.exp((q.to(tl.float32) - q_top) / t).to(tl.float64) / q_z
    rest = tl.where(refused >= 0, tl.maximum(p - q, 0.0), p)
    return tl.where(inside, p, 0.0), tl.where(inside, rest, 0.0)


@triton.jit
def _remain(
    logits, drafts, p_tops, p_warm, q_tops, q_warm, drafted, temperature, nodes, sums, tokens, vocab, chunks,
    p_stride, q_stride, block: tl.constexpr, lanes: tl.constexpr, points: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """The mass of one chunk of p and of what p has left, where a row's chain ended."""
    start(chained)
    wait(chained)
    row, chunk = tl.program_id(0), tl.program_id(1)
    t = tl.load(temperature + row)
    node, refused = tl.load(nodes + 2 * row), tl.load(nodes + 2 * row + 1)
    one, lane = tl.arange(0, 1), tl.arange(0, lanes)
    yes = one < 1
    first = row * tokens
    p_top, p_z = _mass(p_tops, p_warm, first + node + one, chunks, t, yes, lane)
    q_top, q_z = p_top, p_z
    if not points:
        q_top, q_z = _mass(q_tops, q_warm, first + tl.maximum(refused, 0) + one, chunks, t, yes, lane)
    x = chunk * block + tl.arange(0, block)
    p, rest = _left(
        logits, drafts, drafted, node, refused, first, x, x < vocab, t,
        tl.max(p_top, 0), tl.max(p_z, 0), tl.max(q_top, 0), tl.max(q_z, 0), p_stride, q_stride, points,
    )  # fmt: skip
    tl.store(sums + 2 * (row * chunks + chunk), tl.sum(p, 0))
    tl.store(sums + 2 * (row * chunks + chunk) + 1, tl.sum(rest, 0))


@triton.jit
def _draw(
    logits, drafts, p_tops, p_raw, p_warm, q_tops, q_warm, drafted, temperature, uniforms, roots, nodes, sums,
    packed, floats, tokens, vocab, chunks, wide, p_stride, q_stride,
    block: tl.constexpr, lanes: tl.constexpr, points: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    """The token after a chain, in id order from what is left; from p if that is nothing (then p = q up to rounding)."""
    start(chained)
    wait(chained)
    row = tl.program_id(0)
    t = tl.load(temperature + row)
    node, refused = tl.load(nodes + 2 * row), tl.load(nodes + 2 * row + 1)
    one, lane = tl.arange(0, 1), tl.arange(0, lanes)
    yes, there = one < 1, lane < chunks
    first = row * tokens
    mass = tl.load(sums + 2 * (row * chunks + lane) + 1, mask=there, other=0.0)
    empty = tl.sum(mass, 0) <= 0.0
    mass = tl.where(empty, tl.load(sums + 2 * (row * chunks + lane), mask=there, other=0.0), mass)
    refused = tl.where(empty, -1, refused)
    wanted = tl.load(uniforms + first + node) * tl.sum(mass, 0)
    chunk = tl.sum(tl.where(there & (tl.cumsum(mass, 0) <= wanted), 1, 0), 0)
    chunk = tl.minimum(chunk, tl.max(tl.where(mass > 0.0, lane, 0), 0))
    before = tl.sum(tl.where(lane < chunk, mass, 0.0), 0)
    p_top, p_z = _mass(p_tops, p_warm, first + node + one, chunks, t, yes, lane)
    _, raw_z = _mass(p_tops, p_raw, first + node + one, chunks, 1.0, yes, lane)
    q_top, q_z = p_top, p_z
    if not points:
        q_top, q_z = _mass(q_tops, q_warm, first + tl.maximum(refused, 0) + one, chunks, t, yes, lane)
    inner = tl.arange(0, block)
    x = chunk * block + inner
    _, weight = _left(
        logits, drafts, drafted, node, refused, first, x, x < vocab, t,
        tl.max(p_top, 0), tl.max(p_z, 0), tl.max(q_top, 0), tl.max(q_z, 0), p_stride, q_stride, points,
    )  # fmt: skip
    passed = tl.sum(tl.where(before + tl.cumsum(weight, 0) <= wanted, 1, 0), 0)
    token = chunk * block + tl.minimum(passed, tl.max(tl.where(weight > 0.0, inner, 0), 0))
    token = tl.minimum(token, vocab - 1)
    picked = tl.load(logits + (first + node).to(tl.int64) * p_stride + token).to(tl.float32) - tl.max(p_top, 0)
    tl.store(packed + row * wide + 1, token)
    at = floats + row * wide + 3 + 2 * (node - tl.load(roots + row))
    tl.store(at, (picked - tl.log(tl.max(raw_z, 0))).to(tl.float32))
    tl.store(at + 1, (picked / t - tl.log(tl.max(p_z, 0))).to(tl.float32))


def reject(
    logits: Tensor,
    drafts: Tensor | None,
    tokens: Tensor,
    roots: Tensor,
    count: Tensor,
    temperature: Tensor,
    coins: Tensor,
    uniforms: Tensor,
) -> Verdicts:
    """`verify.rejection` for chains: token j of a row hangs below token j − 1, from roots[r] on.

    logits [R·T, vocab] are the target's after every token; drafts [R·T, vocab] the draft model's that each token was
    drawn from, at the same temperature [R] > 0. Without drafts every token was chosen, a point mass. coins [R·T]
    (float64) decide about each token, uniforms [R·T] draw the token after each. As with `pick`, a number within
    rounding of the end of an interval may fall on its other side.
    Cost: logits and drafts once, one row of each once more; four or five launches and one small copy.
    """
    n, vocab = logits.shape
    number = count.shape[0]
    each, chunks = n // number, triton.cdiv(vocab, CHUNK)
    block, lanes = min(CHUNK, triton.next_power_of_2(vocab)), max(16, triton.next_power_of_2(chunks))
    points = drafts is None
    q = logits if drafts is None else drafts
    p_tops, _, p_raw, p_warm = weigh(logits, temperature, count)
    q_tops, _, _, q_warm = (p_tops, None, None, p_warm) if points else weigh(q, temperature, count)
    packed = torch.empty(number, 3 + 2 * each, dtype=torch.int32, device=logits.device)
    floats, wide = packed.view(torch.float32), 3 + 2 * each
    nodes = torch.empty(number, 2, dtype=torch.int32, device=logits.device)
    sums = torch.empty(number, chunks, 2, dtype=torch.float64, device=logits.device)
    chain = chained()
    _accept[(number,)](
        logits, q, p_tops, p_raw, p_warm, q_tops, q_warm, tokens, roots, count, temperature, coins,
        nodes, packed, floats, each, wide, chunks, logits.stride(0), q.stride(0),
        block=triton.next_power_of_2(each), lanes=lanes, points=points, num_warps=4,
        chained=chain, launch_pdl=chain,
    )  # fmt: skip
    _remain[(number, chunks)](
        logits, q, p_tops, p_warm, q_tops, q_warm, tokens, temperature, nodes, sums, each, vocab, chunks,
        logits.stride(0), q.stride(0), block=block, lanes=lanes, points=points, num_warps=8,
        chained=chain, launch_pdl=chain,
    )  # fmt: skip
    _draw[(number,)](
        logits, q, p_tops, p_raw, p_warm, q_tops, q_warm, tokens, temperature, uniforms, roots, nodes, sums,
        packed, floats, each, vocab, chunks, wide, logits.stride(0), q.stride(0),
        block=block, lanes=lanes, points=points, num_warps=8, chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return Verdicts(packed)


def reference(
    logits: Tensor,
    drafts: Tensor | None,
    tokens: Tensor,
    roots: Tensor,
    count: Tensor,
    temperature: Tensor,
    coins: Tensor,
    uniforms: Tensor,
) -> Verdicts:
    """The same, by `Law`; a row that is not used has nothing to say."""
    number = count.shape[0]
    each = logits.shape[0] // number
    packed = torch.zeros(number, 3 + 2 * each, dtype=torch.int32)
    found = Verdicts(packed)
    found.logprobs.fill_(float("nan"))
    for row in range(number):
        if int(count[row]) == 0:
            continue
        first, node, t = row * each, int(roots[row]), float(temperature[row])
        while True:
            model = Law(logits[first + node].float())
            p = rest = model.temper(t)
            at, x = first + node + 1, None
            if node + 1 < int(count[row]):
                x = int(tokens[at])
                q = Law.point(x, p) if drafts is None else Law(drafts[at].float()).temper(t)
                kept = float(coins[at]) < (min(1.0, p[x] / q[x]) if q[x] > 0 else 0.0)
                rest, x = (p, x) if kept else (p.minus(q), None)
            token = rest.invert(float(uniforms[first + node])) if x is None else x
            length = node - int(roots[row])
            found.logprobs[row, length] = torch.tensor([model.logprob(token), p.logprob(token)])
            if x is None:
                break
            node += 1
        packed[row, :3] = torch.tensor([node, token, length + 1])
    return Verdicts(packed.to(logits.device))
