"""One request's texts inside a cached model: what it keeps, branches and gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...core.asks import Scores, best_of, unpacked
from ...core.tree import Tree
from .. import cpu
from ..engine.contracts import ScoreRequest, hidden_of, layer_of
from .forward_request import ForwardRequest
from .sequence import CachedSequence, DraftNode

if TYPE_CHECKING:
    from .cached_model import CachedModel


class CachedSession:
    """The kept leaves of one request."""

    def __init__(self, model: CachedModel, leaves: list[CachedSequence]) -> None:
        self._model, self.leaves = model, leaves
        self._closed = False

    def keep(self, tree: Tree, nodes: Sequence[int], extra: Sequence[int | None]) -> None:
        """Make these texts the leaves; a single text is extended in place, several share their slots."""
        if len(nodes) == 1 and len(self.leaves) == 1:
            self._extend(tree.tokens(tree.path(nodes[0])), extra[0])
            return
        slots = self._model.slots
        new = [self._branch(tree, node, token) for node, token in zip(nodes, extra, strict=True)]
        for leaf in new:
            slots.share(leaf.slots)
        for leaf in self.leaves:
            slots.drop([node.slot for node in leaf.drafts])
            unlink(leaf)
            self._model.release(leaf)
        self.leaves = new

    def _extend(self, path: tuple[int, ...], extra: int | None) -> None:
        (leaf,), slots = self.leaves, self._model.slots
        computed = list(leaf.descend(path))
        kept = [node.slot for node in computed]
        if kept:
            # Neighbouring slots are read without a copy, so accepted tokens move down to where the text ends.
            target = list(range(leaf.slots[-1] + 1, leaf.slots[-1] + 1 + len(kept)))
            if kept != target and not slots.gathers and set(target) <= {node.slot for node in leaf.drafts}:
                slots.move(kept, target)
                kept = target
        slots.drop([node.slot for node in leaf.drafts if node.slot not in kept])
        unlink(leaf)
        if path or extra is not None:
            ends = len(computed) == len(path) and extra is None
            leaf.law, leaf.hidden = (computed[-1].law, computed[-1].hidden) if ends else (None, {})
        leaf.tokens += path if extra is None else (*path, extra)
        leaf.slots += kept
        leaf.kids, leaf.drafts = {}, []

    def _branch(self, tree: Tree, node: int, extra: int | None) -> CachedSequence:
        leaf, path = self.leaves[tree.leaf(node)], tree.tokens(tree.path(node))
        computed = list(leaf.descend(path))
        new = CachedSequence([*leaf.tokens, *path], [*leaf.slots, *(n.slot for n in computed)], owner=leaf.owner)
        if extra is not None:
            new.tokens.append(extra)
        elif len(computed) == len(path):
            last = computed[-1] if computed else leaf
            new.law, new.hidden = last.law, last.hidden
        return new

    def fork(self) -> CachedSession:
        leaves = [CachedSequence(list(x.tokens), list(x.slots), x.law, x.hidden, owner=x.owner) for x in self.leaves]
        for leaf in leaves:
            self._model.slots.share(leaf.slots)
        return CachedSession(self._model, leaves)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._model.closed(self)


def scores_of(ask: ScoreRequest, requests: list[ForwardRequest]) -> Scores:
    """The answer to an ask, from what a forward has attached to its leaves."""
    found: dict[int, DraftNode] = {}
    for request in requests:
        found.update({n: a for n, a in request.answers.items() if isinstance(a, DraftNode)})
    nodes = [found[n] for n in range(len(ask.tree))]
    leaves = [request.leaf for request in requests]
    laws = [leaf.law for leaf in leaves if leaf.law is not None]
    ends: list[DraftNode | CachedSequence] = [*nodes, *leaves]
    hidden = {name: torch.stack([x.hidden[layer_of(name)] for x in ends]) for name in hidden_of(ask.want)}
    tops = {place: best for request in requests for place, best in request.tops.items()}
    after, rows = [node.law for node in nodes], sum(len(request) for request in requests)
    if (
        len(requests) == 1
        and requests[0].owed
        and requests[0].logits is not None
        and len(requests[0].added) == len(nodes)
    ):
        return LogitsBlock(after, laws, hidden, rows, tops, logits=requests[0].logits, ready=requests[0].ready)
    return Scores(after, laws, hidden, rows, tops)


def unlink(leaf: CachedSequence) -> None:
    """Clear links from parent to child, so that drafted nodes and their logits are freed by reference counts."""
    for node in leaf.drafts:
        node.kids = {}


@dataclass(frozen=True)
class LogitsBlock(Scores):
    """Scores of one leaf and its tree, whose logits are the rows of `logits` [1 + nodes, vocab] in this order.

    `ready` [1 + nodes, 2k], where a device has made them by the way, are the weights of each row's k best tokens among
    these, and then the tokens.
    """

    logits: Tensor = torch.empty(0)  # noqa: RUF009  (always given)
    ready: Tensor | None = None

    def best(self, k: int) -> list[list[tuple[int, float]]]:
        if self.ready is not None and self.ready.shape[1] == 2 * k:
            return unpacked(self.ready.tolist())
        return cpu.best_tokens.best_of(self.logits, k) if self.logits.is_cpu else best_of(self.logits, k)
