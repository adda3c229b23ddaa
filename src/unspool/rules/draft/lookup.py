"""Prompt lookup: what followed the last time these tokens stood here."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.chance import Chance
from ...core.claim import SEED, claims
from ...core.errors import BadRequest
from ...core.law import chosen
from ...core.tree import NOTHING, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source
from ...loops.speculate import Speculate


@claims(
    SEED,
    trials=lambda _: [
        Speculate(Lookup(1, 1, 2), budget=2),
        Speculate(Lookup(2, 1, 3), budget=3),
        Speculate(Lookup(2, 2, 3), budget=3),
    ],
    paper="2304.04487",
    systems=("Prompt lookup decoding", "LLMA"),
)
@dataclass(frozen=True)
class Lookup(Draft):
    """Copy up to `depth` tokens from the latest earlier place where the last `ngram` tokens, or ≥ `least`, stood.

    Where "the museum opens at nine" stands in the prompt and the text has come to "the museum", what followed there is
    drafted: "opens at nine". The longest match decides, from `ngram` tokens down to `least`. The tokens were chosen,
    not drawn, so their laws are point masses.

    Claim: SEED under sample matching. Cost: no model; per token and length one entry of a dictionary, per round one
    look-up.
    """

    ngram: int = 3
    least: int = 2
    depth: int = 5

    def __post_init__(self) -> None:
        if not (1 <= self.least <= self.ngram and self.depth >= 1):
            raise BadRequest(
                f"lookup:ngram={self.ngram},least={self.least},depth={self.depth} cannot be used; "
                "expected 1 ≤ least ≤ ngram and depth ≥ 1"
            )

    def begin(self, prefix: Prefix) -> Source:
        return Places(self)


class Places(Source):
    """Where each n-gram of one text ended last, the one at the very end of the text left out."""

    def __init__(self, rule: Lookup) -> None:
        self.rule, self.seen = rule, 0
        self.ends: list[dict[tuple[int, ...], int]] = [{} for _ in range(rule.least, rule.ngram + 1)]

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from ()
        self.read(prefix.text)
        copied = self.copied(prefix.text, min(self.rule.depth, budget))
        return Tree.chain([chosen(x) for x in copied]) if copied else NOTHING

    def read(self, text: tuple[int, ...]) -> None:
        """Note where the new n-grams end; what ends with the text itself waits, for it is no earlier place."""
        for n, ends in enumerate(self.ends, self.rule.least):
            for end in range(max(self.seen + 1, n), len(text)):
                ends[text[end - n : end]] = end
        self.seen = max(self.seen, len(text) - 1)

    def copied(self, text: tuple[int, ...], depth: int) -> tuple[int, ...]:
        """What followed the latest earlier place of the longest n-gram that has one."""
        place = self.found(text)
        return () if place is None else text[place : place + depth]

    def found(self, text: tuple[int, ...]) -> int | None:
        """Where that is: the place of the first token to copy."""
        for n in range(min(self.rule.ngram, len(text) - 1), self.rule.least - 1, -1):
            end = self.ends[n - self.rule.least].get(text[-n:])
            if end is not None:
                return end
        return None
