"""A branch of a proof told step by step: what was drafted and asked, what chance said with which odds, what stood."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.asks import Check, Checked, Decoding, Draw, Drew, Emit, Look, Score, Scores
from ..core.chance import At, Chance
from ..core.claim import Method
from ..core.law import Law
from ..core.stop import Stop
from ..core.tree import ROOT, Tree
from ..core.warp import Warp

Tell = Callable[[str], None]


def narrated(method: Method, tell: Tell) -> Method:
    """The same method, which tells what it does while it decodes."""

    def decode(text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        decoding, answer = method(text, Narrator(chance, tell), warp, stop), None
        while True:
            try:
                ask = decoding.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(ask, (Check, Score)) and len(ask.tree):
                tell(f"drafted: {drafted(ask.tree)}")
            answer = yield ask
            if said := _said(ask, answer):
                tell(said)

    return decode


class Narrator:
    """A chance that tells what is asked of it, and what it says."""

    def __init__(self, chance: Chance, tell: Tell) -> None:
        self.chance, self.tell = chance, tell

    def choose(self, law: Law, at: At) -> int:
        token = self.chance.choose(law, at)
        self.tell(f"{address(at)}: token {token}, which had probability {law[token]:.4f}")
        return token

    def coin(self, p: float, at: At) -> bool:
        heads = self.chance.coin(p, at)
        self.tell(f"{address(at)}: {'yes' if heads else 'no'}, where yes had probability {p:.4f}")
        return heads

    def race(self, law: Law, at: At) -> int:
        token = self.chance.race(law, at)
        self.tell(f"{address(at)}: token {token} came first, which had probability {law[token]:.4f}")
        return token


def address(at: At) -> str:
    """An address of chance as people read it."""
    told = f"{at.role.name} at position {at.position}"
    return told + (f", number {at.k}" if at.k else "") + (f", in the round from {at.round}" if at.round else "")


def drafted(tree: Tree) -> str:
    """A tree as its paths, each node with the probability that the drafter gave it."""
    leaves = [node for node in range(len(tree)) if not tree.kids(node)]
    paths = [" → ".join(f"{tree.drawn[n].token} (q {_odds(tree, n):.2f})" for n in tree.path(leaf)) for leaf in leaves]
    return " | ".join(paths)


def _odds(tree: Tree, node: int) -> float:
    return float(tree.drawn[node].law[tree.drawn[node].token])


def _said(ask: Any, answer: Any) -> str:
    if isinstance(ask, Check) and isinstance(answer, Checked):
        (node, token), scored = answer.verdict, answer.scored
        stood = [] if node == ROOT else ask.tree.tokens(ask.tree.path(node))
        return f"of these {list(stood) or 'none'} stood; then comes {token} (p {scored.law(node)[token]:.2f})"
    if isinstance(ask, Score) and isinstance(answer, Scores):
        return f"asked {ask.by} for the laws after {'the text' if not len(ask.tree) else 'each of these'}"
    if isinstance(ask, Draw) and isinstance(answer, Drew):
        return f"{ask.by} drew {drafted(answer.tree) or 'nothing'}"
    if isinstance(ask, Look):
        return f"looked at the canvas {list(ask.canvas.tokens)}"
    if isinstance(ask, Emit) and ask.tokens:
        return f"wrote {list(ask.tokens)}"
    return ""
