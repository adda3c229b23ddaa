"""Shares: how much of what all requests live on, cache or places, one of them may hold, and how small ones get theirs.

Requests stand in two lines, those of small and those of large ones, by what all their texts may need together, and each
in the order of their coming. Large ones hold at most a `share` of the whole, all of them together; the rest is only for
small ones. Small ones may have everything, but while a large one waits those that came after it keep to the rest, so
that its share comes free. So nobody who wants little ever waits for somebody who wants much, and both lines move on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .job import Account

SMALL = 4  # how many small requests fit into the share of the large ones


@dataclass(frozen=True)
class Shares:
    """How a supply of `whole` is parted; with a `share` of 1 nothing is left for small requests, and all are large."""

    whole: float
    share: float = 1.0

    @property
    def most(self) -> float:
        """What one request may hold, and all large ones together."""
        return max(1, math.floor(self.whole * self.share)) if self.whole < math.inf else self.whole

    @property
    def small(self) -> float:
        """Up to what a request is small; where there is no end of it, all are."""
        if self.whole == math.inf:
            return math.inf
        return min(max(1, self.most // SMALL), self.rest)

    @property
    def rest(self) -> float:
        """What is for small requests alone."""
        return self.whole - self.most if self.whole < math.inf else self.whole


class Ledger:
    """What small and large accounts hold of the cache and of the places, each of them together."""

    def __init__(self, tokens: Shares, places: Shares) -> None:
        self._tokens, self._places = tokens, places
        self._held: dict[bool, tuple[int, int]] = {False: (0, 0), True: (0, 0)}  # tokens and places, by large or not

    def large(self, account: Account) -> bool:
        """Whether an account wants much of one or the other for all its texts that have not ended."""
        return account.room > self._tokens.small or account.texts > self._places.small

    def allows(self, account: Account, room: int, waited: bool) -> bool:
        """Whether an account may have so much room and a place now; `waited` if a large one from before still waits."""
        large = self.large(account)
        (tokens, places), (others, seats) = self._held[large], self._held[not large]
        if tokens + others + room > self._tokens.whole or places + seats + 1 > self._places.whole:
            return False
        if large:
            return tokens + room <= self._tokens.most and places + 1 <= self._places.most
        return not waited or (tokens + room <= self._tokens.rest and places + 1 <= self._places.rest)

    def take(self, account: Account, room: int) -> None:
        """Let an account have so much room, and a place."""
        large = self.large(account)
        tokens, places = self._held[large]
        self._held[large] = tokens + room, places + 1
