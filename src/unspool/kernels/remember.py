"""Remembered laws on the device: the likeliest tokens after every two tokens, found again by their hash."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait

WIDTH = tl.constexpr(8)  # tokens that are remembered of a law
ALONE = tl.constexpr(-2)  # stands for any token before the last


class LawTable:
    """A table of `size` laws (a power of two), each under the hash of its text's tag and its last two tokens.

    A law goes where its hash says, and what stood there is gone; so one table serves all texts, finding a law takes one
    look, and nothing is ever cleared: a text with a new tag finds nothing of the old ones.
    """

    def __init__(self, size: int, device: torch.device) -> None:
        self.size = size
        self.known = torch.zeros(size, dtype=torch.int64, device=device)
        self.tokens = torch.zeros(size, int(WIDTH.value), dtype=torch.int32, device=device)
        self.weights = torch.zeros(size, int(WIDTH.value), dtype=torch.float32, device=device)


@triton.jit
def mixed(tag, a, b):
    """The hash of two tokens in a text, never 0 for practical purposes: a multiply and fold each."""
    x = tag.to(tl.int64) * 0x1E3779B97F4A7C15 + a.to(tl.int64) * 0x42B2AE3D27D4EB4F
    x += b.to(tl.int64) * 0x165667B19E3779F9
    x = (x ^ (x >> 31)) * 0x2545F4914F6CDD1D
    return x ^ (x >> 29)


@triton.jit
def _remember(
    tops, best, drafted, parents, count, texts, lanes, past, tags, known, laws, weights,
    tokens, length, size, k: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    row, node = tl.program_id(0), tl.program_id(1)
    if node < tl.load(count + row):
        at = row * tokens + node
        above = tl.load(parents + at)
        end = tl.load(past + row)
        before = tl.load(texts + tl.load(lanes + row).to(tl.int64) * length + end - 1, mask=end > 0, other=-1)
        a = tl.where(above < 0, before, tl.load(drafted + row * tokens + above, mask=above >= 0, other=0))
        b, tag = tl.load(drafted + at), tl.load(tags + row)
        lane = tl.arange(0, k)
        value = tl.load(tops + at * k + lane)
        weight = tl.exp(value - tl.max(value, 0))
        weight /= tl.sum(weight, 0)
        token = tl.load(best + at * k + lane)
        for alone in tl.static_range(2):
            key = mixed(tag, tl.where(alone == 1, ALONE, a), b)
            slot = key & (size - 1)
            tl.store(known + slot, key)
            tl.store(laws + slot * k + lane, token)
            tl.store(weights + slot * k + lane, weight)


def remember(
    laws: LawTable,
    tops: Tensor,
    best: Tensor,
    drafted: Tensor,
    parents: Tensor,
    count: Tensor,
    texts: Tensor,
    lanes: Tensor,
    past: Tensor,
    tags: Tensor,
) -> None:
    """Put down the 8 best tokens after every token of a batch of trees, by the two tokens before them and by the last.

    tops and best [R·T, 8] are their scores and ids; drafted and parents [R·T] the tokens of the rows and what they hang
    from, count [R] how many are real. The root of row r stands at place past[r] of line lanes[r] of texts. Of several
    that go to one place any one stays; that changes what is drafted later, never what is written.
    Cost: one launch.
    """
    number = count.shape[0]
    tokens = drafted.shape[0] // number
    chain = chained()
    _remember[(number, tokens)](
        tops, best, drafted, parents, count, texts, lanes, past, tags, laws.known, laws.tokens, laws.weights,
        tokens, texts.shape[1], laws.size, k=WIDTH, num_warps=1, chained=chain, launch_pdl=chain,
    )  # fmt: skip
