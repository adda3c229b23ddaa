"""A set of items, each a sequence of tokens, as a trie in flat arrays that a whole batch of texts can step through."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ... import kernels
from ...core.errors import BadRequest
from ...core.files import plain_file
from ...core.law import NEVER
from ...core.option import expect, whole
from .bits import packed
from .listing import Grown, Listing, grown

ROOT, OVER, DEAD = 0, -1, -2  # before the first token; after the end; where no item can follow any more
TENSORS = ("stops", "tokens", "first", "ends", "wide", "bits")
PART = 1 << 24  # marks that are packed at a time
FORMAT = "unspool items 1"


class Candidates(NamedTuple):
    """What may follow each row: scores, tokens and the nodes they lead to; −∞, −1 and DEAD where there is nothing."""

    scores: Tensor
    tokens: Tensor
    nodes: Tensor


@dataclass(frozen=True, eq=False)
class ItemSet:
    """A trie over token sequences as a sparse matrix: tokens[first[n] : first[n + 1]] may follow node n.

    A state is the number of a node, or OVER, or DEAD. Nodes are numbered depth by depth, so edge e leads to node e + 1
    and next nodes need not be stored. A node whose list would be longer than a bit per token of the vocabulary is wide
    and has these bits too. They stand for the paper's dense tables of the first two levels, which for every pair of
    tokens would be too large for a language model's vocabulary. An item may be the beginning of another: where one
    ends, the tokens `stops` may follow and lead to OVER.

    Cost: 9 bytes per node (13 beyond 2³¹ of them), at most 8 more per edge of wide nodes; a step costs what may follow,
    not how many items there are.
    """

    vocab: int
    stops: Tensor  # [E], int32
    tokens: Tensor  # [edges], int32
    first: Tensor  # [nodes + 1], int32 or int64
    ends: Tensor  # [nodes], bool: an item ends here
    levels: tuple[int, ...]  # nodes at each depth
    widths: tuple[int, ...]  # the most tokens that may follow a node, for each depth
    wide: Tensor  # [W], wide nodes in order, typed as `first`
    bits: Tensor  # [W, ⌈vocab/32⌉], int32: bit x mod 32 of word x div 32 says whether token x may follow

    @staticmethod
    def of(items: Any, vocab: int, stops: Collection[int] = (), lengths: Any = None) -> ItemSet:
        """The set of these items over tokens 0 … vocab − 1; `stops` are the tokens that end a text, in no item.

        `items` is any iterable of sequences, or a matrix (a tensor or an array) with an item per row; then
        lengths[i] says how much of row i counts. Equal items are one. BadRequest names the first item that cannot be.
        """
        expect(whole(vocab, 1, 2**31 - 1), "vocab", vocab, "the number of tokens of the vocabulary")
        known = tuple(sorted(set(stops)))
        expect(all(whole(x, 0, vocab - 1) for x in known), "stops", known, f"tokens from 0 to {vocab - 1}")
        listing = Listing.of(items, lengths)
        listing.refuse(vocab, known)
        return _widened(vocab, known, grown(listing, vocab))

    # ---- what is known of the set

    @cached_property
    def count(self) -> int:
        """How many different items there are."""
        return int(self.ends.sum())

    def __len__(self) -> int:
        return self.count

    @property
    def bytes(self) -> int:
        """The memory that the set takes."""
        return sum(getattr(self, name).nbytes for name in TENSORS)

    @property
    def device(self) -> torch.device:
        """Where the set is."""
        return self.tokens.device

    def to(self, device: torch.device | str) -> ItemSet:
        """The set on another device."""
        return replace(self, **{name: getattr(self, name).to(device) for name in TENSORS})

    def __repr__(self) -> str:
        sizes = f"{self.count:,} items, {len(self.ends):,} nodes, {self.vocab:,} tokens, {self.bytes / 1e6:,.1f} MB"
        return f"ItemSet({sizes} on {self.device})"

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """How many tokens items have, the least first."""
        levels = self.ends.split(list(self.levels))  # type: ignore[no-untyped-call]
        return tuple(length for length, ends in enumerate(levels) if bool(ends.any()))

    def rows(self, length: int) -> Tensor:
        """All items of exactly so many tokens, [items, length]: from their last nodes up to the root."""
        if length not in self.lengths:
            return torch.zeros(0, length, dtype=torch.long)
        begin = sum(self.levels[:length])
        nodes = begin + self.ends[begin : begin + self.levels[length]].nonzero().flatten()
        columns = list[Tensor]()
        for _ in range(length):
            columns.append(self.tokens[nodes - 1].long())
            nodes = torch.searchsorted(self.first, (nodes - 1).to(self.first.dtype), right=True) - 1
        return torch.stack(columns[::-1], 1)

    # ---- one text

    def edges(self, node: int) -> tuple[int, int]:
        """The edges below a node, from the first to behind the last; none below OVER and DEAD."""
        if node < 0:
            return 0, 0
        begin, end = self.first[node : node + 2].tolist()
        return begin, end

    def may_end(self, node: int) -> bool:
        """True if an item ends here, or has ended."""
        return bool(self.ends[node]) if node >= 0 else node == OVER

    # ---- many texts at once

    def masked(self, nodes: Tensor, scores: Tensor) -> Tensor:
        """Scores [B, vocab] of what may follow nodes [B], −∞ for all else. They are not normalised.

        Cost: on a GPU one launch, which writes the result once and reads scores only where they are wanted.
        """
        self._expect(nodes, scores)
        if scores.is_cuda and _triton():
            return kernels.follow.masked(self, nodes, scores)
        return self.gathered(nodes, scores)

    def gathered(self, nodes: Tensor, scores: Tensor) -> Tensor:
        """What `masked` gives, by PyTorch alone: lists where they are short, bits where nodes are wide."""
        begin, degree = self._edges(nodes)
        dense = degree > self.vocab // 32
        rows = dense.nonzero().flatten()
        if len(rows) == len(nodes) > 0:
            out = torch.where(self._marks(nodes), scores, NEVER)
        else:
            out = torch.full_like(scores, NEVER)
            few = degree.masked_fill(dense, 0)
            row = torch.repeat_interleave(few)
            place = torch.arange(len(row), device=row.device) - (few.cumsum(0) - few)[row]
            token = self.tokens[begin[row] + place].long()
            out[row, token] = scores[row, token]
            if len(rows):
                out[rows] = torch.where(self._marks(nodes[rows]), scores[rows], NEVER)
        rows, stops = self._ended(nodes).nonzero(), self.stops.long()
        out[rows, stops] = scores[rows, stops]
        return out

    def step(self, nodes: Tensor, tokens: Tensor) -> Tensor:
        """The nodes [B] after one more token each; DEAD where it may not follow.

        Cost: a binary search among what may follow.
        """
        expect(nodes.shape == tokens.shape and nodes.dim() == 1, "tokens", tuple(tokens.shape), "one for every node")
        if nodes.is_cuda and _triton():
            return kernels.follow.step(self, nodes, tokens)
        return self.searched(nodes, tokens)

    def searched(self, nodes: Tensor, tokens: Tensor) -> Tensor:
        """What `step` gives, by PyTorch alone."""
        begin, degree = self._edges(nodes)
        low, high, last = begin, begin + degree, len(self.tokens) - 1
        for _ in range(int(degree.max()).bit_length() if len(degree) else 0):
            middle = (low + high) // 2
            below = (low < high) & (self.tokens[middle.clamp_max(last)] < tokens)
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
        found = (low < begin + degree) & (self.tokens[low.clamp_max(last)] == tokens)
        after = torch.where(found, low + 1, DEAD)
        return torch.where(torch.isin(tokens, self.stops) & self._ended(nodes), OVER, after)

    def candidates(self, nodes: Tensor, scores: Tensor, width: int | None = None) -> Candidates:
        """What may follow nodes [B] and how it scores, [B, width + stops]: never as wide as the vocabulary.

        `width` is at least the number of tokens that may follow any of these; for nodes at depth d, widths[d]. Shapes
        then depend on nothing else, so that a step can be captured in a graph.
        """
        self._expect(nodes, scores)
        if width is None or not nodes.is_cuda:  # what a GPU counts is not waited for
            most = int(self._edges(nodes)[1].max()) if len(nodes) else 0
            width = most if width is None else width
            expect(width >= most, "width", width, f"at least {most}: so many tokens may follow one of the nodes")
        if nodes.is_cuda and _triton():
            return Candidates(*kernels.follow.candidates(self, nodes, scores, width))
        return self.listed(nodes, scores, width)

    def listed(self, nodes: Tensor, scores: Tensor, width: int) -> Candidates:
        """What `candidates` gives, by PyTorch alone."""
        begin, degree = self._edges(nodes)
        place = torch.arange(width, device=nodes.device)
        inside = place < degree[:, None]
        edge = torch.where(inside, begin[:, None] + place, 0)
        more = self.stops.long().expand(len(nodes), -1)
        token = torch.cat((self.tokens[edge].long(), more), 1)
        after = torch.cat((edge + 1, torch.full_like(more, OVER)), 1)
        inside = torch.cat((inside, self._ended(nodes)[:, None].expand_as(more)), 1)
        found = torch.where(inside, scores.gather(1, token), NEVER)
        return Candidates(found, torch.where(inside, token, -1), torch.where(inside, after, DEAD))

    def _edges(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """The first edge below each of these nodes, and how many there are."""
        at = nodes.long().clamp_min(0)
        begin = self.first[at].long()
        return begin, torch.where(nodes >= 0, self.first[at + 1] - begin, 0)

    def _marks(self, nodes: Tensor) -> Tensor:
        """Which tokens may follow nodes that are all wide; one row if they are all the same."""
        kinds, kind = torch.unique(nodes.long(), return_inverse=True)
        marks = _unpacked(self.bits[torch.searchsorted(self.wide, kinds.to(self.wide.dtype))], self.vocab)
        return marks if len(kinds) == 1 else marks[kind]

    def _ended(self, nodes: Tensor) -> Tensor:
        return torch.where(nodes >= 0, self.ends[nodes.long().clamp_min(0)], nodes == OVER)

    def _expect(self, nodes: Tensor, scores: Tensor) -> None:
        if nodes.dim() != 1 or scores.shape != (len(nodes), self.vocab) or scores.device != self.device:
            raise BadRequest(
                f"scores are {tuple(scores.shape)} on {scores.device}; expected ({len(nodes)}, {self.vocab}) on "
                f"{self.device}, where the set is: a row for every node."
            )

    # ---- files

    def save(self, path: str | Path) -> None:
        """Write the set to a safetensors file, whole or not at all."""
        path = Path(path)
        partial = path.with_name(path.name + ".partial")
        meta = {"format": FORMAT, "vocab": self.vocab, "stops": self.stops.tolist(), "levels": self.levels}
        tensors = {name: getattr(self, name).cpu().contiguous() for name in ("tokens", "first", "ends")}
        save_file(tensors, partial, {"items": json.dumps(meta)})
        partial.replace(path)

    @staticmethod
    def load(path: str | Path) -> ItemSet:
        """What `save` has written; a damaged file is refused."""
        try:
            with safe_open(plain_file(path), "pt") as file:
                meta = json.loads((file.metadata() or {})["items"])
                tokens, first, ends = (file.get_tensor(name) for name in ("tokens", "first", "ends"))
            made = Grown(tokens, first, ends, tuple(meta["levels"]))
            if meta["format"] != FORMAT or not made.sound(meta["vocab"], meta["stops"]):
                raise ValueError("it is damaged, or of another version")
            return _widened(meta["vocab"], tuple(meta["stops"]), made)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, IndexError, RuntimeError) as error:
            raise BadRequest(
                f"{path} holds no item set: {error}; expected a file that ItemSet.save has written"
            ) from None


def _widened(vocab: int, stops: tuple[int, ...], made: Grown) -> ItemSet:
    """The set with the bits of its wide nodes."""
    widths, wide, start = list[int](), list[Tensor](), 0
    for size in made.levels:
        degree = made.first[start : start + size + 1].diff()
        widths.append(int(degree.max()))
        wide.append((degree > vocab // 32).nonzero().flatten() + start)
        start += size
    nodes, words = torch.cat(wide), -(-vocab // 32)
    bits = torch.empty(len(nodes), words, dtype=torch.int32)
    some = max(1, PART // vocab)
    for at in range(0, len(nodes), some):
        node = nodes[at : at + some]
        begin, degree = made.first[node].long(), made.first[node + 1] - made.first[node]
        row = torch.repeat_interleave(degree)
        edge = (begin - (degree.cumsum(0) - degree))[row] + torch.arange(len(row))
        marks = torch.zeros(len(node), 32 * words, dtype=torch.bool)
        marks[row, made.tokens[edge].long()] = True
        bits[at : at + some] = packed(marks.flatten()).view(torch.int32).view(len(node), words)
    ends, nodes = torch.tensor(stops, dtype=torch.int32), nodes.to(made.first.dtype)
    return ItemSet(vocab, ends, made.tokens, made.first, made.ends, made.levels, tuple(widths), nodes, bits)


def _unpacked(bits: Tensor, vocab: int) -> Tensor:
    """Bits of int32 [rows, n] as booleans [rows, vocab]."""
    one = torch.tensor([1 << bit for bit in range(8)], dtype=torch.uint8, device=bits.device)
    return ((bits.view(torch.uint8)[:, :, None] & one) != 0).flatten(1)[:, :vocab]


@cache
def _triton() -> bool:
    return importlib.util.find_spec("triton") is not None
