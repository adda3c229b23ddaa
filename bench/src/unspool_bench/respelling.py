"""Whether a constraint takes a JSON value: in the spelling given, or in another of the same value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from unspool.rules.constrain import Constraint, State
from unspool.rules.constrain.form import FormVocabulary, spelt
from unspool.rules.constrain.keyword import inside

TRIES = 400  # orders of members that are tried for one value


class PlainNumber(float):
    """A number that is written without an exponent, and without a point if it is whole."""

    def __repr__(self) -> str:
        number = Decimal(float.__repr__(self))
        return str(int(number)) if number == number.to_integral_value() else f"{number:f}"


@dataclass(frozen=True)
class FollowedText:
    """How far a constraint follows a text: `read` bytes, and to the end if `taken`."""

    taken: bool
    read: int


def takes(constraint: Constraint, data: Any, words: FormVocabulary) -> bool:
    """True if the value is taken as json.dumps writes it."""
    return Trail(constraint, words).follow(json.dumps(data, ensure_ascii=False)).taken


def takes_somehow(constraint: Constraint, data: Any, schema: Any, words: FormVocabulary) -> bool:
    """True if some spelling is found in which the value is taken: members in another order, numbers written plainly.

    A grammar reads the members of an object in one order, which is the schema's. Where that alone does not help, a
    member at which reading stops is moved to wherever it goes on: insertion sort, with the grammar as the judge.
    """
    plain = _numbers(data)
    tables = [list(part["properties"]) for _, part in inside(schema) if isinstance(part.get("properties"), dict)]
    trail = Trail(constraint, words)
    return any(_reaches(trail, value) for value in (_arranged(plain, tables), plain))


def _reaches(trail: Trail, value: Any) -> bool:
    left = TRIES
    text, spans = _written(value)
    best = trail.follow(text)
    while not best.taken:
        for moved in _moves(value, spans, best.read):
            left -= 1
            if left < 0:
                return False
            text, found = _written(moved)
            reading = trail.follow(text)
            if reading.taken or reading.read > best.read:
                value, spans, best = moved, found, reading
                break
        else:
            return False
    return True


class Trail:
    """The states along a text; the next text is followed from where it differs from the last one."""

    def __init__(self, constraint: Constraint, words: FormVocabulary) -> None:
        self._words = words
        self._tokens: list[int] = []
        self._states: list[State] = [constraint.start()]

    def follow(self, text: str) -> FollowedText:
        """Read a text in the model's own spelling as far as it is allowed."""
        tokens = spelt(text, self._words)
        same = 0
        while same < min(len(tokens), len(self._tokens)) and tokens[same] == self._tokens[same]:
            same += 1
        del self._tokens[same:], self._states[same + 1 :]
        for token in tokens[same:]:
            if not self._states[-1].allows(token):
                break
            self._tokens.append(token)
            self._states.append(self._states[-1].step(token))
        whole = len(self._tokens) == len(tokens) and self._states[-1].complete()
        return FollowedText(whole, sum(len(self._words.piece(token)) for token in self._tokens))


Path = tuple[str | int, ...]
Span = tuple[int, int, Path, int]  # first byte, last byte, the object's path, the member's place in it


def _written(value: Any) -> tuple[str, list[Span]]:
    """The text of a value, and where each member stands in it."""
    parts: list[str] = []
    spans: list[Span] = []
    size = 0

    def put(text: str) -> None:
        nonlocal size
        parts.append(text)
        size += len(text.encode())

    def write(value: Any, path: Path) -> None:
        if isinstance(value, dict):
            put("{")
            for i, (name, inner) in enumerate(value.items()):
                put(", " if i else "")
                begin = size
                put(json.dumps(name, ensure_ascii=False) + ": ")
                write(inner, (*path, name))
                spans.append((begin, size, path, i))
            put("}")
        elif isinstance(value, list):
            put("[")
            for i, inner in enumerate(value):
                put(", " if i else "")
                write(inner, (*path, i))
            put("]")
        else:
            put(repr(value) if isinstance(value, PlainNumber) else json.dumps(value, ensure_ascii=False))

    write(value, ())
    return "".join(parts), spans


def _moves(value: Any, spans: list[Span], read: int) -> Iterator[Any]:
    """The value with the member at which reading stopped moved forward, or a later one put in its place."""
    # a token may begin before the member that it belongs to: `, "`
    around = [span for span in spans if span[0] - 4 <= read < span[1]]
    for _, _, path, i in sorted(around, key=lambda span: span[1] - span[0]):
        names = list(_at(value, path))
        for j in reversed(range(i)):
            yield _ordered(value, path, [*names[:j], names[i], *names[j:i], *names[i + 1 :]])
        for j in range(i + 1, len(names)):
            yield _ordered(value, path, [*names[:i], names[j], *names[i:j], *names[j + 1 :]])


def _at(value: Any, path: Path) -> Mapping[str, Any]:
    for key in path:
        value = value[key]
    assert isinstance(value, dict)
    return value


def _ordered(value: Any, path: Path, names: list[str]) -> Any:
    """The value with the members of one object in this order."""
    if not path:
        return {name: value[name] for name in names}
    inner = _ordered(value[path[0]], path[1:], names)
    if isinstance(value, list):
        return [inner if i == path[0] else other for i, other in enumerate(value)]
    return {name: inner if name == path[0] else other for name, other in value.items()}


def _arranged(value: Any, tables: list[list[str]]) -> Any:
    """The value with the members of each object in the order of the table that has most of their names."""
    if isinstance(value, list):
        return [_arranged(inner, tables) for inner in value]
    if not isinstance(value, dict):
        return value
    table = max(tables, key=lambda names: len(value.keys() & set(names)), default=[])
    rank = {name: i for i, name in enumerate(table)}
    names = sorted(value, key=lambda name: rank.get(name, len(rank)))
    return {name: _arranged(value[name], tables) for name in names}


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _numbers(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_numbers(inner) for inner in value]
    return PlainNumber(value) if isinstance(value, float) else value
