"""All terminals of a grammar as one automaton over bytes, and what each token of a vocabulary does to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...core.errors import BadRequest
from .form import FormVocabulary
from .regular import Nfa

STATES = 400  # of the automaton
ROWS = 8_000_000  # ways to read the tokens of a vocabulary
BETWEEN = 0  # the state where no terminal has begun


@dataclass(frozen=True, eq=False)
class Scanner:
    """A deterministic automaton; each state knows the terminals that are whole there.

    A text is cut into terminals in every way: where a terminal is whole it may end, or go on if it can. Terminals that
    are `skipped` stand between others and are no part of the grammar.
    """

    steps: tuple[tuple[int, ...], ...]  # [state][byte]: the next state, −1 for none
    whole: tuple[frozenset[int], ...]  # [state]: the terminals that may end there
    skipped: frozenset[int]

    @cached_property
    def reach(self) -> tuple[frozenset[int], ...]:
        """The states that some bytes, at least one, lead to."""
        near = [frozenset(row) - {-1} for row in self.steps]
        found = []
        for state in range(len(near)):
            seen, work = set[int](), [state]
            while work:
                for target in near[work.pop()] - seen:
                    seen.add(target)
                    work.append(target)
            found.append(frozenset(seen))
        return tuple(found)

    @cached_property
    def live(self) -> tuple[frozenset[int], ...]:
        """The terminals that may still come of what has begun, here or after more bytes."""
        return tuple(
            self.whole[state].union(*(self.whole[far] for far in self.reach[state])) for state in range(len(self.steps))
        )

    @staticmethod
    def of(patterns: Sequence[str | bytes], skipped: frozenset[int]) -> Scanner:
        """The automaton of these terminals, each a pattern or the very bytes; BadRequest if one is met by nothing."""
        nfa = Nfa()
        begin = nfa.state()
        ends: dict[int, set[int]] = defaultdict(set)
        for number, pattern in enumerate(patterns):
            own = nfa.state()
            nfa.jumps[begin].append(own)
            end = nfa.literal(pattern, own) if isinstance(pattern, bytes) else nfa.pattern(pattern, own)
            ends[end].add(number)
        first = _closed(nfa, {begin})
        numbers, work, steps, whole = {first: 0}, [first], list[list[int]](), list[frozenset[int]]()
        for states in work:
            whole.append(frozenset(terminal for state in states for terminal in ends.get(state, ())))
            row = [-1] * 256
            for byte, near in _moved(nfa, states).items():
                target = _closed(nfa, near)
                if target not in numbers:
                    if len(numbers) >= STATES:
                        raise BadRequest(
                            f"the terminals make an automaton of more than {STATES} states; make them simpler"
                        )
                    numbers[target] = len(numbers)
                    work.append(target)
                row[byte] = numbers[target]
            steps.append(row)
        if whole[BETWEEN]:
            bad = patterns[min(whole[BETWEEN])]
            raise BadRequest(f"the terminal {bad!r:.80} matches the empty text; expected at least one character")
        scanner = Scanner(tuple(map(tuple, steps)), tuple(whole), skipped)
        if idle := set(range(len(patterns))) - scanner.live[BETWEEN]:
            raise BadRequest(f"nothing matches the terminal {patterns[min(idle)]!r:.80}")
        return scanner


def _closed(nfa: Nfa, states: set[int]) -> frozenset[int]:
    seen, work = set(states), list(states)
    while work:
        for target in nfa.jumps[work.pop()]:
            if target not in seen:
                seen.add(target)
                work.append(target)
    return frozenset(seen)


def _moved(nfa: Nfa, states: frozenset[int]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = defaultdict(set)
    for state in states:
        for low, high, target in nfa.reads[state]:
            for byte in range(low, high + 1):
                found[byte].add(target)
    return found


Ends = tuple[int, ...]  # terminals that end inside a token, one after the other


@dataclass(frozen=True, eq=False)
class Effects:
    """What tokens do: from a state, which terminals end inside a token and where it leaves the automaton.

    Tokens that do the same are one entry, so that a hole of a real vocabulary is a few thousand ways, not a hundred
    thousand bytes. Cost: one pass over the bytes of the vocabulary, for all states at once.
    """

    after: tuple[Mapping[Ends, Mapping[int, Tensor]], ...]  # [state][ends][state after]: the tokens

    @staticmethod
    def of(scanner: Scanner, words: FormVocabulary, follows: Tensor) -> Effects:
        """`follows[a, b]` says whether terminal b may stand behind terminal a."""
        pieces = [b"" if token in words.eos else words.piece(token) for token in range(words.size)]
        rows = _Rows(scanner, pieces, follows)
        return Effects(rows.read())


class _Rows:
    """Every way to read every token from every state: columns of token, first state, state, terminals so far."""

    def __init__(self, scanner: Scanner, pieces: Sequence[bytes], follows: Tensor) -> None:
        self.scanner, self.follows = scanner, follows
        self.order = sorted(
            range(len(pieces)), key=lambda token: _oddity(pieces[token])
        )  # what fills a gap is the first
        pieces = [pieces[token] for token in self.order]
        self.length = torch.tensor([len(piece) for piece in pieces])
        wide = int(self.length.max())
        joined = b"".join(piece.ljust(wide, b"\0") for piece in pieces)
        self.bytes = torch.frombuffer(bytearray(joined), dtype=torch.uint8).view(len(pieces), wide)
        self.steps = torch.tensor(scanner.steps)
        self.whole = [torch.tensor([terminal in whole for whole in scanner.whole]) for terminal in range(len(follows))]
        self.ends: list[Ends] = [()]
        self.numbers: dict[Ends, int] = {(): 0}

    def read(self) -> tuple[Mapping[Ends, Mapping[int, Tensor]], ...]:
        ways, last = self._begun(), list[Tensor]()
        for place in range(1, self.bytes.shape[1] + 1):
            ways = self._unique(ways)
            done = self.length[ways[0]] == place
            over, ways = ways[:, done], ways[:, ~done]
            last += [over, self._end(over)]
            if not ways.shape[1]:
                break
            ways = torch.cat([self._go(ways, place), self._go(self._end(ways), place)], 1)
        return self._grouped(self._unique(torch.cat(last, 1)))

    def _begun(self) -> Tensor:
        """All ways after the first byte of each token; before it a terminal may end."""
        found, count = [torch.zeros(4, 0, dtype=torch.long)], 0
        spelt = self.length.nonzero().flatten()
        by_first = [spelt[self.bytes[spelt, 0] == byte] for byte in range(256)]
        for state, whole in enumerate(self.scanner.whole):
            ended = {(BETWEEN, 0 if t in self.scanner.skipped else self._number(0, t)) for t in whole}
            for at, ends in [(state, 0), *sorted(ended)]:
                for byte, target in enumerate(self.scanner.steps[at]):
                    tokens = by_first[byte]
                    if target >= 0 and len(tokens):
                        rest = torch.tensor([[state], [target], [ends]]).expand(3, len(tokens))
                        found.append(torch.cat([tokens[None], rest]))
                        count += len(tokens)
                        self._refuse_over(count)
        return torch.cat(found, 1)

    def _go(self, ways: Tensor, place: int) -> Tensor:
        target = self.steps[ways[2], self.bytes[ways[0], place].long()]
        return torch.stack([ways[0], ways[1], target, ways[3]])[:, target >= 0]

    def _refuse_over(self, count: int) -> None:
        if count > ROWS:
            raise BadRequest(
                f"there are more than {ROWS} ways to cut this vocabulary into terminals; make them simpler"
            )

    def _end(self, ways: Tensor) -> Tensor:
        """The same ways after a terminal has ended where one may."""
        found = [ways[:, :0]]
        for terminal, whole in enumerate(self.whole):
            some = ways[:, whole[ways[2]]]
            if not some.shape[1]:
                continue
            ends = some[3]
            if terminal not in self.scanner.skipped:
                kinds, which = torch.unique(ends, return_inverse=True)
                grown = torch.tensor([self._number(kind, terminal) for kind in kinds.tolist()])
                ends = grown[which]
                some, ends = some[:, ends >= 0], ends[ends >= 0]
            found.append(torch.stack([some[0], some[1], ends * 0 + BETWEEN, ends]))
        return torch.cat(found, 1)

    def _number(self, ends: int, terminal: int) -> int:
        before = self.ends[ends]
        if before and not self.follows[before[-1], terminal]:
            return -1
        grown = (*before, terminal)
        if grown not in self.numbers:
            self.numbers[grown] = len(self.ends)
            self.ends.append(grown)
        return self.numbers[grown]

    def _unique(self, ways: Tensor) -> Tensor:
        self._refuse_over(ways.shape[1])
        size = len(self.scanner.steps)
        key = ((ways[3] * size + ways[1]) * size + ways[2]) * len(self.length) + ways[0]
        key = torch.unique(key)
        token, key = key % len(self.length), key // len(self.length)
        return torch.stack([token, key // size % size, key % size, key // size // size])

    def _grouped(self, ways: Tensor) -> tuple[Mapping[Ends, Mapping[int, Tensor]], ...]:
        found: list[dict[Ends, dict[int, Tensor]]] = [{} for _ in self.scanner.steps]
        if ways.shape[1]:
            alike, counts = torch.unique_consecutive(ways[1:], dim=1, return_counts=True)
            tokens = torch.split(torch.tensor(self.order)[ways[0]], counts.tolist())
            for (begin, state, ends), some in zip(alike.T.tolist(), tokens, strict=True):
                found[begin].setdefault(self.ends[ends], {})[state] = some
        return tuple(found)


def _oddity(piece: bytes) -> int:
    """Words, figures and single blanks before signs, and these before what cannot be seen."""
    return 0 if piece == b" " or piece.strip(b" ").isalnum() else 1 if piece.isascii() and piece.strip() else 2
