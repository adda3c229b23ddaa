"""The longest earlier place of each text where its last tokens stand too: what followed there may follow again."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait

LONGEST = 16  # tokens that a match is measured by; among longer ones the latest wins
BLOCK = 1024  # places at a time
PLACES = tl.constexpr(20)  # bits of a place


@triton.jit
def _match(
    texts, lanes, ends, found, length, longest: tl.constexpr, block: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    row = tl.program_id(0)
    end = tl.load(ends + row)
    texts += tl.load(lanes + row).to(tl.int64) * length
    best = tl.full([], 0, tl.int32)
    for first in range(0, end, block):
        place = first + tl.arange(0, block)
        size = tl.zeros([block], tl.int32)
        alive = place < end
        for i in tl.static_range(longest):
            there = alive & (place >= i)
            last = tl.load(texts + end - i, mask=end >= i, other=-2)
            alive = there & (tl.load(texts + place - i, mask=there, other=-1) == last)
            size += alive.to(tl.int32)
        best = tl.maximum(best, tl.max(tl.where(size > 0, (size << PLACES) | place, 0), 0))
    size = best >> PLACES
    tl.store(found + 2 * row, size)
    tl.store(found + 2 * row + 1, best - (size << PLACES) + 1)


def match(texts: Tensor, lanes: Tensor, ends: Tensor) -> Tensor:
    """How many of each text's last tokens stand elsewhere in it, and the place behind them there: int32 [R, 2].

    texts [lanes, length] holds tokens, int32; row r is line lanes[r], and its last token stands at place ends[r]. The
    longest match wins, then the latest; at most 16 tokens are compared, and a size of 0 means there is none.
    Cost: each text once, from the cache of the chip; one launch.
    """
    found = torch.empty(ends.shape[0], 2, dtype=torch.int32, device=texts.device)
    chain = chained()
    _match[(ends.shape[0],)](
        texts, lanes, ends, found, texts.shape[1],
        longest=LONGEST, block=min(BLOCK, triton.next_power_of_2(texts.shape[1])), num_warps=8,
        chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return found


def reference(texts: Tensor, lanes: Tensor, ends: Tensor) -> Tensor:
    """The same, place by place."""
    found = torch.zeros(ends.shape[0], 2, dtype=torch.int32)
    for row, (lane, end) in enumerate(zip(lanes.tolist(), ends.tolist(), strict=True)):
        text, best = texts[lane].tolist(), (0, 0)
        for place in range(end):
            size = 0
            while size < LONGEST and size <= place and text[place - size] == text[end - size]:
                size += 1
            best = max(best, (size, place)) if size else best
        found[row] = torch.tensor([best[0], best[1] + 1])
    return found.to(texts.device)
