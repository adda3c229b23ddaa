"""The end of a step of plain decoding on the device: what was picked is written down and becomes the next input."""

import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait

BLOCK = 1024  # rows at a time


@triton.jit
def _advance(
    picked, tokens, places, slots, past, count, plan, written, logprobs_in, logprobs, turn,
    steps, rows: tl.constexpr, block: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    i = tl.load(turn)
    for first in range(0, rows, block):
        row = first + tl.arange(0, block)
        used = row < rows
        used = used & (tl.load(count + row, mask=used, other=0) > 0)
        at = row.to(tl.int64) * steps + i
        now = used & (i < steps)
        later = used & (i + 1 < steps)
        token = tl.load(picked + row, mask=used, other=0)
        tl.store(tokens + row, token, mask=used)
        noted = token
        for side in tl.static_range(2):
            logprob = tl.load(logprobs_in + 2 * row + side, mask=now, other=0.0)
            noted = tl.where(logprob == logprob, noted, -1)
            noted = tl.where(logprob == float("-inf"), -2, noted)
            tl.store(logprobs + 2 * at + side, logprob, mask=now)
        tl.store(written + at, noted, mask=now)
        tl.store(places + row, tl.load(places + row, mask=used, other=0) + 1, mask=used)
        tl.store(past + row, tl.load(past + row, mask=used, other=0) + 1, mask=used)
        tl.store(slots + row, tl.load(plan + at + 1, mask=later, other=0), mask=later)
    tl.debug_barrier()  # every warp has read the turn before one of them moves it on
    tl.store(turn, i + 1)


def advance(
    picked: Tensor,
    tokens: Tensor,
    places: Tensor,
    slots: Tensor,
    past: Tensor,
    count: Tensor,
    plan: Tensor,
    written: Tensor,
    logprobs_in: Tensor,
    logprobs: Tensor,
    turn: Tensor,
) -> None:
    """End step i = turn[0] of K: note each row's token, make it the input, and lay out its next slot.

    picked, tokens, places, slots, past and count are [R] and int32; plan and written [R, K] are int32; logprobs_in
    [R, 2] and logprobs [R, K, 2] are float32; all contiguous. written[:, i] = tokens = picked, but −1 is written where
    a log-probability is NaN and −2 where it is −∞, so that nobody takes what broken or empty scores picked for a token;
    logprobs[:, i] = logprobs_in; places and past grow by 1; slots are those planned for i + 1, or stay as they are
    behind the last step. Rows with count 0 are left alone. turn [1] grows by 1, and from K on nothing is written down
    any more.
    Cost: one launch of one program, so that the turn moves only once all rows have read it; meant for R up to 4096.
    """
    rows, steps = plan.shape
    block = min(BLOCK, triton.next_power_of_2(rows))
    chain = chained()
    _advance[(1,)](
        picked, tokens, places, slots, past, count, plan, written, logprobs_in, logprobs, turn,
        steps, rows=rows, block=block, num_warps=max(1, min(8, block // 64)), chained=chain, launch_pdl=chain,
    )  # fmt: skip


def reference(
    picked: Tensor,
    tokens: Tensor,
    places: Tensor,
    slots: Tensor,
    past: Tensor,
    count: Tensor,
    plan: Tensor,
    written: Tensor,
    logprobs_in: Tensor,
    logprobs: Tensor,
    turn: Tensor,
) -> None:
    """The same, row by row."""
    i, steps = int(turn), plan.shape[1]
    for row in range(plan.shape[0]):
        if int(count[row]) == 0:
            continue
        tokens[row] = picked[row]
        places[row] += 1
        past[row] += 1
        if i < steps:
            empty, wrong = (logprobs_in[row] == float("-inf")).any(), logprobs_in[row].isnan().any()
            written[row, i] = -2 if empty else -1 if wrong else picked[row]
            logprobs[row, i] = logprobs_in[row]
        if i + 1 < steps:
            slots[row] = plan[row, i + 1]
    turn += 1
