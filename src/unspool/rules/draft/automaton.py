"""The suffix automaton: every piece of the texts read so far is a path from one state, in linear room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

START = 0
NEST = 64  # suffix classes that one token can touch; only a text that loops has more


class Automaton:
    """States are classes of pieces that end at the same places; edges are tokens; links lead to shorter suffixes.

    Of a state s: `length[s]` is its longest piece, `count[s]` how often it stood, `latest[s]` and `earlier[s]` the last
    two places where it ended. Several texts can be read side by side: each goes on from the state it is in.

    Cost: amortised O(1) per token, at most two states and three edges for each. A token adds itself to `count` and
    `latest` of at most `NEST` classes, longest first, so that a looping text costs no more than another one; in a loop
    that nests deeper the shortest pieces keep the counts they had.
    """

    __slots__ = ("count", "earlier", "edges", "latest", "length", "link")

    def __init__(self) -> None:
        self.edges: list[dict[int, int]] = [{}]
        self.link, self.length, self.count, self.latest, self.earlier = [-1], [0], [0], [0], [0]

    def __len__(self) -> int:
        return len(self.link)

    def state(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {name: [*getattr(self, name)] for name in self.__slots__}

    @staticmethod
    def of(state: dict[str, Any], most: int) -> Automaton:
        """What `state` told; ValueError if it is no automaton of at most `most` tokens."""
        made = Automaton()
        made.edges = [{int(token): int(kid) for token, kid in edges.items()} for edges in state["edges"]]
        states = range(len(made.edges))
        for name in ("link", "length", "count", "latest", "earlier"):
            setattr(made, name, [int(number) for number in state[name]])
        sizes = {len(getattr(made, name)) for name in made.__slots__}
        if len(states) not in range(1, 2 * most + 2) or sizes != {len(states)}:
            raise ValueError(f"{len(states)} states")
        if made.link[0] != -1 or any(link not in states for link in made.link[1:]):
            raise ValueError("a link leads nowhere")
        if any(kid not in states for edges in made.edges for kid in edges.values()):
            raise ValueError("an edge leads nowhere")
        return made

    def add(self, state: int, token: int, end: int) -> int:
        """Read one token after the text that is in `state`; it ends at place `end`. The state of the longer text."""
        edges, link, length = self.edges, self.link, self.length
        known = edges[state].get(token)
        if known is not None:  # another text went this way before
            new = known if length[known] == length[state] + 1 else self._split(state, token, known)
        else:
            new = self._state(length[state] + 1, {})
            above: int = state
            while above >= 0 and token not in edges[above]:
                edges[above][token] = new
                above = link[above]
            if above >= 0:
                other = edges[above][token]
                link[new] = other if length[other] == length[above] + 1 else self._split(above, token, other)
        self._stood(new, end)
        return new

    def step(self, state: int, size: int, token: int) -> tuple[int, int]:
        """The longest known suffix of (the `size` tokens that lead to `state`) + token: its state and its size."""
        while state > START and token not in self.edges[state]:
            state = self.link[state]
            size = self.length[state]
        below = self.edges[state].get(token)
        return (START, 0) if below is None else (below, size + 1)

    def match(self, tokens: Iterable[int]) -> tuple[int, int]:
        """The longest suffix of `tokens` that was read before: its state and its size."""
        state, size = START, 0
        for token in tokens:
            state, size = self.step(state, size, token)
        return state, size

    def suffixes(self, state: int) -> Iterator[int]:
        """This state and those of its shorter suffixes, longest first, without the empty one."""
        while state > START:
            yield state
            state = self.link[state]

    def _state(self, length: int, edges: dict[int, int]) -> int:
        self.edges.append(edges)
        self.length.append(length)
        self.link.append(START)
        self.count.append(0)
        self.latest.append(0)
        self.earlier.append(0)
        return len(self.link) - 1

    def _split(self, state: int, token: int, other: int) -> int:
        """Part the short pieces of `other` from its long ones: the short ones end at a new place, the long ones not."""
        short = self._state(self.length[state] + 1, dict(self.edges[other]))
        self.link[short], self.link[other] = self.link[other], short
        self.count[short] = self.count[other]
        self.latest[short], self.earlier[short] = self.latest[other], self.earlier[other]
        while state >= 0 and self.edges[state].get(token) == other:
            self.edges[state][token] = short
            state = self.link[state]
        return short

    def _stood(self, state: int, end: int) -> None:
        link, count, latest, earlier = self.link, self.count, self.latest, self.earlier
        for _ in range(NEST):
            if state <= START:
                return
            count[state] += 1
            earlier[state], latest[state] = latest[state], end
            state = link[state]
