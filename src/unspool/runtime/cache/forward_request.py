"""Growth: what one forward adds to a leaf to answer a tree, what each new token sees, and the harvest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...core.law import Law
from ...core.tree import Tree
from ..network.network import Row
from .sequence import Leaf, Node

MOST_TOLD = 512  # a row of logits is as wide as the vocabulary


@dataclass
class Growth:
    """What one forward has to add to a leaf so that a tree can be answered: its owed tokens, then new nodes.

    `added[i]` is (token, parent): a parent ≥ 0 is another added node, −1 the leaf, and a Node one drafted earlier.
    `answers[node]` says where the tree's node is found afterwards: a Node, or an index into `added`.
    """

    leaf: Leaf
    owed: list[int]
    added: list[tuple[int, int | Node]] = field(default_factory=list)
    answers: dict[int, int | Node] = field(default_factory=dict)
    slots: list[int] = field(default_factory=list)
    best: int = 0  # how many of the likeliest tokens are wanted at the places of owed tokens
    tops: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    logits: Tensor | None = None  # of the last owed token and of all added ones, if they lie together
    ready: Tensor | None = None  # their best tokens, if the device has told them
    states: Tensor | None = None  # what heads read there, if a device keeps it for them
    ahead: list[list[tuple[int, float]]] = field(default_factory=list)  # what they guess after the last accepted one

    def __len__(self) -> int:
        return len(self.owed) + len(self.added)


def grown(leaf: Leaf, number: int, tree: Tree) -> Growth:
    """The growth of leaf `number` that answers `tree`. Equal siblings are computed once; computed nodes are reused."""
    growth = Growth(leaf, leaf.owed)
    fresh: dict[tuple[int, int], int] = {}  # (id of parent, token) -> index into added
    for node, (parent, drawn) in enumerate(zip(tree.parent, tree.drawn, strict=True)):
        if parent < 0:
            if ~parent != number:
                continue
            above: int | Node = -1
        elif parent in growth.answers:
            above = growth.answers[parent]
        else:
            continue  # hangs from another leaf
        known = leaf.kids if above == -1 else above.kids if isinstance(above, Node) else {}
        if drawn.token in known:
            growth.answers[node] = known[drawn.token]
            continue
        key = (id(above) if isinstance(above, Node) else above, drawn.token)
        if key not in fresh:
            fresh[key] = len(growth.added)
            growth.added.append((drawn.token, above))
        growth.answers[node] = fresh[key]
    return growth


def row_of(growth: Growth, first: int) -> tuple[list[int], list[int], Row]:
    """The tokens and positions of a growth, and its row of the batch, whose first token has number `first`."""
    leaf, owed = growth.leaf, growth.owed
    known = len(leaf.slots)
    end = len(leaf.tokens)  # the position of a token right below the leaf
    places = list(range(known, known + len(owed)))
    for _, above in growth.added:
        places.append(
            above.place + 1 if isinstance(above, Node) else end if above < 0 else places[len(owed) + above] + 1
        )
    tokens = [*owed, *(token for token, _ in growth.added)]
    slots = [*leaf.slots, *(node.slot for node in leaf.drafts), *growth.slots]
    key_places = [*range(known), *(node.place for node in leaf.drafts), *places]
    hidden_from = None if _one_path(growth) else _hidden_from(growth, len(slots))
    return tokens, places, Row(first, len(tokens), slots, key_places, hidden_from)


def told(growth: Growth, first: int) -> list[tuple[int, int]]:
    """The rows that tell the likeliest tokens at places of the prompt: (row, place), at most `MOST_TOLD`, the last."""
    owed = len(growth.owed) - 1 if growth.best else 0  # what the last one tells is the leaf's law
    known = len(growth.leaf.slots)
    return [(first + i, known + i + 1) for i in range(max(0, owed - MOST_TOLD), owed)]


def tell(growths: Sequence[tuple[Growth, int]], logits: Tensor) -> None:
    """Give growths the likeliest tokens at these places, one row of logits each."""
    most = min(logits.shape[1], max(growth.best for growth, _ in growths))
    values, tokens = logits.topk(most)
    p = (values.double() - logits.logsumexp(1, keepdim=True)).exp()
    for (growth, place), row, masses in zip(growths, tokens.tolist(), p.tolist(), strict=True):
        growth.tops[place] = list(zip(row, masses, strict=True))[: growth.best]


def _one_path(growth: Growth) -> bool:
    """True if every drafted token hangs from the one before it, so that plain causal sight is right."""
    last: Leaf | Node | int = growth.leaf
    for node in growth.leaf.drafts:
        if node.above is not last:
            return False
        last = node
    last = -1 if isinstance(last, Leaf) else last
    for i, (_, above) in enumerate(growth.added):
        if above is not last and above != last:
            return False
        last = i
    return True


def _hidden_from(growth: Growth, keys: int) -> Tensor:
    """Which keys each token must not see: all drafts but its own line of descent."""
    known, drafts, owed = len(growth.leaf.slots), len(growth.leaf.drafts), len(growth.owed)
    hidden = torch.ones(len(growth), keys, dtype=torch.bool)
    hidden[:, :known] = False
    for i in range(owed):
        hidden[i, known : known + i + 1] = False
    hidden[owed:, known : known + owed] = False  # owed tokens come first only where nothing was drafted before
    lines: list[list[int]] = []
    for i, (_, above) in enumerate(growth.added):
        upper = _line(above, known) if isinstance(above, Node) else [] if above < 0 else lines[above]
        lines.append([*upper, known + drafts + owed + i])
        hidden[owed + i, lines[i]] = False
    return hidden


def _line(node: Node, known: int) -> list[int]:
    """The keys of a drafted token and of all drafted tokens above it."""
    line: list[int] = []
    above: Leaf | Node = node
    while isinstance(above, Node):
        line.append(known + above.order)
        above = above.above
    return line


def harvest(growth: Growth, law: Callable[[int], Law], hidden: Mapping[int, Tensor], at: int) -> int:
    """Hang the computed tokens onto their leaf, reading outputs from number `at`; the number of the next."""
    leaf, owed = growth.leaf, len(growth.owed)
    if owed:
        leaf.slots += growth.slots[:owed]
        leaf.law, leaf.hidden = law(at), {layer: states[at] for layer, states in hidden.items()}
        at += 1
    nodes: list[Node] = []
    for (token, above), slot in zip(growth.added, growth.slots[owed:], strict=True):
        parent = above if isinstance(above, Node) else leaf if above < 0 else nodes[above]
        place = parent.place + 1 if isinstance(parent, Node) else len(leaf.tokens)
        states = {layer: rows[at] for layer, rows in hidden.items()}
        node = Node(token, slot, place, len(leaf.drafts), parent, law(at), states)
        parent.kids[token] = node
        leaf.drafts.append(node)
        nodes.append(node)
        at += 1
    growth.answers = {n: nodes[a] if isinstance(a, int) else a for n, a in growth.answers.items()}
    return at
