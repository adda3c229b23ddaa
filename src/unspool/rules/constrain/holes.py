"""Whether a text with holes can become a word of a context-free language, and which one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")
At: TypeAlias = Hashable  # a state of an automaton


class LetterEdge(NamedTuple):
    """A step of an automaton that reads one letter."""

    source: At
    letter: int
    target: At


class Derivation(NamedTuple):
    """A symbol derives something that leads from one state to another."""

    source: At
    symbol: str
    target: At


Why: TypeAlias = LetterEdge | tuple[Derivation, ...]


@dataclass(frozen=True)
class Rules:
    """A context-free grammar whose right-hand sides have at most two symbols, or one letter; empty ones may stay."""

    start: str
    letters: tuple[tuple[str, int], ...]  # A → a
    bodies: tuple[tuple[str, tuple[str, ...]], ...]  # A → ε, A → B, A → B C

    def intersect(self, edges: Iterable[LetterEdge], begin: At, ends: Iterable[At]) -> list[LetterEdge] | None:
        """A path of the automaton from `begin` to one of `ends` that spells a word of the grammar; None if none does.

        Worklist over spans (p, A, q): seeded by A → a on every edge and A → ε at every state; a span of B is combined
        with its neighbours in every rule that has B. Each span remembers what it was made of. Mündler et al.,
        2508.10111, section 4, where holes have any length: here the automaton says how long they are.

        Cost: O(rules · states³) at worst.
        """
        search = _Search(self)
        for edge in edges:
            search.see(edge)
        return search.run(begin, frozenset(ends))

    @cached_property
    def empty(self) -> tuple[str, ...]:
        """The symbols with an empty rule."""
        return tuple(head for head, body in self.bodies if not body)

    @cached_property
    def by_letter(self) -> dict[int, list[str]]:
        """The symbols that derive a letter at once."""
        found: dict[int, list[str]] = defaultdict(list)
        for head, letter in self.letters:
            found[letter].append(head)
        return found

    @cached_property
    def alone(self) -> dict[str, list[str]]:
        """A for every B with A → B."""
        return _table((body[0], head) for head, body in self.bodies if len(body) == 1)

    @cached_property
    def as_left(self) -> dict[str, list[tuple[str, str]]]:
        """(A, C) for every B with A → B C."""
        return _table((body[0], (head, body[1])) for head, body in self.bodies if len(body) == 2)

    @cached_property
    def as_right(self) -> dict[str, list[tuple[str, str]]]:
        """(A, B) for every C with A → B C."""
        return _table((body[1], (head, body[0])) for head, body in self.bodies if len(body) == 2)


class _Search:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.why: dict[Derivation, Why] = {}
        self.states: set[At] = set()
        self.work: list[Derivation] = []
        self.after: dict[tuple[At, str], list[At]] = defaultdict(list)
        self.before: dict[tuple[str, At], list[At]] = defaultdict(list)

    def see(self, edge: LetterEdge) -> None:
        self.states.update((edge.source, edge.target))
        for symbol in self.rules.by_letter.get(edge.letter, ()):
            self.add(Derivation(edge.source, symbol, edge.target), edge)

    def add(self, span: Derivation, why: Why) -> None:
        if span not in self.why:
            self.why[span] = why
            self.work.append(span)
            self.after[span.source, span.symbol].append(span.target)
            self.before[span.symbol, span.target].append(span.source)

    def run(self, begin: At, ends: frozenset[At]) -> list[LetterEdge] | None:
        rules = self.rules
        for state in (*self.states, begin, *ends):
            for symbol in rules.empty:
                self.add(Derivation(state, symbol, state), ())
        while self.work:
            span = self.work.pop()
            source, symbol, target = span
            if source == begin and symbol == rules.start and target in ends:
                return self.path(span)
            for head in rules.alone.get(symbol, ()):
                self.add(Derivation(source, head, target), (span,))
            for head, other in rules.as_left.get(symbol, ()):
                for far in list(self.after[target, other]):
                    self.add(Derivation(source, head, far), (span, Derivation(target, other, far)))
            for head, other in rules.as_right.get(symbol, ()):
                for far in list(self.before[other, source]):
                    self.add(Derivation(far, head, target), (Derivation(far, other, source), span))
        return None

    def path(self, span: Derivation) -> list[LetterEdge]:
        """The edges that a span was made of, left to right."""
        found: list[LetterEdge] = []
        stack = [span]
        while stack:
            why = self.why[stack.pop()]
            if isinstance(why, LetterEdge):
                found.append(why)
            else:
                stack.extend(reversed(why))
        return found


def normal(start: str, bodies: Iterable[tuple[str, Sequence[str | int]]]) -> Rules:
    """Rules with at most two symbols each: a letter among others gets a symbol of its own, a long rule is split."""
    letters: dict[tuple[str, int], None] = {}
    short: dict[tuple[str, tuple[str, ...]], None] = {}
    for number, (head, body) in enumerate(bodies):
        if len(body) == 1 and isinstance(body[0], int):
            letters[head, body[0]] = None
            continue
        symbols = []
        for part in body:
            symbols.append(part if isinstance(part, str) else f"letter {part}")
            if isinstance(part, int):
                letters[f"letter {part}", part] = None
        name = head
        for i in range(len(symbols) - 2):
            rest = f"{head} {number}.{i}"
            short[name, (symbols[i], rest)] = None
            name = rest
        short[name, tuple(symbols[-2:])] = None
    return Rules(start, tuple(letters), tuple(short))


def _table(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return found
