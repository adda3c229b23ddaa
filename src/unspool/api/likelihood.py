"""How likely given texts are: log p(continuation | context), and whether greedy decoding would have written it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..core.errors import BadRequest, OutOfRoom
from ..core.law import Drawn, Law
from ..core.tree import ROOT, Tree
from ..runtime.engine.contracts import Causal, ScoreRequest, Session

Tokens = tuple[int, ...]
NODES = 256  # of one tree: the laws of so many tokens are held at a time


class Pair(NamedTuple):
    """A context, which must not be empty, and what is to follow it."""

    context: Tokens
    continuation: Tokens


class Likelihood(NamedTuple):
    """Σ log p of the tokens, each given those before it, and whether each is the likeliest there."""

    logprob: float
    greedy: bool


def likelihoods(model: Causal, pairs: Sequence[Pair], together: int = 8) -> list[Likelihood]:
    """The likelihood of every pair.

    Continuations of one context are the branches of one tree, so that a question and its choices are one forward;
    `together` contexts share a forward. Longer ones are read in chunks.
    """
    if not isinstance(model, Causal):
        raise BadRequest("this model only fills holes; texts are scored by models that read left to right.")
    found: dict[Pair, Likelihood] = {}
    groups: dict[Tokens, dict[Pair, None]] = {}
    for pair in pairs:
        _fits(model, pair)
        groups.setdefault(pair.context, {})[pair] = None
    small = {context: _tree(group) for context, group in groups.items() if _nodes(group) <= NODES}
    for context, group in groups.items():
        if context not in small:
            found |= {pair: _in_chunks(model, pair) for pair in group}
    for part in _batches(model, small, together):
        sessions = [model.open(context) for context in part]
        try:
            scores = model.score([ScoreRequest(s, small[c]) for s, c in zip(sessions, part, strict=True)])
            for context, (after, leaf, *_) in zip(part, ((s.after, s.leaf[0]) for s in scores), strict=True):
                found |= {pair: _along(pair.continuation, small[context], leaf, after) for pair in groups[context]}
        finally:
            _close(sessions)
    return [found[pair] for pair in pairs]


def _fits(model: Causal, pair: Pair) -> None:
    size = len(pair.context) + len(pair.continuation) - 1
    if model.context is not None and size > model.context:
        raise OutOfRoom(f"a text of {size} tokens is longer than the {model.context} that this model reads; cut it.")


def _nodes(pairs: Iterable[Pair]) -> int:
    return sum(max(0, len(pair.continuation) - 1) for pair in pairs)


def _tree(pairs: Iterable[Pair]) -> Tree:
    """All continuations without their last tokens; what they begin with in common stands once."""
    drawn: list[Drawn] = []
    parents: list[int] = []
    known: dict[tuple[int, int], int] = {}
    for pair in pairs:
        node = ROOT
        for token in pair.continuation[:-1]:
            if (node, token) not in known:
                known[node, token] = len(drawn)
                drawn.append(Drawn(token, Law.point(token)))
                parents.append(node)
            node = known[node, token]
    return Tree(tuple(drawn), tuple(parents))


def _along(tokens: Tokens, tree: Tree, leaf: Law, after: Sequence[Law]) -> Likelihood:
    """The likelihood of a path, which the tree holds but for its last token."""
    total, greedy, node = 0.0, True, ROOT
    for i, token in enumerate(tokens):
        law = leaf if node == ROOT else after[node]
        total += law.logprob(token)
        greedy = greedy and law.best == token
        child = tree.child(node, token) if i + 1 < len(tokens) else None
        node = node if child is None else child
    return Likelihood(total, greedy)


def _in_chunks(model: Causal, pair: Pair) -> Likelihood:
    """One long continuation, some tokens at a time."""
    session = model.open(pair.context)
    total, greedy = 0.0, True
    try:
        for start in range(0, len(pair.continuation), NODES):
            part = pair.continuation[start : start + NODES]
            tree = Tree.chain([Drawn(token, Law.point(token)) for token in part])
            (scores,) = model.score([ScoreRequest(session, tree)])
            here = _along(part, tree, scores.leaf[0], scores.after)
            total, greedy = total + here.logprob, greedy and here.greedy
            session.keep(tree, (len(tree) - 1,), (None,))
    finally:
        _close([session])
    return Likelihood(total, greedy)


def _batches(model: Causal, trees: dict[Tokens, Tree], together: int) -> Iterator[list[Tokens]]:
    """Contexts that fit the cache side by side."""
    part: list[Tokens] = []
    size = 0
    for context, tree in trees.items():
        need = len(context) + len(tree)
        if part and (len(part) == together or (model.room is not None and size + need > model.room)):
            yield part
            part, size = [], 0
        part.append(context)
        size += need
    if part:
        yield part


def _close(sessions: Iterable[Session]) -> None:
    for session in sessions:
        session.close()
