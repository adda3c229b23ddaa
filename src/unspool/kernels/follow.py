"""What may follow each row of a batch in a trie of flat arrays: the scores of those tokens, and the node after one."""

from typing import Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096  # scores per program
FEW = 128  # tokens that are looked at together; lists up to here are not searched for a block's part
LANES = 128  # rows per program of a step


class ItemTrie(Protocol):
    """The arrays of a constraint's `ItemSet`, which says what they mean; all on one GPU and contiguous."""

    @property
    def vocab(self) -> int:
        """Tokens of the vocabulary."""
        ...

    @property
    def widths(self) -> tuple[int, ...]:
        """The longest list at each depth."""
        ...

    @property
    def stops(self) -> Tensor:
        """Tokens that may follow where an item ends, int32."""
        ...

    @property
    def tokens(self) -> Tensor:
        """All lists end to end, int32."""
        ...

    @property
    def first(self) -> Tensor:
        """Where the list of each node begins, int32 or int64."""
        ...

    @property
    def ends(self) -> Tensor:
        """Whether an item ends at each node, bool."""
        ...

    @property
    def wide(self) -> Tensor:
        """The nodes that have bits, typed as `first`."""
        ...

    @property
    def bits(self) -> Tensor:
        """Their bits, int32."""
        ...


@triton.jit
def _lower(values, low, high, wanted):
    """The first place from `low` on, before `high`, whose value is not below `wanted`."""
    while low < high:
        middle = (low + high) // 2
        below = tl.load(values + middle) < wanted
        low = tl.where(below, middle + 1, low)
        high = tl.where(below, high, middle)
    return low


@triton.jit
def _masked(
    scores, out, nodes, tokens, first, ends, wide, bits, stops, vocab, words, wides, ended, stride,
    block: tl.constexpr, few: tl.constexpr, lanes: tl.constexpr,
):  # fmt: skip
    row, chunk = tl.program_id(0), tl.program_id(1)
    node = tl.load(nodes + row).to(tl.int64)
    at = tl.maximum(node, 0)
    begin = tl.load(first + at).to(tl.int64)
    end = tl.where(node < 0, begin, tl.load(first + at + 1).to(tl.int64))
    stop = tl.where(node < 0, node == -1, tl.load(ends + at) != 0)
    line, to = scores + row.to(tl.int64) * stride, out + row.to(tl.int64) * vocab
    start = chunk * block
    x = start + tl.arange(0, block)
    if end - begin > vocab // 32:
        found = _lower(wide, begin * 0, begin * 0 + wides, node)
        word = tl.load(bits + found * words + x // 32, mask=x < vocab, other=0)
        allowed = ((word >> (x % 32)) & 1) == 1
        tl.store(to + x, tl.load(line + x, mask=allowed, other=float("-inf")), mask=x < vocab)
    else:
        tl.store(to + x, tl.full([block], float("-inf"), tl.float32).to(out.dtype.element_ty), mask=x < vocab)
        if end - begin > few:
            begin = _lower(tokens, begin, end, start)
            end = _lower(tokens, begin, end, start + block)
        tl.debug_barrier()  # −∞ was written by other threads
        lane = tl.arange(0, few)
        while begin < end:
            token = tl.load(tokens + begin + lane, mask=begin + lane < end, other=-1)
            mine = (token >= start) & (token < start + block)
            tl.store(to + token, tl.load(line + token, mask=mine, other=0.0), mask=mine)
            begin += few
    if stop:
        tl.debug_barrier()
        lane = tl.arange(0, lanes)
        token = tl.load(stops + lane, mask=lane < ended, other=-1)
        mine = (token >= start) & (token < start + block)
        tl.store(to + token, tl.load(line + token, mask=mine, other=0.0), mask=mine)


@triton.jit
def _step(nodes, chosen, after, tokens, first, ends, stops, number, last, ended, rounds, lanes: tl.constexpr):
    row = tl.program_id(0) * lanes + tl.arange(0, lanes)
    inside = row < number
    node = tl.load(nodes + row, mask=inside, other=-2).to(tl.int64)
    token = tl.load(chosen + row, mask=inside, other=-1).to(tl.int64)
    at = tl.maximum(node, 0)
    low = tl.load(first + at).to(tl.int64)
    end = tl.where(node < 0, low, tl.load(first + at + 1).to(tl.int64))
    high = end
    for _ in range(rounds):
        middle = (low + high) // 2
        below = (low < high) & (tl.load(tokens + tl.minimum(middle, last)) < token)
        low, high = tl.where(below, middle + 1, low), tl.where(below, high, middle)
    found = (low < end) & (tl.load(tokens + tl.minimum(low, last)) == token)
    result = tl.where(found, low + 1, -2)
    stop = tl.where(node < 0, node == -1, tl.load(ends + at) != 0)
    for i in range(ended):
        result = tl.where(stop & (token == tl.load(stops + i)), -1, result)
    tl.store(after + row, result, mask=inside)


@triton.jit
def _candidates(
    scores, found, named, after, nodes, tokens, first, ends, stops, width, total, stride, block: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    node = tl.load(nodes + row).to(tl.int64)
    at = tl.maximum(node, 0)
    begin = tl.load(first + at).to(tl.int64)
    end = tl.where(node < 0, begin, tl.load(first + at + 1).to(tl.int64))
    stop = tl.where(node < 0, node == -1, tl.load(ends + at) != 0)
    lane = tl.program_id(1) * block + tl.arange(0, block)
    inside = (lane < width) & (begin + lane < end)
    ending = (lane >= width) & (lane < total) & stop
    token = tl.load(tokens + begin + lane, mask=inside, other=-1)
    token = tl.where(ending, tl.load(stops + lane - width, mask=ending, other=-1), token)
    score = tl.load(scores + row * stride + token, mask=inside | ending, other=float("-inf"))
    to = row * total + lane
    tl.store(found + to, score, mask=lane < total)
    tl.store(named + to, token.to(tl.int64), mask=lane < total)
    tl.store(after + to, tl.where(inside, begin + lane + 1, tl.where(ending, -1, -2)), mask=lane < total)


def masked(trie: ItemTrie, nodes: Tensor, scores: Tensor) -> Tensor:
    """Scores [B, vocab] of the tokens that may follow nodes [B], −∞ for all others.

    Each program has a block of one row. Below a wide node it reads a bit per token; else it writes −∞ and then, over
    it, the few scores that its part of the node's list names.
    Cost: one launch; what is written is the result, what is read is one bit per token or the node's list, and the
    scores that stay.
    """
    number, vocab = scores.shape
    scores = scores if scores.stride(1) == 1 else scores.contiguous()
    out = torch.empty(number, vocab, dtype=scores.dtype, device=scores.device)
    block, ended = min(BLOCK, triton.next_power_of_2(vocab)), trie.stops.shape[0]
    _masked[(number, triton.cdiv(vocab, block))](
        scores, out, nodes.contiguous(), trie.tokens, trie.first, trie.ends, trie.wide, trie.bits, trie.stops,
        vocab, trie.bits.shape[1], trie.wide.shape[0], ended, scores.stride(0),
        block=block, few=FEW, lanes=triton.next_power_of_2(max(ended, 1)), num_warps=max(1, min(8, block // 512)),
    )  # fmt: skip
    return out


def step(trie: ItemTrie, nodes: Tensor, tokens: Tensor) -> Tensor:
    """The nodes [B], int64, that tokens [B] lead to from nodes [B].

    Cost: one launch; a binary search in the lists, in as many rounds as the longest of them needs.
    """
    number = nodes.shape[0]
    after = torch.empty(number, dtype=torch.int64, device=nodes.device)
    _step[(triton.cdiv(number, LANES),)](
        nodes.contiguous(), tokens.contiguous(), after, trie.tokens, trie.first, trie.ends, trie.stops,
        number, trie.tokens.shape[0] - 1, trie.stops.shape[0], max(trie.widths).bit_length(), lanes=LANES, num_warps=4,
    )  # fmt: skip
    return after


def candidates(trie: ItemTrie, nodes: Tensor, scores: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, tokens and next nodes [B, width + stops] of what may follow nodes [B], int64 but for the scores.

    The list of a node comes first, then the stops; −∞, −1 and −2 where there is nothing.
    Cost: one launch, which reads and writes these and nothing else.
    """
    scores = scores if scores.stride(1) == 1 else scores.contiguous()
    shape = number, total = scores.shape[0], width + trie.stops.shape[0]
    found = torch.empty(shape, dtype=scores.dtype, device=scores.device)
    named, after = (torch.empty(shape, dtype=torch.int64, device=scores.device) for _ in range(2))
    block = max(32, min(1024, triton.next_power_of_2(total)))
    _candidates[(number, triton.cdiv(total, block))](
        scores, found, named, after, nodes.contiguous(), trie.tokens, trie.first, trie.ends, trie.stops,
        width, total, scores.stride(0), block=block, num_warps=max(1, min(8, block // 128)),
    )  # fmt: skip
    return found, named, after
