"""Words that a text must contain: every clause by one of its phrases, in any order, anywhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...core.option import expect
from .constraint import State, dead, over
from .form import Form, FormVocabulary


@dataclass(frozen=True)
class Keywords(Form):
    """A conjunction of clauses: the text may end only when each has one of its phrases in it, letter for letter.

    A phrase is found however tokens split it, inside longer words too; write spaces around it to avoid that. Nothing is
    forced to appear: a text that is cut by its length may lack some.
    """

    clauses: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        given = self.clauses
        listed = isinstance(given, (tuple, list)) and len(given) > 0
        expect(listed, "keywords", given, "at least one clause, as in (('dog', 'dogs'), ('ball',))")
        clauses = tuple((clause,) if isinstance(clause, str) else tuple(clause) for clause in given)
        for clause in clauses:
            fits = len(clause) > 0 and all(isinstance(phrase, str) and phrase for phrase in clause)
            expect(fits, "a clause of keywords", clause, "one or more phrases that are not empty")
        object.__setattr__(self, "clauses", clauses)

    def fit(self, words: FormVocabulary) -> Lexical:
        return Lexical(tuple(tuple(phrase.encode() for phrase in clause) for clause in self.clauses), words)


class Lexical:
    """An automaton over bytes that finds all phrases at once (Aho and Corasick's), and the clauses they satisfy."""

    def __init__(self, clauses: Sequence[Sequence[bytes]], words: FormVocabulary) -> None:
        self.words, self.clauses = words, clauses
        self._next: list[dict[int, int]] = [{}]
        self._path = [b""]  # what was read of a phrase where a node is reached
        self._found = [0]  # which clauses are satisfied where a node is reached, as bits
        for number, clause in enumerate(clauses):
            for phrase in clause:
                self._found[self._add(phrase)] |= 1 << number
        self._back = self._links()
        self.all = (1 << len(clauses)) - 1

    def start(self) -> State:
        return ClauseState(self, 0, 0)

    def read(self, node: int, have: int, data: bytes) -> tuple[int, int]:
        """Where some bytes lead, and what was found on the way."""
        for byte in data:
            while node and byte not in self._next[node]:
                node = self._back[node]
            node = self._next[node].get(byte, 0)
            have |= self._found[node]
        return node, have

    def unmet(self, have: int) -> list[bytes]:
        """The phrases of all clauses that do not hold yet."""
        return [phrase for number, clause in enumerate(self.clauses) if not have >> number & 1 for phrase in clause]

    def under_way(self, node: int, phrase: bytes) -> int:
        """How many bytes of a phrase a text ends in that has come to this node."""
        path = self._path[node]
        sizes = range(min(len(path), len(phrase) - 1), 0, -1)
        return next((size for size in sizes if path.endswith(phrase[:size])), 0)

    @cached_property
    def free(self) -> Tensor:
        """Every token."""
        return torch.ones(self.words.size, dtype=torch.bool)

    @cached_property
    def unfinished(self) -> Tensor:
        """Every token that does not end the text."""
        mask = torch.ones(self.words.size, dtype=torch.bool)
        mask[list(self.words.eos)] = False
        return mask

    def _add(self, phrase: bytes) -> int:
        node = 0
        for byte in phrase:
            if byte not in self._next[node]:
                self._next[node][byte] = len(self._next)
                self._next.append({})
                self._path.append(self._path[node] + bytes([byte]))
                self._found.append(0)
            node = self._next[node][byte]
        return node

    def _links(self) -> list[int]:
        """For every node, the longest other phrase beginning that its bytes end in; what that finds, it finds too."""
        back = [0] * len(self._next)
        queue = deque(self._next[0].values())
        while queue:
            node = queue.popleft()
            self._found[node] |= self._found[back[node]]
            for byte, below in self._next[node].items():
                link = back[node]
                while link and byte not in self._next[link]:
                    link = back[link]
                back[below] = self._next[link].get(byte, 0)
                queue.append(below)
        return back


@dataclass(frozen=True)
class ClauseState:
    """Which clauses hold so far, and the phrase that may just be under way."""

    of: Lexical
    node: int
    have: int

    def step(self, token: int) -> State:
        words = self.of.words
        if token in words.eos:
            return over(words) if self.complete() else dead(words)
        return ClauseState(self.of, *self.of.read(self.node, self.have, words.piece(token)))

    def mask(self) -> Tensor:
        return self.of.free if self.complete() else self.of.unfinished

    def allows(self, token: int) -> bool:
        return token not in self.of.words.eos or self.complete()

    def forced(self) -> tuple[int, ...]:
        return ()

    def wants(self) -> Sequence[bytes]:
        return [phrase[self.of.under_way(self.node, phrase) :] for phrase in self.of.unmet(self.have)]

    def complete(self) -> bool:
        return self.have == self.of.all


def keywords(*clauses: str | Sequence[str]) -> Keywords:
    """Texts that contain each of these, or of each list one."""
    return Keywords(tuple((clause,) if isinstance(clause, str) else tuple(clause) for clause in clauses))
