"""Regular expressions over bytes: a pattern becomes an automaton that reads UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from ...core.errors import BadRequest

LONGEST = 2000  # characters of a pattern
STATES = 20_000  # of the automaton of all patterns together
TURNS = 1000  # of a counted repetition
LAST = 0x10FFFF
Ranges: TypeAlias = list[tuple[int, int]]  # code points, both ends included

_CLASSES: dict[str, Ranges] = {
    "d": [(48, 57)],
    "w": [(48, 57), (65, 90), (95, 95), (97, 122)],
    "s": [(9, 13), (32, 32)],
}
_ESCAPED = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "0": 0}


@dataclass(frozen=True)
class Letter:
    """One character out of ranges."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Concatenation:
    """One part after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Alternation:
    """One of several."""

    ways: tuple[Node, ...]


@dataclass(frozen=True)
class Repeated:
    """A part `low` to `high` times; None is without end."""

    part: Node
    low: int
    high: int | None


Node: TypeAlias = Letter | Concatenation | Alternation | Repeated


@dataclass
class Nfa:
    """States with steps that read a byte of a range, and steps that read nothing."""

    reads: list[list[tuple[int, int, int]]] = field(default_factory=list)  # (low, high, target)
    jumps: list[list[int]] = field(default_factory=list)

    def state(self) -> int:
        """A new state."""
        if len(self.reads) >= STATES:
            raise BadRequest(f"the terminals need more than {STATES} states; shorten their repetitions")
        self.reads.append([])
        self.jumps.append([])
        return len(self.reads) - 1

    def literal(self, text: bytes, source: int) -> int:
        """The state after these bytes."""
        for byte in text:
            target = self.state()
            self.reads[source].append((byte, byte, target))
            source = target
        return source

    def pattern(self, text: str, source: int) -> int:
        """The state after a text that matches; BadRequest if the pattern cannot be read."""
        try:
            return self._add(parsed(text), source)
        except RecursionError:
            raise BadRequest(f"the pattern {text[:40]!r}… is nested too deeply") from None

    def _add(self, node: Node, source: int) -> int:
        if isinstance(node, Concatenation):
            for part in node.parts:
                source = self._add(part, source)
            return source
        if isinstance(node, Repeated):
            for _ in range(node.low):
                source = self._add(node.part, source)
            if node.high is None:
                source = self._apart(source)
                self.jumps[self._add(node.part, source)].append(source)
                return self._apart(source)
            target = self.state()
            for _ in range(node.high - node.low):
                self.jumps[source].append(target)
                source = self._add(node.part, self._apart(source))
            self.jumps[source].append(target)
            return target
        target = self.state()
        if isinstance(node, Alternation):
            for way in node.ways:
                self.jumps[self._add(way, source)].append(target)
            return target
        for low, high in node.ranges:
            for row in _spelt(low, high):
                at = source
                for a, b in row[:-1]:
                    self.reads[at].append((a, b, len(self.reads)))
                    at = self.state()
                self.reads[at].append((*row[-1], target))
        return target

    def _apart(self, source: int) -> int:
        """A state of its own, so that what comes back to it does not come back to what stands before."""
        target = self.state()
        self.jumps[source].append(target)
        return target


def parsed(text: str) -> Node:
    """A pattern: letters, `.`, classes, groups, `|`, and the repetitions `*`, `+`, `?`, `{n}`, `{n,}`, `{n,m}`.

    No anchors, no look-around, nothing lazy: a terminal is matched as a whole, in every way.
    """
    if len(text) > LONGEST:
        raise BadRequest(f"the pattern {text[:40]!r}… has {len(text)} characters; expected at most {LONGEST}")
    reader = _Reader(text)
    found = reader.either()
    if reader.at < len(text):
        raise reader.wrong("a bracket that closes nothing")
    return found


@dataclass
class _Reader:
    text: str
    at: int = 0

    def wrong(self, what: str) -> BadRequest:
        return BadRequest(f"the pattern {self.text[:80]!r} has {what} at character {self.at}")

    def next(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        found = self.next()
        if not found:
            raise self.wrong("an end too early")
        self.at += 1
        return found

    def either(self) -> Node:
        ways = [self.row()]
        while self.next() == "|":
            self.take()
            ways.append(self.row())
        return ways[0] if len(ways) == 1 else Alternation(tuple(ways))

    def row(self) -> Node:
        parts: list[Node] = []
        while self.next() not in ("", "|", ")"):
            part = self.one()
            while (count := self.count()) is not None:
                part = Repeated(part, *count)
            parts.append(part)
        return Concatenation(tuple(parts))

    def count(self) -> tuple[int, int | None] | None:
        sign = self.next()
        if sign not in ("*", "+", "?", "{"):
            return None
        self.take()
        if sign != "{":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
        inner = ""
        while (letter := self.take()) != "}":
            inner += letter
        low, comma, high = inner.partition(",")
        if (
            not (low + high).isascii()
            or not (low + high).isdecimal()
            or (comma and not low)
            or max(len(low), len(high)) > 4
        ):
            raise self.wrong("a count that is no {n}, {n,} or {n,m}")
        least, most = int(low), int(high) if high else None if comma else int(low)
        if max(least, most or 0) > TURNS or (most is not None and most < least):
            raise self.wrong(f"a count that is not from 0 to {TURNS}, or that falls")
        return least, most

    def one(self) -> Node:
        letter = self.take()
        if letter == "(":
            if self.text.startswith("?:", self.at):
                self.at += 2
            if self.next() == "?":
                raise self.wrong("a group of a kind that is not read")
            inner = self.either()
            if self.take() != ")":
                raise self.wrong("a group that is not closed")
            return inner
        if letter == "[":
            return self.letters()
        if letter == ".":
            return Letter(tuple(_without([(10, 10)])))
        if letter == "\\":
            return Letter(tuple(self.escaped()))
        if letter in "*+?{^$":
            raise self.wrong(f"a {letter!r} with nothing to repeat, or an anchor,")
        return Letter(((ord(letter), ord(letter)),))

    def escaped(self) -> Ranges:
        letter = self.take()
        if letter.lower() in _CLASSES:
            found = _CLASSES[letter.lower()]
            return found if letter.islower() else _without(found)
        if letter in "xu":
            size = 2 if letter == "x" else 4
            digits = "".join(self.take() for _ in range(size))
            if not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise self.wrong(f"a \\{letter} without {size} hexadecimal digits")
            return [(int(digits, 16),) * 2]
        if letter.isalnum() and letter not in _ESCAPED:
            raise self.wrong(f"an unknown \\{letter}")
        return [(_ESCAPED.get(letter, ord(letter)),) * 2]

    def letters(self) -> Letter:
        turned = self.next() == "^"
        self.at += turned
        found: Ranges = []
        first = True
        while first or self.next() != "]":
            first = False
            part = self.escaped() if (letter := self.take()) == "\\" else [(ord(letter), ord(letter))]
            if self.next() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.take()
                end = self.escaped() if (letter := self.take()) == "\\" else [(ord(letter), ord(letter))]
                if len(part) != 1 or len(end) != 1 or part[0][0] > end[0][1]:
                    raise self.wrong("a range that is none")
                part = [(part[0][0], end[0][1])]
            found += part
        self.take()
        return Letter(tuple(_without(found) if turned else found))


def _without(ranges: Ranges) -> Ranges:
    """All code points but these."""
    left, at = list[tuple[int, int]](), 0
    for low, high in sorted(ranges):
        if low > at:
            left.append((at, low - 1))
        at = max(at, high + 1)
    return [*left, (at, LAST)] if at <= LAST else left


def _spelt(low: int, high: int) -> Iterator[list[tuple[int, int]]]:
    """The UTF-8 of a range of code points, as rows of ranges of bytes; surrogates have none."""
    for first, last in ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, LAST)):
        a, b = max(low, first), min(high, last)
        if a <= b:
            yield from _rows(chr(a).encode(), chr(b).encode())


def _rows(low: bytes, high: bytes) -> Iterator[list[tuple[int, int]]]:
    """Two characters of equally many bytes, as rows of ranges that hold all between them and no other."""
    if len(low) == 1:
        yield [(low[0], high[0])]
        return
    if low[0] == high[0]:
        for row in _rows(low[1:], high[1:]):
            yield [(low[0], low[0]), *row]
        return
    least, most = bytes([0x80] * (len(low) - 1)), bytes([0xBF] * (len(low) - 1))
    first, last = low[0], high[0]
    if low[1:] != least:
        for row in _rows(low[1:], most):
            yield [(first, first), *row]
        first += 1
    if high[1:] != most:
        for row in _rows(least, high[1:]):
            yield [(last, last), *row]
        last -= 1
    if first <= last:
        yield [(first, last), *((0x80, 0xBF) for _ in least)]
