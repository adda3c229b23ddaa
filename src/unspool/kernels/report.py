"""What a step reports of its laws: log-probabilities of the token that was picked and of the best, before warps."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..core.law import Law
from .draft_chain import chained, start, wait
from .pick import CHUNK, weigh
from .top import top


@triton.jit
def _report(
    logits, tops, raw, picked, after, values, best, turn, logprobs, tokens, chunks, stride, steps,
    k: tl.constexpr, wide: tl.constexpr, lanes: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    row, i = tl.program_id(0), tl.load(turn)
    if i < steps:
        lane = tl.arange(0, lanes)
        there = lane < chunks
        highest = tl.load(tops + row * chunks + lane, mask=there, other=float("-inf"))
        mass = tl.load(raw + row * chunks + lane, mask=there, other=0.0)
        most = tl.max(highest, 0)
        most = tl.where(most == float("-inf"), 0.0, most)
        z = tl.sum(tl.where(mass > 0.0, mass * tl.exp(highest - most).to(tl.float64), mass), 0)
        log_z = most.to(tl.float64) + tl.log(tl.where(z == 0.0, 1.0, z))
        at = (row.to(tl.int64) * steps + i) * (2 + k)
        chosen = tl.load(logits + row.to(tl.int64) * stride + tl.load(picked + row)).to(tl.float64)
        tl.store(logprobs + at, tl.load(after + 2 * row + 1))
        tl.store(logprobs + at + 1, (chosen - log_z).to(tl.float32))
        j = tl.arange(0, wide)
        value = tl.load(values + row * k + j, mask=j < k, other=0.0).to(tl.float64)
        tl.store(logprobs + at + 2 + j, (value - log_z).to(tl.float32), mask=j < k)
        token = tl.load(best + row * k + j, mask=j < k, other=0)
        tl.store(tokens + (row.to(tl.int64) * steps + i) * k + j, token, mask=j < k)


def report(
    logits: Tensor,
    temperature: Tensor,
    count: Tensor,
    picked: Tensor,
    after: Tensor,
    turn: Tensor,
    logprobs: Tensor,
    tokens: Tensor,
) -> None:
    """Note what step i = turn[0] of K has done, row by row: log p of the picked token and of the k best.

    logits [R, vocab] are the model's own; picked [R] and after [R, 2] are what `pick` says. logprobs [R, K, 2 + k],
    float32, take log p of the picked token after warps, then before them, then of the best before warps; tokens
    [R, K, k], int32, take which these are, best first, of equals the lower one. From K on nothing is noted.
    Cost: logits twice; four launches.
    """
    rows, steps, k = tokens.shape
    tops, _, raw, _ = weigh(logits, temperature, count)
    values, best = top(logits, k)
    chain = chained()
    _report[(rows,)](
        logits, tops, raw, picked, after, values, best, turn, logprobs, tokens, tops.shape[1], logits.stride(0), steps,
        k=k, wide=triton.next_power_of_2(k), lanes=max(16, triton.next_power_of_2(triton.cdiv(logits.shape[1], CHUNK))),
        num_warps=1, chained=chain, launch_pdl=chain,
    )  # fmt: skip


def reference(
    logits: Tensor,
    temperature: Tensor,
    count: Tensor,
    picked: Tensor,
    after: Tensor,
    turn: Tensor,
    logprobs: Tensor,
    tokens: Tensor,
) -> None:
    """The same, by `Law`."""
    rows, steps, k = tokens.shape
    i = int(turn)
    for row in range(rows if i < steps else 0):
        law = Law(logits[row].float().cpu())
        best = law.scores.sort(descending=True, stable=True).indices[:k].tolist()
        own = [float(after[row, 1]), law.logprob(int(picked[row])), *map(law.logprob, best)]
        logprobs[row, i] = torch.tensor(own)
        tokens[row, i] = torch.tensor(best, dtype=torch.int32)
