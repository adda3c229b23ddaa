"""Finiteness: whether anything finite meets a schema, decided before a text is begun.

A part is productive if some finite value meets it. What is productive is the least set that follows from itself: a part
with all that it requires, or with one of its alternatives (the same as for the symbols of a context-free grammar). All
that this file does not look at counts as productive, so it never refuses what can be met.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .keyword import inside, target

SCALARS = {"string", "number", "integer", "boolean", "null"}
ALWAYS = -1  # a node that is productive in any case


@dataclass
class AndOrGraph:
    """Nodes that are productive if all they need are (`every`), or if one of them is (`some`); linear to solve."""

    needs: list[tuple[int, Sequence[int]]] = field(default_factory=list)  # how many of which

    def every(self, nodes: Sequence[int]) -> int:
        """A node that needs all of these."""
        return self._add(len(nodes), nodes)

    def some(self, nodes: Sequence[int]) -> int:
        """A node that needs one of these; without any it is never productive."""
        return ALWAYS if ALWAYS in nodes else self._add(1, nodes)

    def later(self) -> int:
        """A node whose needs are told by `settle`."""
        return self._add(0, ())

    def settle(self, node: int, needed: int) -> None:
        """Tell them."""
        self.needs[node] = 1, (needed,)

    def productive(self) -> set[int]:
        """All nodes that are."""
        wanted = [count - nodes.count(ALWAYS) for count, nodes in self.needs]
        users: dict[int, list[int]] = defaultdict(list)
        for user, (_, nodes) in enumerate(self.needs):
            for node in nodes:
                users[node].append(user)
        ready = [node for node, count in enumerate(wanted) if count <= 0]
        found = set(ready)
        while ready:
            for user in users[ready.pop()]:
                wanted[user] -= 1
                if wanted[user] <= 0 and user not in found:
                    found.add(user)
                    ready.append(user)
        return found | {ALWAYS}

    def _add(self, count: int, nodes: Sequence[int]) -> int:
        self.needs.append((count, nodes))
        return len(self.needs) - 1


def endless(schema: Any) -> tuple[str, ...]:
    """If nothing finite meets a schema, its parts of which this is true, as JSON pointers; () if something does."""
    parts = list(inside(schema))
    if not parts or any(isinstance(part.get(name), str) for at, part in parts if at for name in ("$id", "id")):
        return ()  # references may mean something else inside a part with a name of its own
    graph = AndOrGraph()
    known = {id(part): graph.later() for _, part in parts}
    for _, part in parts:
        graph.settle(known[id(part)], graph.every([*_needs(schema, part, graph, known)]))
    fine = graph.productive()
    if known[id(schema)] in fine:
        return ()
    return tuple(at or "the top" for at, part in parts if known[id(part)] not in fine)


def _needs(schema: Any, part: Mapping[str, Any], graph: AndOrGraph, known: Mapping[int, int]) -> Iterator[int]:
    """The nodes that all have to be productive for a part to be."""

    def node(inner: Any) -> int:
        if inner is False:
            return graph.some(())
        return known.get(id(inner), ALWAYS) if isinstance(inner, dict) else ALWAYS

    found = target(schema, part)
    if found is not None:
        yield node(found[1])
    for keyword in ("anyOf", "oneOf"):
        if isinstance(part.get(keyword), list):
            yield graph.some([node(inner) for inner in part[keyword]])
    if isinstance(part.get("allOf"), list):
        yield graph.every([node(inner) for inner in part["allOf"]])
    kinds = part.get("type", [])
    kinds = {kinds} if isinstance(kinds, str) else set(map(str, kinds)) if isinstance(kinds, list) else set()
    if kinds and not kinds & SCALARS and "enum" not in part and "const" not in part:
        ways = [graph.every([*_members(part, node)])] if "object" in kinds else []
        ways += [graph.every([*_items(part, node)])] if "array" in kinds else []
        yield graph.some(ways)


def _members(part: Mapping[str, Any], node: Any) -> Iterator[int]:
    """What an object cannot do without."""
    named, required = part.get("properties", {}), part.get("required", [])
    if not isinstance(named, dict) or not isinstance(required, list) or "patternProperties" in part:
        return
    for name in required:
        yield node(named[name] if isinstance(name, str) and name in named else part.get("additionalProperties", True))


def _items(part: Mapping[str, Any], node: Any) -> Iterator[int]:
    """What an array cannot do without."""
    least, first, rest = part.get("minItems", 0), part.get("prefixItems", []), part.get("items", True)
    if isinstance(rest, list):  # as in drafts before 2020-12
        first, rest = rest, part.get("additionalItems", True)
    if not isinstance(least, (int, float)) or not isinstance(first, list):
        return
    yield from (node(inner) for inner in first[: int(min(least, len(first)))])
    if least > len(first):
        yield node(rest)
