"""The causal contract on top of any network: texts, drafts and forks as bookkeeping over a pool of slots."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import torch

from ...core.asks import Scores
from ...core.errors import BadRequest, OutOfRoom
from ...core.law import Law
from ...core.tree import Tree
from ..engine.contracts import Asked, Session, guesses_of, hidden_of, layer_of, layers_of, tops_of
from ..network.head_guesses import looking
from ..network.lookahead_heads import Heads
from ..network.network import Batch, Network
from .forward_request import Growth, grown, harvest, row_of, tell, told
from .logits_block import Block
from .prefix_index import Beginnings
from .sequence import Leaf, Node

T = TypeVar("T")


class Slotted:
    """A causal model: a network, its pool of slots, and the sessions that share it.

    A new text starts from the longest computed prefix that another open text, or one of the last `shelf` closed ones,
    has in common with it. Shelved texts give way as soon as their slots are needed.
    """

    portion = 128  # tokens from which on a matrix product on a CPU wastes next to nothing
    crown: Callable[[], Heads] | None = None  # brings heads when they are first wanted

    def __init__(self, network: Network, shelf: int = 0) -> None:
        self.network, self.slots = network, network.slots
        self.vocab, self.context, self.room = network.vocab, network.context, network.slots.room
        self._shelf: deque[Leaf] = deque()
        self.shelf = shelf
        self._beginnings = Beginnings()
        self._unnoted: list[Leaf] = []  # texts that came to the shelf since a text was opened last

    @cached_property
    def heads(self) -> Heads | None:
        """What looks further ahead than the network, if there is such."""
        return None if self.crown is None else self.crown()

    def open(self, text: Sequence[int]) -> SlottedSession:
        """A session at `text`, with every slot that can be shared."""
        tokens = list(text)
        if not tokens:
            raise BadRequest("a text needs at least one token to go on from")
        for leaf in self._unnoted:
            self._beginnings.note(leaf)
        self._unnoted = []
        # The last token is computed anew, because its law is what the text is opened for.
        shared = self._beginnings.longest(tokens, len(tokens) - 1)
        self.slots.share(shared)
        return SlottedSession(self, [Leaf(tokens, shared)])

    def forget(self) -> None:
        """Clear the shelf."""
        while self._shelf:
            self.release(self._shelf.popleft())

    def owed(self, session: Session) -> int:
        """How many tokens of a session's text must still be read before it can be answered; 0 if there are several."""
        assert isinstance(session, SlottedSession)
        leaf, *others = session.leaves
        return 0 if others else len(leaf.tokens) - len(leaf.slots)

    def read(self, portions: Sequence[tuple[Session, int]]) -> None:
        """Read so many of them now, from the first on, and answer nothing; nothing is changed if it cannot be done."""
        growths: list[Growth] = []
        for session, count in portions:
            assert isinstance(session, SlottedSession)
            (leaf,) = session.leaves
            growths.append(Growth(leaf, leaf.owed[:count]))
        self._compute(growths, ())
        for growth in growths:
            growth.leaf.law, growth.leaf.hidden = None, {}  # those of a token in the middle

    def score(self, asked: Sequence[Asked]) -> list[Scores]:
        """Answer all these with one forward; nothing is changed if it cannot be done."""
        growths = self._grown(asked)
        self._compute([growth for group in growths for growth in group], layers_of(asked))
        return [self._answered(ask, group) for ask, group in zip(asked, growths, strict=True)]

    def _answered(self, ask: Asked, growths: list[Growth]) -> Scores:
        """The answer to an ask; heads guess where somebody looks."""
        scores, count = scores_of(ask, growths), guesses_of(ask.want)
        if not count or self.heads is None:
            return scores
        return replace(scores, ahead=looking(self.heads, growths, count))

    def _grown(self, asked: Sequence[Asked]) -> list[list[Growth]]:
        growths: list[list[Growth]] = []
        for ask in asked:
            session = ask.session
            assert isinstance(session, SlottedSession)
            layers = layers_of([ask]) if ask.want else ()
            for leaf in session.leaves:
                self._forget_without(leaf, layers)
            growths.append([grown(leaf, r, ask.tree) for r, leaf in enumerate(session.leaves)])
            for growth in growths[-1]:
                growth.best = tops_of(ask.want)
        return growths

    def _compute(self, growths: list[Growth], wants: tuple[int, ...]) -> None:
        self._refuse_overlong(growths)
        busy = [growth for growth in growths if len(growth)]
        if not busy:
            return
        self._holding(busy, lambda: self._forward(busy, wants))
        self._note(busy)

    def _holding(self, growths: list[Growth], forward: Callable[[], T]) -> T:
        """Run a forward with slots taken for all growths; they are given back if it fails."""
        self._take(growths)
        try:
            return forward()
        except BaseException:
            for growth in growths:
                self.slots.drop(growth.slots)
            raise

    def _note(self, growths: list[Growth]) -> None:
        """Let other texts find the prompts that were just read."""
        for growth in growths:
            if len(growth.owed) > 1:
                self._beginnings.note(growth.leaf)

    # ---- the forward

    def _forward(self, growths: list[Growth], wants: tuple[int, ...]) -> None:
        tokens: list[int] = []
        places: list[int] = []
        rows, read = [], []
        extra: list[tuple[Growth, int, int]] = []
        for growth in growths:
            first = len(tokens)
            extra += ((growth, row, place) for row, place in told(growth, first))
            row_tokens, row_places, row = row_of(growth, first)
            tokens += row_tokens
            places += row_places
            rows.append(row)
            if growth.owed:
                read.append(first + len(growth.owed) - 1)
            read += range(first + len(growth.owed), first + len(growth))
        slots = [slot for growth in growths for slot in growth.slots]
        reading = torch.tensor([*read, *(row for _, row, _ in extra)])
        batch = Batch(torch.tensor(tokens), torch.tensor(places), slots, rows, reading, wants)
        logits, hidden = self.network.forward(batch)
        at = 0
        for growth in growths:
            growth.logits = logits[at : at + 1 + len(growth.added)]
            at = harvest(growth, lambda row: Law(logits[row]), hidden, at)
        if extra:
            tell([(growth, place) for growth, _, place in extra], logits[at:])

    def _take(self, growths: list[Growth]) -> None:
        try:
            for growth in growths:
                leaf = growth.leaf
                last = leaf.drafts[-1].slot if leaf.drafts else leaf.slots[-1] if leaf.slots else None
                growth.slots = self._taken(len(growth), last)
        except OutOfRoom:
            for growth in growths:
                self.slots.drop(growth.slots)
                growth.slots = []
            raise

    def _taken(self, count: int, after: int | None) -> list[int]:
        while True:
            try:
                return self.slots.take(count, after)
            except OutOfRoom:
                if not self._shelf:
                    raise
                self.release(self._shelf.popleft())

    def _refuse_overlong(self, growths: list[Growth]) -> None:
        if self.context is None:
            return
        longest = max((len(g.leaf.tokens) + (1 if g.added else 0) for g in growths), default=0)
        if longest > self.context:
            raise OutOfRoom(f"a text of {longest} tokens is longer than the {self.context} that this model reads")

    def _forget_without(self, leaf: Leaf, layers: Sequence[int]) -> None:
        """Drop drafts, and the last token, if they were computed without hidden states that are wanted now."""
        if any(layer not in node.hidden for node in leaf.drafts for layer in layers):
            self._drop_drafts(leaf)
        if leaf.law is not None and any(layer not in leaf.hidden for layer in layers):
            self._drop_drafts(leaf)  # their keys stand behind the one that goes
            self.slots.drop([leaf.slots.pop()])
            leaf.law = None

    def _drop_drafts(self, leaf: Leaf) -> None:
        self.slots.drop([node.slot for node in leaf.drafts])
        _unhang(leaf)
        leaf.drafts, leaf.kids = [], {}

    # ---- sharing

    def closed(self, session: SlottedSession) -> None:
        """Forget a session; its first text goes to the shelf."""
        for leaf in session.leaves:
            self._drop_drafts(leaf)
        first, *others = session.leaves
        for leaf in others:
            self.release(leaf)
        self._shelf.append(first)
        while len(self._shelf) > self.shelf:
            self.release(self._shelf.popleft())
        self._unnoted = list(self._shelf)

    def release(self, leaf: Leaf) -> None:
        """Give back the slots of a text that nobody goes on with; whoever still finds it finds it empty."""
        self.slots.drop(leaf.slots)
        leaf.slots = []


class SlottedSession:
    """The kept leaves of one request."""

    def __init__(self, model: Slotted, leaves: list[Leaf]) -> None:
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
            _unhang(leaf)
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
        _unhang(leaf)
        if path or extra is not None:
            ends = len(computed) == len(path) and extra is None
            leaf.law, leaf.hidden = (computed[-1].law, computed[-1].hidden) if ends else (None, {})
        leaf.tokens += path if extra is None else (*path, extra)
        leaf.slots += kept
        leaf.kids, leaf.drafts = {}, []

    def _branch(self, tree: Tree, node: int, extra: int | None) -> Leaf:
        leaf, path = self.leaves[tree.leaf(node)], tree.tokens(tree.path(node))
        computed = list(leaf.descend(path))
        new = Leaf([*leaf.tokens, *path], [*leaf.slots, *(n.slot for n in computed)])
        if extra is not None:
            new.tokens.append(extra)
        elif len(computed) == len(path):
            last = computed[-1] if computed else leaf
            new.law, new.hidden = last.law, last.hidden
        return new

    def fork(self) -> SlottedSession:
        """The same leaves again; only counts change."""
        leaves = [Leaf(list(x.tokens), list(x.slots), x.law, x.hidden) for x in self.leaves]
        for leaf in leaves:
            self._model.slots.share(leaf.slots)
        return SlottedSession(self._model, leaves)

    def close(self) -> None:
        """Give all slots back."""
        if not self._closed:
            self._closed = True
            self._model.closed(self)


def scores_of(ask: Asked, growths: list[Growth]) -> Scores:
    """The answer to an ask, from what its leaves have grown."""
    found: dict[int, Node] = {}
    for growth in growths:
        found.update({n: a for n, a in growth.answers.items() if isinstance(a, Node)})
    nodes = [found[n] for n in range(len(ask.tree))]
    leaves = [growth.leaf for growth in growths]
    laws = [leaf.law for leaf in leaves if leaf.law is not None]
    ends: list[Node | Leaf] = [*nodes, *leaves]
    hidden = {name: torch.stack([x.hidden[layer_of(name)] for x in ends]) for name in hidden_of(ask.want)}
    tops = {place: best for growth in growths for place, best in growth.tops.items()}
    after, rows = [node.law for node in nodes], sum(len(growth) for growth in growths)
    if len(growths) == 1 and growths[0].owed and growths[0].logits is not None and len(growths[0].added) == len(nodes):
        return Block(after, laws, hidden, rows, tops, logits=growths[0].logits, ready=growths[0].ready)
    return Scores(after, laws, hidden, rows, tops)


def _unhang(leaf: Leaf) -> None:
    """Part drafts from each other, so that their laws go with the last who looks and wait for no collector."""
    for node in leaf.drafts:
        node.kids = {}
