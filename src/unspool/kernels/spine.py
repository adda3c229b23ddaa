"""The spine of a draft: a chain that a drafter writes token by token, and what it holds likely at every depth."""

import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .remember import ALONE, WIDTH, LawTable, mixed

RECALLED_TWO, RECALLED_ONE = tl.constexpr(0.5), tl.constexpr(0.1)  # what remembered laws are worth beside a drafter's
TRUST = tl.constexpr(0.9)  # what a drafter's law is worth
BLOCK = 1024


@triton.jit
def _lay(
    table, lanes, past, tally, chain, out, places, pasts, count, length, room, rows, limit,
    depth: tl.constexpr, wide: tl.constexpr, block: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    row = tl.program_id(0)
    end, lane = tl.load(past + row), tl.load(lanes + row).to(tl.int64)
    live = (end > 0) & (tl.load(tally + 4 * row) < tl.load(tally + 4 * row + 1))
    before = tl.maximum(end - 1, 0)
    for first in range(0, before, block):
        at = first + tl.arange(0, block)
        slot = tl.load(table + lane * length + 1 + at, mask=at < before, other=0)
        tl.store(out + row * room + at, slot, mask=at < before)
    step = tl.arange(0, wide)
    own = step < depth
    tl.store(out + row * room + before + step, tl.load(chain + step * rows + row, mask=own, other=0), mask=own)
    tl.store(places + step * rows + row, tl.minimum(before + step, limit), mask=own)
    tl.store(pasts + step * rows + row, before + step, mask=own)
    tl.store(count + row, live.to(tl.int32))


def lay(
    table: Tensor, lanes: Tensor, past: Tensor, tally: Tensor, chain: Tensor, length: int, limit: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What a chain's attention reads, for all of its depths: keys' slots [R, L], places and pasts [d, R], count [R].

    A drafter's key stands in the slot of the later token of its pair, so a text's first token has none: the keys of row
    r are table[lanes[r], 1:past[r]], and behind them those of the chain [d, R]. Places are below `limit`. Rows that are
    padding, have one token, or have written what is wanted by their tally [R, 4], count 0.
    Cost: one launch, which copies the table's rows.
    """
    (depth, rows), launch = chain.shape, chained()
    keys, count = table.new_empty(rows, length + depth), table.new_empty(rows)
    places, pasts = (table.new_empty(depth, rows) for _ in range(2))
    _lay[(rows,)](
        table, lanes, past, tally, chain, keys, places, pasts, count, table.shape[1], length + depth, rows, limit - 1,
        depth=depth, wide=triton.next_power_of_2(depth), block=BLOCK, num_warps=4, chained=launch, launch_pdl=launch,
    )  # fmt: skip
    return keys, places, pasts, count


@triton.jit
def _blend(
    values, guesses, ids, drafted, texts, lanes, past, count, tags, known, laws, weights, tokens_out, weights_out,
    tokens, length, table, rows, depth,
    k: tl.constexpr, mapped: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    row, step = tl.program_id(0), tl.program_id(1)
    lane = tl.arange(0, k)
    guess = tl.load(guesses + (step * rows + row) * k + lane)
    up = tl.load(guesses + ((step - 1) * rows + row) * k, mask=step > 0, other=0)
    upper = tl.load(guesses + ((step - 2) * rows + row) * k, mask=step > 1, other=0)
    if mapped:
        guess, up, upper = tl.load(ids + guess).to(tl.int32), tl.load(ids + up), tl.load(ids + upper)
    p = tl.exp(tl.load(values + (step * rows + row) * k + lane)) * TRUST
    p = tl.where((p == p) & (tl.load(count + row) > 0), tl.minimum(p, TRUST), 0.0)
    end, tag = tl.load(past + row), tl.load(tags + row)
    root = tl.load(drafted + row * tokens)
    last = tl.load(texts + tl.load(lanes + row).to(tl.int64) * length + end - 1, mask=end > 0, other=-1)
    b = tl.where(step == 0, root, up.to(tl.int32))
    a = tl.where(step == 0, last, tl.where(step == 1, root, upper.to(tl.int32)))
    two, one = mixed(tag, a, b), mixed(tag, a * 0 + ALONE, b)
    at_two, at_one = two & (table - 1), one & (table - 1)
    by_two, by_one = tl.load(known + at_two) == two, tl.load(known + at_one) == one
    at = tl.where(by_two, at_two, at_one)
    worth = tl.where(by_two, RECALLED_TWO, tl.where(by_one, RECALLED_ONE, 0.0))
    told = tl.load(laws + at * k + lane)
    q = tl.load(weights + at * k + lane) * worth
    same = guess[:, None] == told[None, :]
    p = 1.0 - (1.0 - p) * (1.0 - tl.sum(tl.where(same, q[None, :], 0.0), 1))
    q = tl.where(tl.max(same.to(tl.int32), 0) > 0, 0.0, q)
    out = (row * depth + step) * k
    first = lane == 0  # the chain goes on from the drafter's best, whatever else is likely
    tl.store(tokens_out + out, tl.sum(tl.where(first, guess, 0), 0))
    tl.store(weights_out + out, tl.sum(tl.where(first, p, 0.0), 0))
    p = tl.where(first, -1.0, p)
    for i in tl.static_range(1, k):
        ours, theirs = tl.max(p, 0), tl.max(q, 0)
        here = tl.where(ours >= theirs, tl.min(tl.where(p == ours, lane, k), 0), k)
        there = tl.where(ours >= theirs, k, tl.min(tl.where(q == theirs, lane, k), 0))
        token = tl.sum(tl.where(lane == here, guess, 0), 0) + tl.sum(tl.where(lane == there, told, 0), 0)
        tl.store(tokens_out + out + i, token)
        tl.store(weights_out + out + i, tl.maximum(tl.maximum(ours, theirs), 0.0))
        p, q = tl.where(lane == here, -1.0, p), tl.where(lane == there, -1.0, q)


def blend(
    values: Tensor,
    guesses: Tensor,
    ids: Tensor | None,
    laws: LawTable,
    drafted: Tensor,
    texts: Tensor,
    lanes: Tensor,
    past: Tensor,
    count: Tensor,
    tags: Tensor,
) -> tuple[Tensor, Tensor]:
    """The likeliest 8 tokens at every depth of a chain, by its drafter and by remembered laws: tokens and chances.

    values and guesses [d, R, 8] are log-probabilities and tokens of the drafter, best first, of which the best makes
    the chain; with `ids`, guesses are numbers of it. A drafter's law is worth 0.9 of itself, a law remembered after the
    same two tokens 0.5 and after the last one 0.1; what both say, 1 − (1 − p)(1 − q). The drafter's best stays first.
    Rows of count 0, and NaN, leave remembered laws alone. Returned are int32 and float32 [R, d, 8], as `grow` takes
    them. Cost: one launch.
    """
    depth, rows, k = values.shape
    assert k == int(WIDTH.value)
    tokens = guesses.new_empty(rows, depth, k)
    weights = values.new_empty(rows, depth, k)
    chain = chained()
    _blend[(rows, depth)](
        values, guesses, guesses if ids is None else ids, drafted, texts, lanes, past, count, tags, laws.known,
        laws.tokens, laws.weights, tokens, weights, drafted.shape[0] // rows, texts.shape[1], laws.size, rows, depth,
        k=k, mapped=ids is not None, num_warps=1, chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return tokens, weights
