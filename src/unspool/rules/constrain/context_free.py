"""A context-free grammar that can be asked about texts with holes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from ...core.canvas import HOLE
from ...core.errors import BadRequest
from ...core.option import expect
from .constraint import Constraint, State, dead, over
from .earley import Rule, syntax_of
from .form import Form, FormVocabulary, refuse_half_characters
from .holes import LetterEdge, Rules, normal
from .lexed import LexedGrammar
from .scanner import Effects, Scanner

MOST = 4096  # bytes of all tokens together: a hole is an automaton of about this many states
TERMINALS = 256
BODIES = 2000  # alternatives of all rules together: what a chain of n rules leads to takes n² to find


@dataclass(frozen=True)
class Cfg(Form):
    """Texts derived from rules such as {"S": ["( S ) S", ""]}; symbols are parted by blanks, the first rule begins.

    What is no name of a rule or a terminal is text. Terminals are regular expressions; what `ignore` matches may stand
    between any two terminals. A text is cut into terminals in every way, not by the longest match: it is of the grammar
    if one of these ways is. Unlike `grammar`, it can be asked whether a text with holes can be completed.

    Without terminals and on a vocabulary of at most 4,096 bytes the answer is exact for holes of one token each:
    canvases under it never reject a token that could have stood. On any other see `LexedGrammar`: a no is final if gaps
    may have any length (2508.10111), a yes comes with a text of just so many tokens.

    Cost, small: O(rules · states³) at worst per question, with a state per hole and byte of a token, and a question per
    token for a mask. Else: a pass over the vocabulary when it is fitted, about a second, then milliseconds.
    """

    rules: tuple[tuple[str, tuple[str, ...]], ...]
    terminals: tuple[tuple[str, str], ...] = ()
    ignore: str = ""

    def fit(self, words: FormVocabulary) -> Constraint:
        size = sum(len(words.piece(token)) for token in range(words.size))
        if size > MOST or self.terminals or self.ignore:
            return _lexed(self, words)
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


def cfg(rules: Mapping[str, Sequence[str]], terminals: Mapping[str, str] | None = None, ignore: str = "") -> Cfg:
    """Texts that these rules derive, with terminals by regular expressions; can be asked about holes.

    `cfg({"E": ["E + T", "T"], "T": ["NUMBER", "( E )"]}, {"NUMBER": "[0-9]+"}, ignore=" +")`.
    """
    fits = _table(rules, lambda bodies: isinstance(bodies, list | tuple) and all(isinstance(b, str) for b in bodies))
    expect(fits and len(rules) > 0, "rules", rules, 'a table such as {"S": ["( S ) S", ""]}')
    bodies = sum(map(len, rules.values()))
    expect(bodies <= BODIES, "the number of alternatives", bodies, f"at most {BODIES}, of all rules together")
    named = {} if terminals is None else terminals
    fits = _table(named, lambda pattern: isinstance(pattern, str) and pattern != "") and named.keys().isdisjoint(rules)
    expect(fits, "terminals", terminals, 'a table such as {"NUMBER": "[0-9]+"}, without the names of rules')
    expect(isinstance(ignore, str), "ignore", ignore, "a regular expression")
    for text in (ignore, *named.values(), *(body for bodies in rules.values() for body in bodies)):
        refuse_half_characters("cfg", text)
    return Cfg(tuple((name, tuple(bodies)) for name, bodies in rules.items()), tuple(named.items()), ignore)


def read_cfg(source: str) -> Cfg:
    """The grammar of a JSON text: {"rules": {…}, "terminals": {…}, "ignore": "…"}, the last two if they are wanted."""
    try:
        told = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the table of rules is no JSON: {error!s:.200}") from None
    known = isinstance(told, dict) and "rules" in told and told.keys() <= {"rules", "terminals", "ignore"}
    expect(known, "the table of rules", told, 'an object with "rules", and perhaps "terminals" and "ignore"')
    return cfg(told["rules"], told.get("terminals"), told.get("ignore", ""))


def _table(given: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(given, Mapping) and all(isinstance(name, str) and fits(value) for name, value in given.items())


@lru_cache(maxsize=4)
def _lexed(form: Cfg, words: FormVocabulary) -> LexedGrammar:
    """The grammar over its terminals: those that have names, every text among the rules, and what is ignored."""
    names = {name for name, _ in form.rules}
    numbers: dict[str, int] = {name: number for number, (name, _) in enumerate(form.terminals)}
    patterns: list[str | bytes] = [pattern for _, pattern in form.terminals]
    rules: list[Rule] = []
    for name, alternatives in form.rules:
        for body in alternatives:
            for symbol in body.split():
                if symbol not in names and symbol not in numbers:
                    numbers[symbol] = len(patterns)
                    patterns.append(symbol.encode())
            symbols = tuple(symbol if symbol in names else numbers[symbol] for symbol in body.split())
            rules.append((name, symbols))
    skipped = frozenset([len(patterns)] if form.ignore else [])
    patterns += [form.ignore] if form.ignore else []
    expect(
        len(patterns) <= TERMINALS, "terminals", len(patterns), f"at most {TERMINALS}, texts among the rules included"
    )
    syntax = syntax_of(form.rules[0][0], rules, len(patterns))
    if not syntax.rules:
        raise BadRequest("the grammar cannot be met: it derives no text at all")
    scanner = Scanner.of(patterns, skipped)
    follows = torch.zeros(len(patterns), len(patterns), dtype=torch.bool)
    for a, b in syntax.pairs():
        follows[a, b] = True
    return LexedGrammar(syntax, scanner, Effects.of(scanner, words, follows), words)


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

    def possible(self, text: Sequence[int]) -> bool:
        return self.filled(text) is not None

    def finished(self, text: Sequence[int]) -> tuple[int, ...] | None:
        """The same, without those of the holes at its end that are not needed."""
        last = max((at + 1 for at, token in enumerate(text) if token != HOLE), default=0)
        tried = (self.filled(text[:length]) for length in range(last, len(text) + 1))
        return next((found for found in tried if found is not None), None)

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
