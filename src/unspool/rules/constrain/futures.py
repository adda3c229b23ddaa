"""What has been seen of the ways a constraint can still be met: a trie over the texts that were tried."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from ...core.errors import BadRequest
from ...core.files import read_text
from ...core.law import Law

LARGEST = 1 << 28  # bytes of a file of futures


@dataclass(frozen=True)
class FutureNode:
    """A beginning that was tried. It never changes: learning makes another one, so that a try sees one state of things.

    `allowed` is A(u) = Σ p(x|u) over the tokens the constraint allows, `kids` the tried ones with their p. `theta` is
    an upper bound of the probability that what follows meets the constraint: θ(u) = A(u) − Σ_kids p(x|u)·(1 − θ(ux)),
    so a token that was never tried counts as good. What was visited is stored, and nothing per token of the vocabulary.
    """

    allowed: float
    kids: Mapping[int, tuple[float, FutureNode]] = field(default_factory=dict)
    theta: float = field(init=False, compare=False)

    def __post_init__(self) -> None:
        lost = sum(p * (1 - kid.theta) for p, kid in self.kids.values())
        object.__setattr__(self, "theta", max(0.0, self.allowed - lost))

    def weigh(self, law: Law, mask: Tensor) -> Law:
        """p(x)·θ(x) over what is allowed, unnormalised."""
        scores = law.scores.masked_fill(~mask.to(law.scores.device), -math.inf)
        for token, (_, kid) in self.kids.items():
            scores[token] += math.log(kid.theta) if kid.theta > 0 else -math.inf
        return Law(scores)


DEAD = FutureNode(0.0)


class Visit(NamedTuple):
    """One step of a try: what was allowed there, and the allowed token that was taken with its p, if any."""

    allowed: float
    token: int | None = None
    p: float = 0.0


@dataclass
class Futures:
    """The tries of any number of prompts. They hold for one model, one constraint and one set of warps."""

    roots: dict[tuple[int, ...], FutureNode] = field(default_factory=dict)

    def learn(self, prompt: tuple[int, ...], path: Sequence[Visit], met: bool) -> None:
        """Remember a try: the way it took, and whether it met the constraint if it got to its end."""
        nodes: list[FutureNode | None] = [self.roots.get(prompt)]
        for visit in path:
            here = nodes[-1] or FutureNode(visit.allowed)
            nodes[-1] = here
            nodes.append(None if visit.token is None else here.kids.get(visit.token, (0.0, None))[1])
        below = nodes.pop()
        if path and path[-1].token is not None and not met:
            below = DEAD
        for node, visit in zip(reversed(nodes), reversed(path), strict=True):
            assert node is not None  # made on the way down
            if visit.token is not None and below is not None:
                node = FutureNode(node.allowed, {**node.kids, visit.token: (visit.p, below)})
            below = node
        if below is not None:
            self.roots[prompt] = below

    def save(self, path: str | Path) -> None:
        """Write everything to a JSON file."""
        shown = [{"prompt": list(prompt), "nodes": _flat(root)} for prompt, root in self.roots.items()]
        Path(path).write_text(json.dumps({"futures": shown}))

    @staticmethod
    def load(path: str | Path) -> Futures:
        """What `save` has written."""
        try:
            data = json.loads(read_text(path, LARGEST))["futures"]
            return Futures({tuple(one["prompt"]): _grown(one["nodes"]) for one in data})
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise BadRequest(
                f"{path} holds no futures: {error}; expected a file that Futures.save has written"
            ) from None


def _flat(root: FutureNode) -> list[list[float]]:
    """Every node as [parent, token, p, allowed], parents first; texts are too long for nested lists."""
    rows: list[list[float]] = [[-1, -1, 1.0, root.allowed]]
    todo = [(0, root)]
    for number, node in todo:
        for token, (p, kid) in node.kids.items():
            todo.append((len(rows), kid))
            rows.append([number, token, p, kid.allowed])
    return rows


def _grown(rows: Sequence[Sequence[float]]) -> FutureNode:
    kids: list[dict[int, tuple[float, FutureNode]]] = [{} for _ in rows]
    for number in range(len(rows) - 1, 0, -1):
        parent, token, p, allowed = rows[number]
        kids[int(parent)][int(token)] = p, FutureNode(allowed, kids[number])
    return FutureNode(rows[0][3], kids[0])
