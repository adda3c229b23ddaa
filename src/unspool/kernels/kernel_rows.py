"""A rectangular batch on the device: which keys each token of each row may see."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import torch
from torch import Tensor


class Visibility(IntEnum):
    """Which of its row's keys a token sees, beside those that all tokens of the row see."""

    CAUSAL = 0  # the new ones up to its own
    FULL = 1  # all new ones: a canvas
    BLOCKS = 2  # the new ones up to the end of its own block of places
    BITS = 3  # those whose bit is set: a tree


@dataclass(frozen=True)
class Rows:
    """R rows of T tokens each, of which `count[r]` are real; a row's keys are its older ones, then its new tokens'.

    Row r's tokens are r·T … r·T + count[r] − 1 of the batch. Its keys are the slots table[r, :past[r]], followed by the
    slots of its own tokens. Under BITS all of its tokens see the keys before clear[r] ≤ past[r], and bit b of sees[i]
    tells whether token i sees key clear[r] + b. The place of a key before clear[r] (past[r] without bits) is its index.
    All are int32 and contiguous.

    With `paths` each token reads what it sees in the order of its own text, whatever else was drafted: paths[r, t] has
    the slots of its keys from clear[r] (past[r] without bits) on, its own being the last.
    """

    table: Tensor  # [R, L]
    past: Tensor  # [R]
    count: Tensor  # [R], 0 for a row that is not used
    slots: Tensor  # [R·T], where each token's own key is; padding has the trash slot
    places: Tensor  # [R·T], the position of each in its text
    sight: Visibility = Visibility.CAUSAL
    block: int = 1  # places per block under BLOCKS
    clear: Tensor | None = None  # [R]
    sees: Tensor | None = None  # [R·T, W]
    key_places: Tensor | None = None  # [R, 32·W], places of the keys from clear[r] on; read where there is a window
    paths: Tensor | None = None  # [R, T, P]; tokens may share one, by a stride of 0
    before: Tensor | None = None  # [R·T], what each goes on from in recurrent layers, see `carried_state`
    into: Tensor | None = None  # [R·T], the state that it leaves

    @property
    def number(self) -> int:
        """R, the number of rows."""
        return self.past.shape[0]

    @property
    def tokens(self) -> int:
        """T, the number of tokens in a row, padding included."""
        return self.slots.shape[0] // self.number

    def part(self, begin: int, end: int) -> Rows:
        """Some of the rows."""
        names = ("table", "past", "count", "slots", "places", "clear", "sees", "key_places", "paths")
        of_tokens = {"slots", "places", "sees"}
        given = {name: (getattr(self, name), self.tokens if name in of_tokens else 1) for name in names}
        return replace(self, **{name: x[begin * n : end * n] for name, (x, n) in given.items() if x is not None})

    def seen(self, row: int, window: int | None, chunked: bool = False) -> tuple[Tensor, Tensor]:
        """The slots of a row's keys [K], and which of them its real tokens see [count, K]: what all kernels mean."""
        past, count, device = int(self.past[row]), int(self.count[row]), self.slots.device
        own = slice(row * self.tokens, row * self.tokens + count)
        slots = torch.cat((self.table[row, :past], self.slots[own]))
        asking, index = self.places[own], torch.arange(past + count, device=device)
        key_places = torch.cat((index[:past], asking))
        token = torch.arange(count, device=device)[:, None]
        if self.sight == Visibility.BITS:
            assert self.clear is not None
            assert self.sees is not None
            clear = int(self.clear[row])
            word = self.sees[own].long()[:, :, None] >> torch.arange(32, device=device) & 1
            bits = word.flatten(1)[:, : past + count - clear] == 1
            seen = torch.zeros(count, past + count, dtype=torch.bool, device=device)
            seen[:, :clear] = True
            seen[:, clear : clear + bits.shape[1]] = bits
            if window is not None:
                assert self.key_places is not None
                key_places = torch.cat((index[:clear], self.key_places[row, : past + count - clear]))
        elif self.sight == Visibility.FULL:
            seen = torch.ones(count, past + count, dtype=torch.bool, device=device)
        elif self.sight == Visibility.BLOCKS:
            seen = (index < past) | (key_places // self.block <= asking[:, None] // self.block)
        else:
            seen = index <= past + token
        if window is not None and chunked:
            seen &= key_places >= (asking - asking % window)[:, None]
        elif window is not None:
            seen &= asking[:, None] - key_places < window
        return slots, seen
