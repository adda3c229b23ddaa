"""A choice among many texts, as a trie of their tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torch import Tensor

from ...core.errors import BadRequest
from ...core.option import expect
from .constraint import Constraint, State, dead, mask_of, over
from .form import Form, FormVocabulary, refuse_half_characters, spelt


@dataclass(frozen=True)
class Choices(Form):
    """The text is one of these, each spelt as the vocabulary spells it; good for lists of many thousand.

    Cost: one node per different prefix; a mask costs the tokens that may follow.
    """

    texts: tuple[str, ...]

    def __post_init__(self) -> None:
        given = self.texts
        listed = isinstance(given, (tuple, list)) and all(isinstance(text, str) for text in given)
        expect(listed and len(given) > 0, "choices", given, "at least one text, as in ('yes', 'no')")
        expect("" not in given, "a text of choices", "", "at least one character")
        for text in given:
            refuse_half_characters("a text of choices", text)
        object.__setattr__(self, "texts", tuple(given))

    def fit(self, words: FormVocabulary) -> Constraint:
        return Trie({spelt(text, words) for text in self.texts}, words)


class Trie:
    """The token sequences that may be written, sharing their beginnings."""

    def __init__(self, sequences: Collection[Sequence[int]], words: FormVocabulary) -> None:
        expect(
            len(sequences) > 0, "a trie", tuple(sequences), "at least one sequence of tokens, else nothing can follow"
        )
        self.words = words
        self.next: list[dict[int, int]] = [{}]
        self.ends: set[int] = set()
        for sequence in sequences:
            node = 0
            for token in sequence:
                if token not in self.next[node]:
                    self.next[node][token] = len(self.next)
                    self.next.append({})
                node = self.next[node][token]
            self.ends.add(node)

    def start(self) -> State:
        return TrieNode(self, 0)


@dataclass(frozen=True)
class TrieNode:
    """A beginning that some of the sequences share."""

    trie: Trie
    at: int

    def step(self, token: int) -> State:
        words = self.trie.words
        if token in words.eos and self.complete():
            return over(words)
        below = self.trie.next[self.at].get(token)
        return dead(words) if below is None else TrieNode(self.trie, below)

    def mask(self) -> Tensor:
        ends = self.trie.words.eos if self.complete() else ()
        return mask_of(self.trie.words.size, (*self.trie.next[self.at], *ends))

    def allows(self, token: int) -> bool:
        return token in self.trie.next[self.at] or (token in self.trie.words.eos and self.complete())

    def forced(self) -> tuple[int, ...]:
        tokens: list[int] = []
        node = self.at
        while len(self.trie.next[node]) == 1 and node not in self.trie.ends:
            ((token, node),) = self.trie.next[node].items()
            tokens.append(token)
        return tuple(tokens)

    def complete(self) -> bool:
        return self.at in self.trie.ends


def choices(*texts: str) -> Choices:
    """One of these texts."""
    if len(texts) == 1 and not isinstance(texts[0], str):
        raise BadRequest("choices takes the texts one by one, as in choices('yes', 'no') or choices(*texts)")
    return Choices(texts)
