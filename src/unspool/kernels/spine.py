"""The tree that a drafter writes level by level: its likeliest nodes are read on, and what is likely below each.

Of R rows each level has the same number K of nodes, the likeliest paths so far: K = 1 is a chain. The nodes of level s
of row r are r·K … r·K + K − 1 of its R·K; their laws are numbered s·K + j within a row. Level 0 is the root alone,
whose law is 0: the others of that level are its doubles, and nothing leads to them.
"""

import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .remember import ALONE, WIDTH, LawTable, mixed

RECALLED_TWO, RECALLED_ONE = tl.constexpr(0.5), tl.constexpr(0.1)  # what remembered laws are worth beside a drafter's
TRUST = tl.constexpr(0.9)  # what a drafter's law is worth
RARE, LOG_RARE = tl.constexpr(0.1), tl.constexpr(-2.302585)  # the chance of a drawn token at least, and its logarithm
BLOCK = 1024


@triton.jit
def _lay(
    table, lanes, past, tally, out, places, pasts, count, length, room, rows, limit,
    depth: tl.constexpr, wide: tl.constexpr, kids: tl.constexpr, block: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    node = tl.program_id(0)
    row = node // kids
    end, lane = tl.load(past + row), tl.load(lanes + row).to(tl.int64)
    live = (end > 0) & (tl.load(tally + 4 * row) < tl.load(tally + 4 * row + 1))
    before = tl.maximum(end - 1, 0)
    for first in range(0, before, block):
        at = first + tl.arange(0, block)
        slot = tl.load(table + lane * length + 1 + at, mask=at < before, other=0)
        tl.store(out + node.to(tl.int64) * room + at, slot, mask=at < before)
    step = tl.arange(0, wide)
    own = step < depth
    tl.store(places + step * rows + node, tl.minimum(before + step, limit), mask=own)
    tl.store(pasts + step * rows + node, before + step, mask=own)
    tl.store(count + node, live.to(tl.int32))


def lay(
    table: Tensor, lanes: Tensor, past: Tensor, tally: Tensor, nodes: Tensor, kids: int, length: int, limit: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What attention reads, for all levels: keys' slots [R·K, L], places and pasts [d, R·K], count [R·K].

    nodes [d, R·K] are the slots of all nodes, `kids` is K. A drafter's key stands in the slot of the later token of its
    pair, so a text's first token has none: the keys of row r are table[lanes[r], 1:past[r]], and behind them those of a
    node's own line, which `expand` writes. Places are below `limit`. Rows that are padding, have one token, or have
    written what is wanted by their tally [R, 4], count 0.
    Cost: one launch, which copies the table's rows.
    """
    (depth, rows), launch = nodes.shape, chained()
    keys, count = table.new_empty(rows, length + depth), table.new_empty(rows)
    places, pasts = (table.new_empty(depth, rows) for _ in range(2))
    _lay[(rows,)](
        table, lanes, past, tally, keys, places, pasts, count, table.shape[1], length + depth, rows, limit - 1,
        depth=depth, wide=triton.next_power_of_2(depth), kids=kids, block=BLOCK, num_warps=4,
        chained=launch, launch_pdl=launch,
    )  # fmt: skip
    return keys, places, pasts, count


@triton.jit
def _expand(
    values, guesses, picks, heat, ids, nodes, past, reaches, line, tokens, above, follow, reaches_out, line_out, keys,
    step, room, rows,
    kids: tl.constexpr, k: tl.constexpr, wide: tl.constexpr, first: tl.constexpr, mapped: tl.constexpr,
    drawn: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    row = tl.program_id(0)
    lane = tl.arange(0, kids * k)
    owner, base = lane // k, row * kids
    value, guess = tl.load(values + base * k + lane), tl.load(guesses + base * k + lane)
    value = tl.where(value == value, value, float("-inf"))
    if first:
        reach = tl.where(owner == 0, 0.0, float("-inf"))
    else:
        reach = tl.load(reaches + base + owner)
    chance, next_law = reach + value, tl.full([kids * k], -1, tl.int32)
    before = tl.maximum(tl.load(past + row) - 1, 0)
    t = tl.arange(0, wide)
    for i in tl.static_range(kids):
        best = tl.max(chance, 0)
        taken = tl.min(tl.where(chance == best, lane, kids * k), 0)
        token = tl.sum(tl.where(lane == taken, guess, 0), 0)
        from_ = taken // k
        if drawn and i == 0:  # the line that is drawn goes on with what was picked
            picked = tl.load(picks + row)
            warm = tl.load(heat + row) > 0.0
            hit = (owner == 0) & (guess == picked)
            among = tl.max(hit.to(tl.int32), 0) > 0
            likely = tl.maximum(tl.max(tl.where(hit, value, float("-inf")), 0), 2.0 * LOG_RARE)
            best = tl.where(warm, tl.sum(tl.where(lane == 0, reach, 0.0), 0) + 0.5 * likely, best)
            taken = tl.where(warm, tl.where(among, tl.sum(tl.where(hit, lane, 0), 0), -1), taken)
            token, from_ = tl.where(warm, picked, token), tl.where(warm, 0, from_)
        here = lane == taken
        next_law = tl.where(here & (chance > float("-inf")), (step + 1) * kids + i, next_law)
        chance = tl.where(here, float("-inf"), chance)
        if mapped:
            token = tl.load(ids + token).to(tl.int32)
        tl.store(tokens + base + i, token)
        tl.store(above + base + i, base + from_)
        tl.store(reaches_out + base + i, best)
        slot = tl.load(nodes + step * rows + base + from_)
        slots = tl.where(t < step, tl.load(line + (base + from_) * wide + t, mask=t < step, other=0), slot)
        tl.store(line_out + (base + i) * wide + t, slots, mask=t <= step)
        tl.store(keys + (base + i).to(tl.int64) * room + before + t, slots, mask=t <= step)
    tl.store(follow + base * k + lane, next_law)


def expand(
    level: int,
    values: Tensor,
    guesses: Tensor,
    picks: tuple[Tensor, Tensor] | None,
    ids: Tensor | None,
    nodes: Tensor,
    past: Tensor,
    keys: Tensor,
    reached: tuple[Tensor, Tensor] | None,
    follow: Tensor,
    above: Tensor,
    tokens: Tensor,
) -> tuple[Tensor, Tensor]:
    """The nodes of the next level, the likeliest K paths below those of this one; returned is `reached`.

    values and guesses [R·K, 8] are log-probabilities and tokens below the nodes of this level, nodes [d, R·K] the slots
    of all. With `picks` (tokens [R] and temperatures [R]), the first node of a level whose row is drawn goes on with
    what was picked. `reached` is what this function returned for the level before, None for the root: how likely each
    path is, and the slots of its line. Written are keys, as `lay` has laid them out, for the next level; follow
    [R·K, 8], the number of the law below each guess, −1 where none is read on; above and tokens [R·K], which node of
    this level each of the next hangs from, and by which token. With `ids` guesses are numbers of it, and tokens are
    what it holds.
    Cost: one launch; K maxima over 8·K numbers.
    """
    (depth, rows), kids = nodes.shape, nodes.shape[1] // past.shape[0]
    wide, launch = triton.next_power_of_2(depth), chained()
    reaches, line = values.new_empty(rows), guesses.new_empty(rows, wide)
    ways, lines = reached or (reaches, line)
    picked, heat = picks or (tokens, reaches)
    _expand[(past.shape[0],)](
        values, guesses, picked, heat, guesses if ids is None else ids, nodes, past, ways, lines, tokens, above, follow,
        reaches, line, keys, level, keys.shape[1], rows,
        kids=kids, k=int(WIDTH.value), wide=wide, first=reached is None, mapped=ids is not None,
        drawn=picks is not None, num_warps=1, chained=launch, launch_pdl=launch,
    )  # fmt: skip
    return reaches, line


@triton.jit
def _blend(
    values, guesses, picks, ids, heat, words, above, follow, drafted, texts, lanes, past, count, tags, known, laws,
    weights, tokens_out, weights_out, follow_out, tokens, length, table, rows,
    kids: tl.constexpr, k: tl.constexpr, mapped: tl.constexpr, drawn: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    row, law = tl.program_id(0), tl.program_id(1)
    step = law // kids
    node = row * kids + law % kids
    lane, here = tl.arange(0, k), step * rows + node
    guess, deeper = tl.load(guesses + here * k + lane), step + 1 < tl.num_programs(1) // kids
    next_law = tl.load(follow + here * k + lane, mask=lane < tl.where(deeper, k, 0), other=-1)
    p = tl.exp(tl.load(values + here * k + lane))
    if drawn:  # the line that is drawn
        live = tl.where(tl.load(heat + row) > 0.0, law % kids, -1) == 0
        own = tl.load(picks + step * tl.num_programs(0) + row)
        first = (guess == own) & live
        missing = live & (tl.max(first.to(tl.int32), 0) == 0) & (lane == k - 1)
        guess, p = tl.where(missing, own, guess), tl.where(missing, 0.0, p)
        next_law = tl.where(missing & deeper, (step + 1) * kids, next_law)
        first = first | missing
        shared = tl.sqrt(tl.maximum(tl.sum(tl.where(first, p, 0.0), 0), RARE * RARE))
        p = tl.where(live, tl.where(first, shared, p * (1.0 - shared)), p)
    if mapped:
        guess = tl.load(ids + guess).to(tl.int32)
    p = p * TRUST
    p = tl.where((p == p) & (tl.load(count + node) > 0), tl.minimum(p, TRUST), 0.0)
    end, tag = tl.load(past + row), tl.load(tags + row)
    root = tl.load(drafted + row * tokens)
    last = tl.load(texts + tl.load(lanes + row).to(tl.int64) * length + end - 1, mask=end > 0, other=-1)
    up = tl.load(above + here - rows, mask=step > 0, other=0)
    upper = tl.load(words + (step - 2) * rows + up, mask=step > 1, other=0)
    b = tl.where(step == 0, root, tl.load(words + here - rows, mask=step > 0, other=0))
    a = tl.where(step == 0, last, tl.where(step == 1, root, upper))
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
    out = (row * tl.num_programs(1) + law) * k
    for i in tl.static_range(k):
        ours, theirs = tl.max(p, 0), tl.max(q, 0)
        mine = tl.where(ours >= theirs, tl.min(tl.where(p == ours, lane, k), 0), k)
        there = tl.where(ours >= theirs, k, tl.min(tl.where(q == theirs, lane, k), 0))
        token = tl.sum(tl.where(lane == mine, guess, 0), 0) + tl.sum(tl.where(lane == there, told, 0), 0)
        tl.store(tokens_out + out + i, token)
        tl.store(weights_out + out + i, tl.maximum(tl.maximum(ours, theirs), 0.0))
        tl.store(follow_out + out + i, tl.where(mine < k, tl.sum(tl.where(lane == mine, next_law, 0), 0), -1))
        p, q = tl.where(lane == mine, -1.0, p), tl.where(lane == there, -1.0, q)


def blend(
    values: Tensor,
    guesses: Tensor,
    picks: tuple[Tensor, Tensor] | None,
    ids: Tensor | None,
    words: Tensor,
    above: Tensor,
    follow: Tensor,
    laws: LawTable,
    drafted: Tensor,
    texts: Tensor,
    lanes: Tensor,
    past: Tensor,
    count: Tensor,
    tags: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The likeliest 8 tokens below every node, by its drafter and by remembered laws: tokens, chances, laws below.

    values and guesses [d, R·K, 8] are those that `expand` was given, and it wrote the others: follow [d − 1, R·K, 8],
    words and above [d − 1, R·K], of all levels but the last or the root's. With `ids` guesses are numbers of it. A
    drafter's law is worth 0.9 of itself, a law remembered after the same two tokens 0.5 and after the last one 0.1;
    what both say, 1 − (1 − p)(1 − q). With `picks` (tokens [d, R] and temperatures [R]) the first node of every level
    of rows above 0 was drawn by the numbers that draw their texts: there the picked token, being √p likely, takes that
    share from all others. Rows of count 0, and NaN, leave remembered laws alone. Returned are int32, float32 and int32
    [R, d·K, 8], as `grow` takes them.
    Cost: one launch.
    """
    depth, rows, k = values.shape
    number = past.shape[0]
    assert k == int(WIDTH.value)
    kids, launch = rows // number, chained()
    tokens, weights = guesses.new_empty(number, depth * kids, k), values.new_empty(number, depth * kids, k)
    follows = guesses.new_empty(number, depth * kids, k)
    picked, heat = picks or (guesses, values)
    _blend[(number, depth * kids)](
        values, guesses, picked, guesses if ids is None else ids, heat, words, above, follow, drafted, texts,
        lanes, past, count, tags, laws.known, laws.tokens, laws.weights, tokens, weights, follows,
        drafted.shape[0] // number, texts.shape[1], laws.size, rows,
        kids=kids, k=k, mapped=ids is not None, drawn=picks is not None, num_warps=1, chained=launch, launch_pdl=launch,
    )  # fmt: skip
    return tokens, weights, follows
