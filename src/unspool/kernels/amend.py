"""Steps that the host checks while the next one runs: the best tokens of a step go out, what was wrong comes back."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .top import top

BLOCK = 1024  # rows at a time
RANKED = 8  # best tokens of a step that are noted beside the one that was picked


@triton.jit
def _rank(
    logprobs, picked, values, best, turn, ranks, rows, steps,
    k: tl.constexpr, wide: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    row, i = tl.program_id(0), tl.load(turn)
    if i < steps:
        at = (i.to(tl.int64) * rows + row) * (k + 1)
        noted = tl.load(picked + row)
        for side in tl.static_range(2):
            logprob = tl.load(logprobs + 2 * row + side)
            noted = tl.where(logprob == logprob, noted, -1)
            noted = tl.where(logprob == float("-inf"), -2, noted)
        tl.store(ranks + at, noted)
        j = tl.arange(0, wide)
        value = tl.load(values + row * k + j, mask=j < k, other=float("-inf"))
        token = tl.load(best + row * k + j, mask=j < k, other=-2)
        tl.store(ranks + at + 1 + j, tl.where(value > float("-inf"), token, -2), mask=j < k)


def rank(scores: Tensor, picked: Tensor, logprobs: Tensor, turn: Tensor, ranks: Tensor) -> None:
    """Note what step i = turn[0] of K has picked of each row, and the best tokens in the order of their scores.

    scores [R, vocab] are those it was picked from; picked [R] and logprobs [R, 2] are what `pick` says. ranks
    [K, R, 1 + k], int32, take the token, as `advance` writes it down (−1 for broken scores, −2 where there are none),
    then the k ≤ vocab best, of equals the lower one; −2 stands for one that is impossible. From K on nothing is noted.
    Cost: scores once; three launches.
    """
    steps, rows, wide = ranks.shape
    values, best = top(scores, wide - 1)
    chain = chained()
    _rank[(rows,)](
        logprobs, picked, values, best, turn, ranks, rows, steps, k=wide - 1,
        wide=triton.next_power_of_2(wide - 1), num_warps=1, chained=chain, launch_pdl=chain,
    )  # fmt: skip


@triton.jit
def _amend(
    back, given, tokens, places, past, lines, texts, rows, length,
    remembers: tl.constexpr, block: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    row = tl.program_id(0) * block + tl.arange(0, block)
    used = row < rows
    told = tl.load(back + row, mask=used, other=0)
    moved = used & (told > 0)
    far = told - 1
    token = tl.load(given + row, mask=moved, other=0)
    place = tl.load(places + row, mask=moved, other=0) - far
    tl.store(tokens + row, token, mask=moved)
    tl.store(places + row, place, mask=moved)
    tl.store(past + row, tl.load(past + row, mask=moved, other=0) - far, mask=moved)
    if remembers:
        line = tl.load(lines + row, mask=moved, other=0).to(tl.int64)
        tl.store(texts + line * length + place, token, mask=moved)
    tl.store(back + row, 0 * told, mask=moved)


def amend(
    back: Tensor,
    given: Tensor,
    tokens: Tensor,
    places: Tensor,
    past: Tensor,
    lines: Tensor | None = None,
    texts: Tensor | None = None,
) -> None:
    """Let some rows go back and on from another token, before a step.

    All are [R], int32. Where back is b > 0, `given` becomes the token that is computed next, b − 1 places before the
    one that was to be; `texts` [lines, length], where given, has it at that place of the row's line. Then `back` is 0
    again, so that what is amended once stays.
    Cost: one launch.
    """
    rows, block = len(back), min(BLOCK, triton.next_power_of_2(len(back)))
    chain = chained()
    _amend[(triton.cdiv(rows, block),)](
        back, given, tokens, places, past, back if lines is None else lines, back if texts is None else texts,
        rows, 0 if texts is None else texts.shape[1], remembers=texts is not None, block=block,
        num_warps=max(1, min(8, block // 64)), chained=chain, launch_pdl=chain,
    )  # fmt: skip


def rank_reference(scores: Tensor, picked: Tensor, logprobs: Tensor, turn: Tensor, ranks: Tensor) -> None:
    """The same as `rank`, row by row."""
    steps, rows, wide = ranks.shape
    i = int(turn)
    for row in range(rows if i < steps else 0):
        values, order = scores[row].float().sort(descending=True, stable=True)
        best = torch.where(values > -torch.inf, order, -2)[: wide - 1]
        empty, wrong = (logprobs[row] == -torch.inf).any(), logprobs[row].isnan().any()
        ranks[i, row, 0] = -2 if empty else -1 if wrong else picked[row]
        ranks[i, row, 1 : 1 + len(best)] = best.int()


def amend_reference(
    back: Tensor,
    given: Tensor,
    tokens: Tensor,
    places: Tensor,
    past: Tensor,
    lines: Tensor | None = None,
    texts: Tensor | None = None,
) -> None:
    """The same as `amend`, row by row."""
    for row in range(len(back)):
        far = int(back[row]) - 1
        if far >= 0:
            tokens[row] = given[row]
            places[row] -= far
            past[row] -= far
            if lines is not None and texts is not None:
                texts[int(lines[row]), int(places[row])] = given[row]
            back[row] = 0
