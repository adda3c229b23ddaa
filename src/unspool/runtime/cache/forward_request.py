"""A forward request: the tokens that a forward adds to a sequence, what each of them sees, and its outputs.

Executors run such requests; the one here calls the network as it is, for CPUs and any device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from ...core.asks import Ahead, Scores
from ...core.law import Law, best_of
from ...core.tree import Tree
from .. import cpu
from ..engine.contracts import ScoreRequest, hidden_of, layer_of
from ..network.network import Batch, Network, Row
from .sequence import CachedSequence, DraftNode

MOST_TOLD = 512  # a row of logits is as wide as the vocabulary
NO_STATES: Mapping[int, Tensor] = MappingProxyType({})
BestTokens: TypeAlias = list[list[tuple[int, float]]]


@dataclass
class ForwardRequest:
    """What one forward has to add to a sequence so that a tree can be scored: its owed tokens, then new nodes.

    `added[i]` is (token, parent): a parent ≥ 0 is another added node, −1 the leaf, and a Node one drafted earlier.
    `answers[node]` says where the tree's node is found afterwards: a Node, or an index into `added`.
    """

    leaf: CachedSequence
    owed: list[int]
    added: list[tuple[int, int | DraftNode]] = field(default_factory=list)
    answers: dict[int, int | DraftNode] = field(default_factory=dict)
    slots: list[int] = field(default_factory=list)
    best: int = 0  # how many of the likeliest tokens are wanted at the places of owed tokens
    tops: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    likeliest: Callable[[int], BestTokens] | None = None  # of the last owed token and of all added, if there is one
    states: Tensor | None = None  # what heads read there, if a device keeps it for them
    ahead: list[list[tuple[int, float]]] = field(default_factory=list)  # what they guess after the last accepted one

    def __len__(self) -> int:
        return len(self.owed) + len(self.added)


def grown(leaf: CachedSequence, number: int, tree: Tree) -> ForwardRequest:
    """The request of leaf `number` that answers `tree`. Equal siblings are computed once; computed nodes are reused."""
    request = ForwardRequest(leaf, leaf.owed)
    fresh: dict[tuple[int, int], int] = {}  # (id of parent, token) -> index into added
    for node, (parent, drawn) in enumerate(zip(tree.parent, tree.drawn, strict=True)):
        if parent < 0:
            if ~parent != number:
                continue
            above: int | DraftNode = -1
        elif parent in request.answers:
            above = request.answers[parent]
        else:
            continue  # hangs from another leaf
        known = leaf.kids if above == -1 else above.kids if isinstance(above, DraftNode) else {}
        if drawn.token in known:
            request.answers[node] = known[drawn.token]
            continue
        key = (id(above) if isinstance(above, DraftNode) else above, drawn.token)
        if key not in fresh:
            fresh[key] = len(request.added)
            request.added.append((drawn.token, above))
        request.answers[node] = fresh[key]
    return request


def first_rows(requests: Sequence[ForwardRequest], most: int) -> list[ForwardRequest]:
    """The first `most` rows of these requests, parents before their children."""
    found: list[ForwardRequest] = []
    for request in requests:
        owed = request.owed[:most]
        most -= len(owed)
        added = request.added[:most]  # none where something is still owed
        most -= len(added)
        answers = {n: at for n, at in request.answers.items() if isinstance(at, DraftNode) or at < len(added)}
        found.append(ForwardRequest(request.leaf, owed, added, answers))
    return found


def row_of(request: ForwardRequest, first: int) -> tuple[list[int], list[int], Row]:
    """The tokens and positions of a request, and its row of the batch, whose first token has number `first`."""
    leaf, owed = request.leaf, request.owed
    known = len(leaf.slots)
    end = len(leaf.tokens)  # the position of a token right below the leaf
    places = list(range(known, known + len(owed)))
    for _, above in request.added:
        places.append(
            above.place + 1 if isinstance(above, DraftNode) else end if above < 0 else places[len(owed) + above] + 1
        )
    tokens = [*owed, *(token for token, _ in request.added)]
    slots = [*leaf.slots, *(node.slot for node in leaf.drafts), *request.slots]
    key_places = [*range(known), *(node.place for node in leaf.drafts), *places]
    hidden_from = None if _one_path(request) else _hidden_from(request, len(slots))
    row = Row(first, len(tokens), slots, key_places, hidden_from, follows(request), len(request.added))
    return tokens, places, row


def follows(request: ForwardRequest) -> list[int]:
    """The slot that each new token of a request follows, −1 for the first of a text."""
    own, owed = request.slots, len(request.owed)
    last = request.leaf.slots[-1] if request.leaf.slots else -1
    end = own[owed - 1] if owed else last
    slots = [last, *own[: owed - 1]] if owed else []
    for _, above in request.added:
        slots.append(above.slot if isinstance(above, DraftNode) else end if above < 0 else own[owed + above])
    return slots


def resumes_at(request: ForwardRequest) -> list[int]:
    """The slots of computed tokens that new tokens of a request follow."""
    drafted = [above.slot for _, above in request.added if isinstance(above, DraftNode)]
    below = request.owed or any(above == -1 for _, above in request.added)
    return [*drafted, *(request.leaf.slots[-1:] if below else ())]


def prompt_top_tokens(request: ForwardRequest, first: int) -> list[tuple[int, int]]:
    """The rows that tell the likeliest tokens at places of the prompt: (row, place), at most `MOST_TOLD`, the last."""
    owed = len(request.owed) - 1 if request.best else 0  # what the last one tells is the leaf's law
    known = len(request.leaf.slots)
    return [(first + i, known + i + 1) for i in range(max(0, owed - MOST_TOLD), owed)]


def tell(requests: Sequence[tuple[ForwardRequest, int]], logits: Tensor) -> None:
    """Store the top tokens at these places of prompts with their requests, from one row of logits each."""
    most = min(logits.shape[1], max(request.best for request, _ in requests))
    found = cpu.kernel_outputs.likeliest(logits, most) if logits.is_cpu else None
    if found is None:
        values, tokens = logits.topk(most)
        p = (values.double() - logits.logsumexp(1, keepdim=True)).exp()
        found = [list(zip(*row, strict=True)) for row in zip(tokens.tolist(), p.tolist(), strict=True)]
    for (request, place), best in zip(requests, found, strict=True):
        request.tops[place] = best[: request.best]


def _one_path(request: ForwardRequest) -> bool:
    """True if every drafted token hangs from the one before it, so that a plain causal mask is right."""
    last: CachedSequence | DraftNode | int = request.leaf
    for node in request.leaf.drafts:
        if node.above is not last:
            return False
        last = node
    last = -1 if isinstance(last, CachedSequence) else last
    for i, (_, above) in enumerate(request.added):
        if above is not last and above != last:
            return False
        last = i
    return True


def _hidden_from(request: ForwardRequest, keys: int) -> Tensor:
    """Which keys each token must not see: all drafts but its own line of descent."""
    known, drafts, owed = len(request.leaf.slots), len(request.leaf.drafts), len(request.owed)
    hidden = torch.ones(len(request), keys, dtype=torch.bool)
    hidden[:, :known] = False
    for i in range(owed):
        hidden[i, known : known + i + 1] = False
    hidden[owed:, known : known + owed] = False  # owed tokens come first only where nothing was drafted before
    lines: list[list[int]] = []
    for i, (_, above) in enumerate(request.added):
        upper = _line(above, known) if isinstance(above, DraftNode) else [] if above < 0 else lines[above]
        lines.append([*upper, known + drafts + owed + i])
        hidden[owed + i, lines[i]] = False
    return hidden


def _line(node: DraftNode, known: int) -> list[int]:
    """The keys of a drafted token and of all drafted tokens above it."""
    line: list[int] = []
    above: CachedSequence | DraftNode = node
    while isinstance(above, DraftNode):
        line.append(known + above.order)
        above = above.above
    return line


def attach_outputs(request: ForwardRequest, law: Callable[[int], Law], hidden: Mapping[int, Tensor], at: int) -> int:
    """Attach laws and hidden states to the sequence, reading outputs from row `at` on; the row after them."""
    leaf, owed = request.leaf, len(request.owed)
    if owed:
        leaf.slots += request.slots[:owed]
        leaf.law, leaf.hidden = law(at), StatesOfRow(hidden, at)
        at += 1
    nodes: list[DraftNode] = []
    for (token, above), slot in zip(request.added, request.slots[owed:], strict=True):
        parent = above if isinstance(above, DraftNode) else leaf if above < 0 else nodes[above]
        place = parent.place + 1 if isinstance(parent, DraftNode) else len(leaf.tokens)
        node = DraftNode(token, slot, place, len(leaf.drafts), parent, law(at), StatesOfRow(hidden, at))
        parent.kids[token] = node
        leaf.drafts.append(node)
        nodes.append(node)
        at += 1
    request.answers = {n: nodes[a] if isinstance(a, int) else a for n, a in request.answers.items()}
    return at


class StatesOfRow(Mapping[int, Tensor]):
    """The hidden states of one row of a forward by layer, each taken out only when somebody reads it."""

    __slots__ = ("hidden", "row")

    def __init__(self, hidden: Mapping[int, Tensor], row: int) -> None:
        self.hidden, self.row = hidden, row

    def __getitem__(self, layer: int) -> Tensor:
        return self.hidden[layer][self.row]

    def __contains__(self, layer: object) -> bool:
        return layer in self.hidden

    def __iter__(self) -> Iterator[int]:
        return iter(self.hidden)

    def __len__(self) -> int:
        return len(self.hidden)


def attach_rows(
    requests: Sequence[ForwardRequest],
    told: Sequence[tuple[ForwardRequest, int]],
    logits: Tensor,
    hidden: Mapping[int, Tensor],
) -> None:
    """Attach outputs that lie one behind the other: those of every request, then what tells of places of prompts."""
    at = 0
    for request in requests:
        request.likeliest = partial(_likeliest, logits, at, at + 1 + len(request.added))
        at = attach_outputs(request, lambda row: Law(logits[row]), hidden, at)
    if told:
        tell(told, logits[at:])


def scores_of(ask: ScoreRequest, requests: list[ForwardRequest], ahead: Ahead | None = None) -> Scores:
    """The answer to an ask, from what a forward has attached to its leaves; `ahead` is what heads guess there."""
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
        and requests[0].likeliest is not None
        and len(requests[0].added) == len(nodes)
    ):
        return BlockScores(after, laws, hidden, rows, tops, ahead, likeliest=requests[0].likeliest)
    return Scores(after, laws, hidden, rows, tops, ahead)


@dataclass(frozen=True)
class BlockScores(Scores):
    """Scores of one leaf and its tree, whose best tokens the forward tells together."""

    likeliest: Callable[[int], BestTokens] = field(kw_only=True)

    def best(self, k: int) -> BestTokens:
        return self.likeliest(k)


def _likeliest(logits: Tensor, first: int, end: int, k: int) -> BestTokens:
    """The k best tokens of some rows of logits, each with its weight among them."""
    rows = logits[first:end]
    return cpu.kernel_outputs.best_of(rows, k) if rows.is_cpu else best_of(rows, k)


class Executor(Protocol):
    """Computes new tokens into slots that were taken for them."""

    @property
    def chunk(self) -> int:
        """Tokens of a prompt that it reads at a time without waste."""

    def forward(self, requests: list[ForwardRequest], wants: tuple[int, ...]) -> None:
        """Compute all new tokens; laws, and hidden states of the layers `wants`, are attached to their sequences."""

    def prefill(self, requests: list[ForwardRequest]) -> None:
        """Compute keys and values of the owed tokens and nothing else; sequences are not changed."""

    def forget(self, sequence: CachedSequence, size: int = 0) -> None:
        """Drop what is kept of a sequence beside its slots, from its token `size` on."""


class EagerExecutor:
    """Packs all requests into one batch without padding and calls the network."""

    chunk = 128  # tokens from which on a matrix product on a CPU wastes next to nothing

    def __init__(self, network: Network) -> None:
        self._network = network

    def forward(self, requests: list[ForwardRequest], wants: tuple[int, ...]) -> None:
        batch, told = _batch(requests, wants)
        attach_rows(requests, told, *self._network.forward(batch))

    def prefill(self, requests: list[ForwardRequest]) -> None:
        self._network.forward(_batch(requests, ())[0])

    def forget(self, sequence: CachedSequence, size: int = 0) -> None:
        """Nothing is kept beside the slots that a sequence names itself."""


def _batch(requests: list[ForwardRequest], wants: tuple[int, ...]) -> tuple[Batch, list[tuple[ForwardRequest, int]]]:
    """The batch of some requests, and the places of prompts whose logits stand behind all others."""
    tokens: list[int] = []
    places: list[int] = []
    rows, read = [], []
    extra: list[tuple[ForwardRequest, int, int]] = []
    for request in requests:
        first = len(tokens)
        extra += ((request, row, place) for row, place in prompt_top_tokens(request, first))
        row_tokens, row_places, row = row_of(request, first)
        tokens += row_tokens
        places += row_places
        rows.append(row)
        if request.owed:
            read.append(first + len(request.owed) - 1)
        read += range(first + len(request.owed), first + len(request))
    slots = [slot for request in requests for slot in request.slots]
    reading = torch.tensor([*read, *(row for _, row, _ in extra)])
    batch = Batch(torch.tensor(tokens), torch.tensor(places), slots, rows, reading, wants)
    return batch, [(request, place) for request, _, place in extra]
