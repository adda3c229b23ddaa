"""The end of a step that drafts for itself: what stands is written down, its slots are kept, and the next begins."""

import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait


@triton.jit
def _settle(
    verdicts, wide, drafted, sees, slots, count, past, lanes, table, lines, texts, supply, written, kept,
    rounds, tally, length, text_length, stock, most, turns,
    tokens: tl.constexpr, words: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    row = tl.program_id(0)
    grown = tl.load(count + row)
    if grown > 0:
        node = tl.arange(0, tokens)
        at = row * tokens + node
        last, token = tl.load(verdicts + row * wide), tl.load(verdicts + row * wide + 1)
        end, lane = tl.load(past + row), tl.load(lanes + row).to(tl.int64)
        text = texts + tl.load(lines + row).to(tl.int64) * text_length
        done, want = tl.load(tally + 4 * row), tl.load(tally + 4 * row + 1)
        low = tl.load(sees + (row * tokens + last) * words).to(tl.int64) & 0xFFFFFFFF
        high = tl.full([], 0, tl.int64)
        if words > 1:
            high = tl.load(sees + (row * tokens + last) * words + 1).to(tl.int64) & 0xFFFFFFFF
        stands = ((((high << 32) | low) >> node) & 1) == 1
        rank = tl.cumsum(stands.to(tl.int32), 0) - 1  # the root's is 0
        gained = tl.sum(stands.to(tl.int32), 0)
        own, slot = tl.load(drafted + at), tl.load(slots + at)
        tl.store(table + lane * length + end + rank, slot, mask=stands)
        tl.store(text + end + rank, own, mask=stands)
        tl.store(text + end + gained, token)
        tl.store(written + row * most + done + rank - 1, own, mask=stands & (rank > 0))
        tl.store(written + row * most + done + gained - 1, token)
        tl.store(kept + row * most + done + rank, slot, mask=stands)
        tl.store(slots + at, tl.load(supply + row * stock + done + rank, mask=stands, other=0), mask=stands)
        tl.debug_barrier()  # the row has been read before it is written
        tl.store(drafted + row * tokens, tl.maximum(token, 0))  # a row that has ended is still looked up
        tl.store(past + row, end + gained)
        tl.store(tally + 4 * row, tl.where(token < 0, want, done + gained))
        turn = tl.load(tally + 4 * row + 2)
        tl.store(rounds + (row * turns + turn) * 2, grown - 1, mask=turn < turns)
        tl.store(rounds + (row * turns + turn) * 2 + 1, gained, mask=turn < turns)
        tl.store(tally + 4 * row + 2, turn + 1)
        tl.store(tally + 4 * row + 3, tl.load(tally + 4 * row + 3) + grown)


def settle(
    verdicts: Tensor,
    drafted: Tensor,
    sees: Tensor,
    slots: Tensor,
    count: Tensor,
    past: Tensor,
    lanes: Tensor,
    table: Tensor,
    lines: Tensor,
    texts: Tensor,
    supply: Tensor,
    written: Tensor,
    kept: Tensor,
    rounds: Tensor,
    tally: Tensor,
) -> None:
    """End a step: the accepted path of each row and the token behind it are its text from now on.

    verdicts are those of `verify`. A root and the nodes accepted below it keep their slots: they are noted in line
    lanes[r] of `table` and in `kept`, and the row draws others from `supply` [R, S]. Tokens are noted in line lines[r]
    of texts and in written [R, C]; the token behind them is the next root. tally [R, 4] counts what was written, what
    is wanted, steps and tokens computed; rounds [R, K, 2] takes what each of the first K steps drafted and gained. A
    token of −1 says that scores were broken, and ends the row. Rows with count 0 are left alone.
    Cost: one launch, one small program per row.
    """
    number = past.shape[0]
    tokens, chain = drafted.shape[0] // number, chained()
    _settle[(number,)](
        verdicts, verdicts.shape[1], drafted, sees, slots, count, past, lanes, table, lines, texts, supply, written,
        kept, rounds, tally, table.shape[1], texts.shape[1], supply.shape[1], written.shape[1], rounds.shape[1],
        tokens=tokens, words=sees.shape[1], num_warps=1, chained=chain, launch_pdl=chain,
    )  # fmt: skip
