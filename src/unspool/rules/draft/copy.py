"""Copying the input: for editing, where most of the answer stands in the question."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...core.asks import Scores
from ...core.chance import Chance
from ...core.claim import SEED, Method, claims
from ...core.errors import BadRequest
from ...core.law import chosen
from ...core.tree import NOTHING, Tree
from ...core.warp.warp import Prefix
from ...loops.drafter import Draft, Proposing, Source
from ...loops.speculate import Speculate


def _trials(_: type[Copy]) -> list[Method]:
    return [Speculate(Copy(2, 1), budget=2), Speculate(Copy(3, 2), budget=3), Speculate(Copy(2, 1, input=(0, 1, 1, 0)))]


@claims(SEED, trials=_trials, paper="2205.10350", systems=("Input-guided aggressive decoding (IAD)",))
@dataclass(frozen=True)
class Copy(Draft):
    """Draft the input from where the text last agreed with it, up to `depth` tokens at a time.

    When the text leaves the input nothing is drafted until its last n tokens, for the smallest n ≤ `ngram` that tells,
    stand exactly once in the input: copying goes on from there. `input` are the tokens that are edited, copied from
    their start; without it the prompt is the input, and copying starts at the first such match. The paper drafts all
    that is left of the input at once, which a cap of `depth` only splits into rounds.

    Claim: SEED under sample matching, ARGMAX under greedy.
    Cost: no model; where the text has left the input, up to `ngram` searches through it per round, of microseconds.
    """

    depth: int = 16
    ngram: int = 3
    input: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.depth < 1 or self.ngram < 1:
            raise BadRequest(
                f"copy:depth={self.depth},ngram={self.ngram} cannot be used; expected depth ≥ 1 and ngram ≥ 1"
            )

    def begin(self, prefix: Prefix) -> Source:
        if self.input is None:
            return Pointer(self, prefix.text, len(prefix), None, _letters(prefix.text))
        return Pointer(self, self.input, len(prefix), 0, self._spelt)

    @cached_property
    def _spelt(self) -> str:
        """The input as letters, made once for all texts that copy it."""
        return _letters(self.input or ())


class Pointer(Source):
    """Where in the input the text of one request is."""

    def __init__(self, copy: Copy, source: tuple[int, ...], prompt: int, at: int | None, spelt: str) -> None:
        self.copy, self.source, self.seen, self.prompt, self.at = copy, source, prompt, prompt, at
        self._spelt = spelt

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        yield from ()
        if self.at is None:
            self.at = self._found(prefix.text[self.prompt :])
        if self.at is None:
            return NOTHING
        copied = self.source[self.at : self.at + min(self.copy.depth, budget)]
        return Tree.chain([chosen(x) for x in copied])

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        new = prefix.text[self.seen :]
        self.seen = len(prefix)
        if self.at is not None:
            end = self.at + len(new)
            self.at = end if self.source[self.at : end] == new else None

    def _found(self, written: tuple[int, ...]) -> int | None:
        for n in range(1, min(self.copy.ngram, len(written)) + 1):
            gram = _letters(written[-n:])
            first = self._spelt.find(gram)
            if first < 0:
                return None  # a longer one does not stand there either
            if self._spelt.find(gram, first + 1) < 0:
                return first + n
        return None


def _letters(tokens: tuple[int, ...]) -> str:
    """A letter for each token: to look for one text in another is faster than any index of it could be made."""
    return "".join(map(chr, tokens))
