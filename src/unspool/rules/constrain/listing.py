"""Lists of token sequences put in order and grown into a trie, all at once by sorting: no item is walked alone."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.errors import BadRequest
from ...core.option import expect

WORD = 63  # bits of an integer that orders as it should
PART = 1 << 20  # items that are moved at a time, so that what it takes to move them stays small


class Listing(NamedTuple):
    """Sequences end to end: item i is tokens[starts[i] : starts[i] + lengths[i]]."""

    tokens: Tensor
    starts: Tensor
    lengths: Tensor

    @staticmethod
    def of(items: Any, lengths: Any = None) -> Listing:
        """A matrix with an item per row, of which the first lengths[i] count, or any iterable of sequences."""
        if isinstance(items, Tensor) or hasattr(items, "__array__"):
            return _rows(torch.as_tensor(items), lengths)
        expect(lengths is None, "lengths", "given", "none, unless the items are a matrix")
        return _flat(items)

    def refuse(self, vocab: int, ends: Iterable[int]) -> None:
        """BadRequest, with the index of the item, if there is none, one is empty, or one holds what it may not."""
        expect(len(self.lengths) > 0, "the item set", "empty", "at least one item")
        if bool((self.lengths == 0).any()):
            raise BadRequest(f"item {int(self.lengths.argmin())} has no tokens; expected at least one. Leave it out.")
        outside = (self.tokens < 0) | (self.tokens >= vocab)
        self._bar(outside, f"expected tokens from 0 to {vocab - 1}, those of the vocabulary")
        for end in ends:
            self._bar(self.tokens == end, "which ends a text. Leave it out: an item ends with its last token")

    def _bar(self, wrong: Tensor, said: str) -> None:
        if not bool(wrong.any()):
            return
        at = wrong.nonzero().flatten()
        item = torch.searchsorted(self.starts, at, right=True) - 1
        real = (at - self.starts[item] < self.lengths[item]).nonzero().flatten()  # padding may hold anything
        if len(real):
            first = int(real[0])
            raise BadRequest(f"item {int(item[first])} holds token {int(self.tokens[at[first]])}, {said}.")

    def codes(self, items: Tensor, depth: int) -> Tensor:
        """1 + the token that each of these items has at a depth, 0 behind its last: so that what ends comes first."""
        length = self.lengths[items]
        token = self.tokens[self.starts[items] + length.sub(1).clamp_max(depth)].long() + 1
        return torch.where(length > depth, token, 0)

    def order(self, vocab: int) -> Tensor:
        """The items by their tokens: those with the same beginning are together, next to those that end with it.

        As many tokens as fit into one integer are sorted by at once, behind the number of the beginning that they
        follow; after that only items whose beginnings are still alike are sorted on.
        Cost: one sort of all, then of what is left; about 60 bytes per item besides the listing.
        """
        width = vocab.bit_length()
        ordered = torch.arange(len(self.lengths))
        places, group = ordered.clone(), torch.zeros_like(ordered)
        depth, groups = 0, 1
        while len(places):
            items = ordered[places]
            left = int(self.lengths[items].max()) - depth
            key = group
            for _ in range(min(left, (WORD - groups.bit_length()) // width)):
                key = (key << width) | self.codes(items, depth)
                depth += 1
            key, by = key.sort()
            items = items[by]
            ordered[places] = items
            alike = key[1:] == key[:-1]
            group = torch.zeros_like(key)
            group[1:] = (~alike).cumsum(0)
            tied = torch.zeros(len(key), dtype=torch.bool)
            tied[1:] |= alike
            tied[:-1] |= alike
            tied &= self.lengths[items] > depth
            places, group = places[tied], group[tied]
            if len(group):
                kinds, group = torch.unique_consecutive(group, return_inverse=True)
                groups = len(kinds)
        return ordered

    def taken(self, items: Tensor) -> Listing:
        """These items alone, end to end: what is read next to each other then stands next to each other."""
        lengths = self.lengths[items]
        starts, width = lengths.cumsum(0) - lengths, int(lengths[0])
        if len(self.tokens) == len(self.lengths) * width and bool((self.lengths == width).all()):
            rows = self.tokens.view(-1, width)[items]  # whole rows move faster than single tokens
            return Listing(rows.int().flatten(), starts, lengths)
        parts = list[Tensor]()
        for some in range(0, len(items), PART):
            length = lengths[some : some + PART]
            shift = self.starts[items[some : some + PART]] - (length.cumsum(0) - length)
            where = torch.repeat_interleave(shift, length)
            parts.append(self.tokens[where.add_(torch.arange(len(where)))].int())
        return Listing(torch.cat(parts), starts, lengths)


class Grown(NamedTuple):
    """A trie whose nodes are numbered depth by depth, in the order of their items; 0 is the root.

    Every other node is below one edge, and edges have the order of their nodes: edge e leads to node e + 1.
    """

    tokens: Tensor  # [edges], int32: what leads to node e + 1
    first: Tensor  # [nodes + 1]: the edges below node n are first[n] … first[n + 1] − 1, by token
    ends: Tensor  # [nodes], bool: an item ends here
    levels: tuple[int, ...]  # how many nodes there are at each depth

    def sound(self, vocab: int, stops: Sequence[int]) -> bool:
        """Whether this is a trie at all: for one that comes from outside."""
        edges, nodes = len(self.tokens), len(self.ends)
        kinds = self.tokens.dtype, self.ends.dtype, self.first.dtype in (torch.int32, torch.int64)
        if kinds != (torch.int32, torch.bool, True) or not len(self.first) == nodes + 1 == edges + 2 > 2:
            return False
        degree, starts = self.first.diff(), torch.tensor([0, *self.levels]).cumsum(0)
        if int(self.first[0]) or bool((degree < 0).any()) or min(self.levels) < 1 or int(starts[-1]) != nodes:
            return False
        if (self.first[starts[:-1]] + 1).tolist() != starts[1:].tolist():  # below a level is the next one
            return False
        rising = torch.ones(edges + 1, dtype=torch.bool)
        rising[1:-1] = self.tokens[1:] > self.tokens[:-1]
        rising[self.first.long()] = True  # another node's list begins
        known = (self.tokens >= 0) & (self.tokens < vocab) & ~torch.isin(self.tokens, torch.tensor(stops).int())
        return bool(rising.all() and known.all() and (self.ends | (degree > 0)).all())


def grown(listing: Listing, vocab: int) -> Grown:
    """The trie of all items; equal ones are one.

    In order, an item needs a new node at a depth where its node above or its token differs from the item before.
    """
    flat, start, length = listing.taken(listing.order(vocab))
    node, above, levels = torch.zeros_like(start), 0, [1]
    tokens, degrees, ends = list[Tensor](), list[Tensor](), [torch.zeros(1, dtype=torch.bool)]
    for depth in range(int(length.max())):
        going = length > depth
        if not bool(going.all()):
            start, length, node = start[going], length[going], node[going]
        token = flat[start + depth]
        new = torch.ones(len(token), dtype=torch.bool)
        new[1:] = (node[1:] != node[:-1]) | (token[1:] != token[:-1])
        tokens.append(token[new])
        degrees.append(torch.bincount(node[new] - above, minlength=levels[-1]))
        above += levels[-1]
        node = new.cumsum(0) + (above - 1)
        levels.append(len(tokens[-1]))
        last = torch.zeros(levels[-1], dtype=torch.bool)
        last[node[length == depth + 1] - above] = True
        ends.append(last)
    edges = torch.cat(tokens)
    kind = torch.int32 if len(edges) < 2**31 - 1 else torch.int64
    first = torch.zeros(len(edges) + 2, dtype=kind)
    first[1 : above + 1] = torch.cat(degrees).cumsum(0)
    first[above + 1 :] = len(edges)  # nothing is below the last level
    return Grown(edges, first, torch.cat(ends), tuple(levels))


def _rows(matrix: Tensor, lengths: Any) -> Listing:
    fits = matrix.dim() == 2 and not matrix.dtype.is_floating_point and matrix.dtype != torch.bool
    expect(fits, "the item matrix", f"{matrix.dtype} {tuple(matrix.shape)}", "integers, an item per row")
    number, width = matrix.shape
    if matrix.dtype not in (torch.int32, torch.int64):
        matrix = matrix.long()
    if lengths is None:
        size = torch.full((number,), width)
    else:
        size = torch.as_tensor(lengths).long().cpu()
        fits = size.shape == (number,) and bool(((size >= 0) & (size <= width)).all())
        expect(fits, "lengths", f"{tuple(size.shape)}", f"{number} numbers of tokens, each from 0 to {width}")
    return Listing(matrix.cpu().reshape(-1), torch.arange(number) * width, size)


def _flat(items: Iterable[Sequence[int]]) -> Listing:
    tokens, lengths = array("i"), array("q")
    for number, item in enumerate(items):
        before = len(tokens)
        try:
            tokens.extend(item)
        except (TypeError, OverflowError) as error:
            raise BadRequest(f"item {number} is {item!r:.80}; expected a sequence of token ids ({error}).") from None
        lengths.append(len(tokens) - before)
    size = torch.frombuffer(lengths, dtype=torch.int64) if lengths else torch.zeros(0, dtype=torch.int64)
    flat = torch.frombuffer(tokens, dtype=torch.int32) if tokens else torch.zeros(0, dtype=torch.int32)
    return Listing(flat, size.cumsum(0) - size, size)
