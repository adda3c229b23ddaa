"""Drafts that never leave the device: the best tree of remembered laws, a copy and what a drafter has read."""

import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .remember import ALONE, WIDTH, LawTable, mixed

KIDS = tl.constexpr(16)  # places for what may follow one node: its law, the next token of the copy, and none
TWO, ONE = tl.constexpr(0.8), tl.constexpr(0.5)  # what a law is worth that is remembered by two tokens, or by one
DOUBT = tl.constexpr(3.0)  # a copy goes on after a match of n tokens with probability n / (n + 3)
PACE = tl.constexpr(4)  # tokens that are copied per token of a match


@triton.jit
def _offer(
    chances, offered, owner, k, node, tag, a, b, reach, copied, begin, size, end, text, known, laws, weights, table,
    ahead, odds, own, drafts: tl.constexpr,
):  # fmt: skip
    """Put down what may follow a node: the chance of its path, and the token; and which token the copy says.

    A node that a drafter has read has the law of this number `own` ≥ 0.
    """
    two, one = mixed(tag, a, b), mixed(tag, a * 0 + ALONE, b)
    at_two, at_one = two & (table - 1), one & (table - 1)
    by_two, by_one = tl.load(known + at_two) == two, tl.load(known + at_one) == one
    at = tl.where(by_two, at_two, at_one)
    trust = tl.where(by_two, TWO, tl.where(by_one, ONE, 0.0))
    mine = owner == node
    lawful = mine & (k < WIDTH)
    token = tl.load(laws + at * WIDTH + k, mask=lawful, other=-1)
    p = tl.load(weights + at * WIDTH + k, mask=lawful, other=0.0) * trust
    if drafts > 0:
        read = lawful & (own >= 0)
        token = tl.load(ahead + own * WIDTH + k, mask=read, other=0) + tl.where(read, 0, token)
        p = tl.load(odds + own * WIDTH + k, mask=read, other=0.0) + tl.where(read, 0.0, p)
    going = (copied >= 0) & (size > 0) & (copied <= size * PACE)
    period = tl.maximum(end + 1 - begin, 1)
    said = tl.load(text + begin + tl.maximum(copied, 0) % period, mask=going, other=-1)
    sure = tl.where(going, (size + copied) / (size + copied + DOUBT), 0.0)
    agreed = lawful & going & (p > 0.0) & (token == said)
    p = tl.where(agreed, 1.0 - (1.0 - p) * (1.0 - sure), p)
    alone = mine & (k == WIDTH) & going & (tl.max(agreed.to(tl.int32), 0) == 0)
    p, token = tl.where(alone, sure, p), tl.where(alone, said, token)
    return tl.where(mine, reach * p, chances), tl.where(mine, token, offered), tl.where(going, said, -1)


@triton.jit
def _grow(
    drafted, parents, places, sees, key_places, count, tally, past, clear, lanes, tags, matches,
    texts, known, laws, weights, ahead, odds, follow, length, table, limit,
    tokens: tl.constexpr, words: tl.constexpr, windowed: tl.constexpr, drafts: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    row = tl.program_id(0)
    end, tag = tl.load(past + row), tl.load(tags + row)
    text = texts + tl.load(lanes + row).to(tl.int64) * length
    size, begin = tl.load(matches + 2 * row), tl.load(matches + 2 * row + 1)
    live = tl.load(tally + 4 * row) < tl.load(tally + 4 * row + 1)
    lane, node = tl.arange(0, tokens * KIDS), tl.arange(0, tokens)
    owner, k = lane // KIDS, lane % KIDS
    root = tl.load(drafted + row * tokens)
    before = tl.load(text + end - 1, mask=end > 0, other=-1)
    chances, offered = tl.zeros([tokens * KIDS], tl.float32), tl.full([tokens * KIDS], -1, tl.int32)
    reach = tl.where(live & (end + 1 < limit), 1.0, 0.0)
    copied = tl.where(size > 0, 0, -1)
    ahead += row * drafts * WIDTH
    odds += row * drafts * WIDTH
    follow += row * drafts * WIDTH
    own = tl.full([], 0, tl.int32)
    chances, offered, said = _offer(
        chances, offered, owner, k, 0, tag, before, root, reach, copied, begin, size, end, text,
        known, laws, weights, table, ahead, odds, own, drafts,
    )  # fmt: skip
    # What is known of each node, one number per lane of a register.
    token_of = tl.where(node == 0, root, 0)
    above_of = tl.where(node == 0, -1, -2)
    depth_of, law_of = tl.zeros([tokens], tl.int32), tl.where(node == 0, 0, -1)
    copied_of, said_of = tl.where(node == 0, copied, -1), tl.where(node == 0, said, -1)
    sees_of = tl.where(node == 0, 1, 0).to(tl.int64)
    grown = tl.full([], 1, tl.int32)
    for n in range(1, tokens):
        best = tl.max(chances, 0)
        taken = tl.min(tl.where(chances == best, lane, tokens * KIDS), 0)
        real = tl.where(best > 0.0, 1, 0)
        token = tl.sum(tl.where(lane == taken, offered, 0), 0)
        above = taken // KIDS
        chances = tl.where(lane == taken, 0.0, chances)
        up = node == above
        before = tl.sum(tl.where(up, token_of, 0), 0)
        deep = tl.sum(tl.where(up, depth_of, 0), 0) + 1
        line = tl.sum(tl.where(up, sees_of, 0), 0) | (tl.full([], 1, tl.int64) << n)
        copied = tl.sum(tl.where(up, copied_of, 0), 0)
        copied = tl.where((copied >= 0) & (tl.sum(tl.where(up, said_of, 0), 0) == token), copied + 1, -1)
        if drafts > 0:
            own, child = tl.sum(tl.where(up, law_of, 0), 0), taken % KIDS
            own = tl.load(follow + own * WIDTH + child, mask=(own >= 0) & (child < WIDTH), other=-1)
        reach = tl.where((real == 1) & (end + deep + 1 < limit), best, 0.0)
        chances, offered, said = _offer(
            chances, offered, owner, k, n, tag, before, token, reach, copied, begin, size, end, text,
            known, laws, weights, table, ahead, odds, own, drafts,
        )  # fmt: skip
        here = (node == n) & (real == 1)
        token_of, above_of = tl.where(here, token, token_of), tl.where(here, above, above_of)
        depth_of, sees_of = tl.where(here, deep, depth_of), tl.where(here, line, sees_of)
        copied_of, said_of = tl.where(here, copied, copied_of), tl.where(here, said, said_of)
        law_of = tl.where(here, own, law_of)
        grown += real
    at = row * tokens + node
    place = end + depth_of
    tl.store(drafted + at, token_of)
    tl.store(parents + at, above_of)
    tl.store(places + at, tl.where(node < grown, place, 0))
    for word in tl.static_range(words):
        bits = (sees_of >> (32 * word)) if word < 2 else sees_of * 0
        tl.store(sees + at * words + word, bits.to(tl.int32))
        if windowed:
            tl.store(key_places + row * words * 32 + 32 * word + tl.arange(0, 32), 0)
    if windowed:
        tl.debug_barrier()
        tl.store(key_places + row * words * 32 + node, place)
    tl.store(count + row, tl.where(live, grown, 0))
    tl.store(clear + row, end)


def grow(
    laws: LawTable,
    drafted: Tensor,
    parents: Tensor,
    places: Tensor,
    sees: Tensor,
    key_places: Tensor | None,
    count: Tensor,
    tally: Tensor,
    past: Tensor,
    clear: Tensor,
    lanes: Tensor,
    tags: Tensor,
    matches: Tensor,
    texts: Tensor,
    limit: int,
    ahead: tuple[Tensor, Tensor, Tensor] | None = None,
) -> None:
    """Grow a tree of at most T − 1 nodes below the root of each row, and lay it out for attention and verification.

    Rows that have written what is wanted, by their tally [R, 4], get none, and a count of 0. The root of row r, which
    is drafted[r·T], stands at place past[r] of line lanes[r] of texts; no node stands at place `limit` or behind. Of a
    path its chance is the product of what is said of its tokens: by a law remembered after the same two tokens 0.8 of
    its weight there, by the last token alone 0.5, by a copy n / (n + 3) after n tokens that agree; a token that both
    say, 1 − (1 − p)(1 − q). The likeliest path is taken next, as `grow.best_first` does. matches [R, 2] are those of
    `match`. With `ahead`, what `blend` returns [R, laws, 8], nodes that a drafter has read have its laws in place of
    remembered ones, beginning with the root, whose law is the first.

    Written are drafted, parents, places, sees, clear, count and, where a layer has a window, key_places, as `Rows` and
    `verify` take them. T is a power of two up to 64.
    Cost: one launch; per node one look into the table and two maxima over 16·T numbers.
    """
    number = past.shape[0]
    tokens = drafted.shape[0] // number
    chain = chained()
    told, odds, follow = ahead or (laws.tokens, laws.weights, laws.tokens)
    _grow[(number,)](
        drafted, parents, places, sees, sees if key_places is None else key_places, count, tally, past, clear,
        lanes, tags, matches, texts, laws.known, laws.tokens, laws.weights, told, odds, follow,
        texts.shape[1], laws.size, limit, tokens=tokens, words=sees.shape[1], windowed=key_places is not None,
        drafts=0 if ahead is None else told.shape[1], num_warps=1 if tokens <= 32 else 2,
        chained=chain, launch_pdl=chain,
    )  # fmt: skip
