"""The session contract, as one property: whatever is scored, kept, forked and closed, in whatever order and company,
every law equals that of the same text computed from scratch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from hypothesis import strategies as st

from unspool.core.law import Drawn, Law
from unspool.core.tree import NOTHING, Tree
from unspool.runtime.engine.contracts import Causal, ScoreRequest, Session, SupportsPartialScoring


def trees(draw: Callable, vocab: int, leaves: int, most: int = 6) -> Tree:
    """A drawn tree under any of the leaves, equal siblings included."""
    tree = NOTHING
    for _ in range(draw(st.integers(0, most))):
        under = draw(st.integers(-leaves, len(tree) - 1))
        token = draw(st.integers(0, vocab - 1))
        tree, _ = tree.grow(Drawn(token, Law.point(token)), under)
    return tree


@dataclass
class Text:
    """A session beside the texts it should stand for."""

    session: Session
    leaves: list[tuple[int, ...]]

    def whole(self, tree: Tree, node: int) -> tuple[int, ...]:
        return self.leaves[tree.leaf(node)] + tree.tokens(tree.path(node))


def asked_in_parts(data: st.DataObject, model: SupportsPartialScoring, asked: list[ScoreRequest]) -> None:
    """Compute some rows of these beforehand, a few at a time; no less and no more is then left to compute."""
    for _ in range(data.draw(st.integers(1, 3))):
        left = [model.rows(ask) for ask in asked]
        parts = [data.draw(st.integers(0, max(0, rows - 1)), label="part") for rows in left]
        assert model.score_beside([], [(ask, n) for ask, n in zip(asked, parts, strict=True) if n]) == []
        assert [model.rows(ask) for ask in asked] == [rows - n for rows, n in zip(left, parts, strict=True)]


def exercise(
    data: st.DataObject,
    model: Causal,
    scratch: Callable[..., torch.Tensor],
    tolerance: float = 0.0,
    steps: int = 8,
    vocab: int | None = None,
    longest: int = 5,
    below: bool = False,
) -> float:
    """Drive a model through a drawn program and compare every law with `scratch`; the largest difference seen.

    `scratch` is given a whole text, or with `below` the kept text and what was drafted below it.
    """
    size = vocab or model.vocab
    tokens = st.integers(0, size - 1)
    live: list[Text] = []
    worst = 0.0
    scratch = cache(scratch)  # texts that are kept are compared again after every step

    def opened() -> None:
        text = tuple(data.draw(st.lists(tokens, min_size=1, max_size=longest), label="open"))
        live.append(Text(model.open(text), [text]))

    def compare(law: Law, text: tuple[int, ...], path: tuple[int, ...] = ()) -> None:
        nonlocal worst
        want = scratch(text, path) if below else scratch(text + path)
        difference = float(torch.where(law.scores == want, 0.0, law.scores - want).abs().max())  # −∞ is no difference
        worst = max(worst, difference)
        assert difference <= tolerance, f"after {text}: off by {difference}"

    opened()
    for _ in range(steps):
        act = data.draw(st.sampled_from(["score", "keep", "keep", "open", "fork", "close"]), label="act")
        if act == "open" or not live:
            opened()
        elif act == "fork":
            text = data.draw(st.sampled_from(live))
            live.append(Text(text.session.fork(), list(text.leaves)))
        elif act == "close":
            live.pop(data.draw(st.integers(0, len(live) - 1))).session.close()
        else:
            company = [t for t in live if data.draw(st.booleans())] or live[:1]
            drawn = [trees(data.draw, size, len(t.leaves)) for t in company]
            asked = [ScoreRequest(t.session, tree) for t, tree in zip(company, drawn, strict=True)]
            if isinstance(model, SupportsPartialScoring) and data.draw(st.booleans(), label="in parts"):
                asked_in_parts(data, model, asked)
            replies = model.score(asked)
            for text, tree, scores in zip(company, drawn, replies, strict=True):
                for node in range(-len(text.leaves), len(tree)):
                    compare(scores.law(node), text.leaves[tree.leaf(node)], tree.tokens(tree.path(node)))
                if act == "keep":
                    count = data.draw(st.integers(1, 3))
                    nodes = [data.draw(st.integers(-len(text.leaves), len(tree) - 1)) for _ in range(count)]
                    extra = [data.draw(st.none() | tokens) for _ in range(count)]
                    new = [text.whole(tree, n) + (() if x is None else (x,)) for n, x in zip(nodes, extra, strict=True)]
                    text.session.keep(tree, nodes, extra)
                    text.leaves = new
    for text in live:  # whatever was left unscored
        (scores,) = model.score([ScoreRequest(text.session, NOTHING)])
        for law, whole in zip(scores.leaf, text.leaves, strict=True):
            compare(law, whole)
        text.session.close()
        text.session.close()
    return worst
