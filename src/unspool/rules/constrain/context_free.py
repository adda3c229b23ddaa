"""A context-free grammar that can be asked about texts with holes: exact, and for small vocabularies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...core.canvas import HOLE
from ...core.errors import BadRequest
from ...core.option import expect
from .constraint import Constraint, State, dead, over
from .form import Form, FormVocabulary
from .holes import LetterEdge, Rules, normal

MOST = 4096  # bytes of all tokens together: a hole is an automaton of about this many states


@dataclass(frozen=True)
class Cfg(Form):
    """Texts derived from rules such as {"S": ["( S ) S", ""]}; symbols are parted by blanks, the first rule begins.

    What is no name of a rule is text. Unlike `grammar`, it can tell exactly whether a text with holes, each of one
    token, can be completed: canvases under it never reject a token that could have stood.

    Paper: 2508.10111, with holes of exactly one token instead of gaps of any length. Cost: O(rules · states³) at worst
    per question, with a state per hole and byte of a token; a mask asks one question per token of the vocabulary.
    """

    rules: tuple[tuple[str, tuple[str, ...]], ...]

    def fit(self, words: FormVocabulary) -> Constraint:
        size = sum(len(words.piece(token)) for token in range(words.size))
        if size > MOST:
            raise BadRequest(
                f"this vocabulary spells {size} bytes in all; expected at most {MOST} for questions about holes. Use "
                "grammar(…), which reads left to right and takes any vocabulary"
            )
        fitted = BoundGrammar(self._normal(), words)
        if fitted.filled((), open_end=True) is None:
            raise BadRequest("the grammar cannot be met: it derives no text at all")
        return fitted

    def _normal(self) -> Rules:
        names = {name for name, _ in self.rules}
        bodies: list[tuple[str, list[str | int]]] = []
        for name, alternatives in self.rules:
            for body in alternatives:
                parts: list[str | int] = []
                for symbol in body.split():
                    parts += [symbol] if symbol in names else list(symbol.encode())
                bodies.append((name, parts))
        return normal(self.rules[0][0], bodies)


def cfg(rules: Mapping[str, Sequence[str]]) -> Cfg:
    """Texts that these rules derive, for small vocabularies and canvases."""
    fits = isinstance(rules, Mapping) and len(rules) > 0 and all(not isinstance(b, str) for b in rules.values())
    expect(fits, "rules", rules, 'a table such as {"S": ["( S ) S", ""]}')
    return Cfg(tuple((name, tuple(bodies)) for name, bodies in rules.items()))


@dataclass(frozen=True, eq=False)
class BoundGrammar:
    """Rules over a vocabulary."""

    rules: Rules
    words: FormVocabulary

    def start(self) -> State:
        return GrammarPrefix(self, ())

    def filled(self, text: Sequence[int], open_end: bool = False) -> tuple[int, ...] | None:
        """A text of the language with these tokens in their places and one token in every hole; None if there is none.

        With an open end any number of tokens may follow.
        """
        edges = [edge for at, token in enumerate(text) for edge in self._edges(at, at + 1, token)]
        if open_end:
            edges += self._edges(len(text), len(text), HOLE)
        path = self.rules.intersect(edges, 0, [len(text)])
        if path is None:
            return None
        tokens, piece = list[int](), bytearray()
        for edge in path:
            piece.append(edge.letter)
            if isinstance(edge.target, int):  # the border of two tokens
                known = text[len(tokens)] if len(tokens) < len(text) else HOLE
                tokens.append(self._spelt[bytes(piece)] if known == HOLE else known)
                piece.clear()
        return tuple(tokens)

    def _edges(self, source: int, target: int, token: int) -> Iterator[LetterEdge]:
        """The letters of a token between two borders, or of every token for a hole; tokens share their beginnings."""
        known = self._spelt if token == HOLE else [self.words.piece(token)]
        seen: set[tuple[bytes, bool]] = set()
        for piece in known:
            if not piece:
                yield LetterEdge(source, -1, target)  # a control token spells nothing that a grammar knows
            for i in range(len(piece)):
                last = i + 1 == len(piece)
                if (piece[: i + 1], last) not in seen:
                    seen.add((piece[: i + 1], last))
                    begin = source if i == 0 else (source, target, piece[:i])
                    yield LetterEdge(begin, piece[i], target if last else (source, target, piece[: i + 1]))

    @cached_property
    def _spelt(self) -> dict[bytes, int]:
        pieces = ((self.words.piece(token), token) for token in reversed(range(self.words.size)))
        return {piece: token for piece, token in pieces if piece}


@dataclass(frozen=True)
class GrammarPrefix:
    """The tokens so far."""

    of: BoundGrammar
    tokens: tuple[int, ...]

    def step(self, token: int) -> State:
        words = self.of.words
        if not self.allows(token):
            return dead(words)
        return over(words) if token in words.eos else GrammarPrefix(self.of, (*self.tokens, token))

    def mask(self) -> Tensor:
        return self._mask

    def allows(self, token: int) -> bool:
        if token in self.of.words.eos:
            return self.complete()
        return bool(self.of.words.piece(token)) and self.of.filled((*self.tokens, token), open_end=True) is not None

    def forced(self) -> tuple[int, ...]:
        allowed: list[int] = self._mask.nonzero().flatten().tolist()
        return tuple(allowed) if len(allowed) == 1 else ()

    def complete(self) -> bool:
        return self.of.filled(self.tokens) is not None

    @cached_property
    def _mask(self) -> Tensor:
        return torch.tensor([self.allows(token) for token in range(self.of.words.size)], dtype=torch.bool)
