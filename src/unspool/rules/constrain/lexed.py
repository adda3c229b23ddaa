"""A grammar over terminals on a real vocabulary: left to right, and on texts with gaps of any length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TypeAlias

import torch
from torch import Tensor

from ...core.canvas import HOLE
from .constraint import State, dead, over
from .earley import FEW, WORK, Column, Crossing, Seed, Syntax, Unsettled
from .form import FormVocabulary
from .scanner import BETWEEN, Effects, Scanner

Heads: TypeAlias = dict[tuple[int, Column], tuple[Crossing, ...]]  # scanner's state, column where its terminal began


@dataclass(frozen=True, eq=False)
class LexedGrammar:
    """Rules, their terminals as a scanner, and what each token does to it.

    A canvas is asked about in two steps. First whether it can be completed at all, if every gap may have any number of
    tokens: Earley's parser reads it from left to right, and in the column of a gap every terminal leads back to that
    column. A no is final. Then the lightest derivation is spelt with exactly as many tokens in each gap as there are
    holes; if that cannot be, the lightest in which every hole has a part; then the parser goes hole by hole by what
    tokens there are, which overlooks none but is given up after `FEW` items, where there are many holes.

    Paper: 2508.10111. Cost: a few milliseconds per question, at most `WORK` items; a question that would take more
    counts as a no, as there a time-out does. A mask tries each kind of token, hundreds of them, not each token.
    """

    syntax: Syntax
    scanner: Scanner
    effects: Effects
    words: FormVocabulary

    def start(self) -> State:
        return LexedPrefix(self, self.opened([WORK]))

    def opened(self, left: list[int]) -> Heads:
        """Before any text."""
        return {(BETWEEN, Column.first(self.syntax, left)): ()}

    def filled(self, text: Sequence[int]) -> tuple[int, ...] | None:
        """The text with every hole filled; None if that is impossible, or was not found."""
        return self._asked(text, shorter=False)

    def finished(self, text: Sequence[int]) -> tuple[int, ...] | None:
        """The same, without those of the holes at its end that are not needed."""
        return self._asked(text, shorter=True)

    def possible(self, text: Sequence[int]) -> bool:
        """Whether gaps of any length, where the holes are, could make this a text of the grammar."""
        parts = _parts(text)
        ways = [parts, parts[:-1]] if parts and parts[-1][0] == HOLE else [parts]  # a text may end before its last gap
        return any(self._parsed(way) is not None for way in ways)

    # ---- reading

    def read(self, heads: Heads, piece: bytes, left: list[int]) -> Heads:
        """What stands after some bytes."""
        scanner = self.scanner
        for byte in piece:
            moved: Heads = {}
            for (state, column), crossings in heads.items():
                target = scanner.steps[state][byte]
                if target >= 0 and self._hopeful(target, column):
                    moved[target, column] = crossings
            heads = moved | self._ended(moved, left)
        return heads

    def _hopeful(self, state: int, column: Column) -> bool:
        return not self.scanner.live[state].isdisjoint(column.wants | self.scanner.skipped)

    def _ended(self, heads: Heads, left: list[int]) -> Heads:
        """The heads after the terminals that may end here."""
        found: Heads = {}
        seeds = list[tuple[Column, int, tuple[Crossing, ...]]]()
        for (state, column), crossings in heads.items():
            for terminal in self.scanner.whole[state]:
                if terminal in self.scanner.skipped:
                    found[BETWEEN, column] = crossings
                elif terminal in column.wants:
                    seeds.append((column, terminal, crossings))
        if seeds:
            made = Column(self.syntax, (seed for c, t, x in seeds for seed in c.scanned(t, x)), left)
            found[BETWEEN, made] = ()
        return found

    def cross(self, heads: Heads, gap: int, left: list[int]) -> Heads:
        """What may stand behind a gap that is not empty."""
        scanner, found = self.scanner, Heads()
        seeds = list[Seed]()
        for (state, column), before in heads.items():
            left[0] -= len(scanner.reach[state])
            for terminal in scanner.live[state] & column.wants:
                seeds += column.scanned(terminal, (*before, Crossing(gap, state, None)), 1)
            for target in scanner.reach[state]:
                if self._hopeful(target, column):
                    found[target, column] = (*before, Crossing(gap, state, target))
            if scanner.live[state] & scanner.skipped:
                found[BETWEEN, column] = (*before, Crossing(gap, state, BETWEEN))
        if seeds:
            inside = Column(self.syntax, seeds, left, gap)
            found[BETWEEN, inside] = ()
            for target in scanner.reach[BETWEEN]:
                if self._hopeful(target, inside):
                    found[target, inside] = (Crossing(gap, BETWEEN, target),)
        return found

    def cross_one(self, heads: Heads, gap: int, left: list[int]) -> Heads:
        """What may stand behind a hole that one token fills: the terminals that end in it are those of some token."""
        found, last = Heads(), list[Seed]()
        by_state: dict[int, list[tuple[Column, tuple[Crossing, ...]]]] = {}
        for (state, column), before in heads.items():
            by_state.setdefault(state, []).append((column, before))
        for state, begun in by_state.items():
            reached: dict[tuple[int, ...], Column | None] = {}
            for ends, after in sorted(self.effects.after[state].items(), key=lambda entry: len(entry[0])):
                if not ends:
                    for column, before in begun:
                        for target in after:
                            if self._hopeful(target, column):
                                found[target, column] = (*before, Crossing(gap, state, target))
                    continue
                inside = ((c, (*before, Crossing(gap, state, None))) for c, before in begun)
                seeds = [seed for c, crossings in inside for seed in c.scanned(ends[0], crossings, 1)]
                for size in range(1, len(ends)):
                    if ends[:size] not in reached:
                        reached[ends[:size]] = Column(self.syntax, seeds, left) if seeds else None
                    column_ = reached[ends[:size]]
                    crossed = (Crossing(gap, BETWEEN, None),)
                    seeds = [] if column_ is None else list(column_.scanned(ends[size], crossed, 1))
                if not seeds:
                    continue
                last += seeds if BETWEEN in after else []
                if targets := [target for target in after if target != BETWEEN]:
                    made = Column(self.syntax, seeds, left)
                    for target in targets:
                        if self._hopeful(target, made):
                            found[target, made] = (Crossing(gap, BETWEEN, target),)
        if last:
            found[BETWEEN, Column(self.syntax, last, left)] = ()
        return found

    def ending(self, heads: Heads) -> Column | None:
        """The column in which the whole text may end here, with the least that is filled in."""
        whole = [column for state, column in heads if state == BETWEEN and column.complete is not None]
        return min(whole, key=lambda column: column.weight[column.complete], default=None)  # type: ignore[index]

    # ---- canvases

    def _parsed(self, parts: Sequence[tuple[int, ...]], counted: int = 0) -> tuple[Heads, Column] | None:
        """What stands behind all parts, and where the text ends; in the first `counted` parts a hole is one token."""
        left = [FEW if counted else WORK]
        try:
            heads = self.opened(left)
            for gap, part in enumerate(parts):
                if part[0] == HOLE:
                    cross = self.cross_one if gap < counted else self.cross
                    heads = cross(heads, gap, left)
                else:
                    pieces = [self.words.piece(token) for token in part]
                    heads = self.read(heads, b"".join(pieces), left) if all(pieces) else {}
                if not heads:
                    return None
        except Unsettled:
            return None
        column = self.ending(heads)
        return None if column is None else (heads, column)

    def _asked(self, text: Sequence[int], shorter: bool) -> tuple[int, ...] | None:
        parts = _parts(text)
        ends = shorter and bool(parts) and parts[-1][0] == HOLE
        found = self._spelt(parts[:-1], False) if ends else None
        if found is None:
            found = self._spelt(parts, ends)
        if found is None and self.possible(text):  # more than the lightest: no hole empty, then the tokens there are
            apart = _apart(parts[:-1]) + parts[-1:] if ends else _apart(parts)
            found = self._spelt(apart, ends) or self._spelt(apart, ends, len(apart) - ends)
        return found

    def _spelt(self, parts: Sequence[tuple[int, ...]], shorter: bool, counted: int = 0) -> tuple[int, ...] | None:
        """The parts, each gap filled with tokens that have the terminals of the lightest derivation."""
        parsed = self._parsed(parts, counted)
        if parsed is None:
            return None
        heads, column = parsed
        assert column.complete is not None
        touched: dict[int, list[tuple[int | None, Crossing]]] = {}
        for terminal, crossings in [*column.terminals(column.complete), (None, heads[BETWEEN, column])]:
            for crossing in crossings:
                touched.setdefault(crossing.gap, []).append((terminal, crossing))
        tokens = list[int]()
        for gap, part in enumerate(parts):
            if part[0] != HOLE:
                tokens += part
                continue
            inside = touched.get(gap)
            if inside is None:
                return None
            ends = tuple(t for t, crossing in inside if crossing.behind is None and t is not None)
            goal = inside[-1][1].behind
            least = 1 if shorter and gap == len(parts) - 1 else len(part)
            way = self._way(inside[0][1].before, ends, BETWEEN if goal is None else goal, least, len(part))
            if way is None:
                return None
            tokens += way
        return tuple(tokens)

    def _way(self, state: int, ends: tuple[int, ...], goal: int, least: int, most: int) -> list[int] | None:
        """From `least` to `most` tokens in which these terminals end, from one state of the scanner to another."""
        layers: list[dict[tuple[int, int], tuple[tuple[int, int], int]]] = [{(0, state): ((0, state), -1)}]
        for size in range(1, most + 1):
            layer: dict[tuple[int, int], tuple[tuple[int, int], int]] = {}
            for (done, at), _ in layers[-1].items():
                for more in range(len(ends) - done + 1):
                    for target, tokens in self.effects.after[at].get(ends[done : done + more], {}).items():
                        layer.setdefault((done + more, target), ((done, at), int(tokens[0])))
            layers.append(layer)
            if size >= least and (len(ends), goal) in layer:
                way, place = list[int](), (len(ends), goal)
                for each in reversed(layers[1:]):
                    place, token = each[place]
                    way.append(token)
                return way[::-1]
            if not layer:
                return None
        return None


def _parts(text: Sequence[int]) -> list[tuple[int, ...]]:
    """A text as runs of holes and runs of tokens."""
    return [tuple(run) for _, run in groupby(text, key=lambda token: token == HOLE)]


def _apart(parts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The same with every hole by itself: none of them may stay empty, so that what fills them is not too short."""
    return [one for part in parts for one in ([(HOLE,)] * len(part) if part[0] == HOLE else [part])]


@dataclass(frozen=True, eq=False)
class LexedPrefix:
    """A beginning without gaps."""

    of: LexedGrammar
    heads: Heads

    def step(self, token: int) -> State:
        words = self.of.words
        if token in words.eos:
            return over(words) if self.complete() else dead(words)
        after = self._after(token)
        return LexedPrefix(self.of, after) if after else dead(words)

    def mask(self) -> Tensor:
        return self._mask

    def allows(self, token: int) -> bool:
        return self.complete() if token in self.of.words.eos else bool(self._after(token))

    def forced(self) -> tuple[int, ...]:
        return ()

    def complete(self) -> bool:
        return self.of.ending(self.heads) is not None

    def _after(self, token: int) -> Heads:
        piece = self.of.words.piece(token)
        return self.of.read(self.heads, piece, [WORK]) if piece else {}

    @cached_property
    def _mask(self) -> Tensor:
        mask = torch.zeros(self.of.words.size, dtype=torch.bool)
        by_state: dict[int, list[Column]] = {}
        for state, column in self.heads:
            by_state.setdefault(state, []).append(column)
        for state, columns in by_state.items():
            reached: dict[tuple[int, ...], list[Column]] = {(): columns}
            for ends, after in sorted(self.of.effects.after[state].items(), key=lambda entry: len(entry[0])):
                for size in range(1, len(ends) + 1):
                    if ends[:size] not in reached:
                        reached[ends[:size]] = self._ended(reached[ends[: size - 1]], ends[size - 1])
                for target, tokens in after.items():
                    if any(target == BETWEEN or self.of._hopeful(target, column) for column in reached[ends]):
                        mask[tokens] = True
        if self.complete():
            mask[list(self.of.words.eos)] = True
        return mask

    def _ended(self, columns: list[Column], terminal: int) -> list[Column]:
        seeds = [seed for column in columns for seed in column.scanned(terminal)]
        return [Column(self.of.syntax, seeds, [WORK])] if seeds else []
