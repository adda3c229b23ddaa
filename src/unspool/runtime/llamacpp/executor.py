"""Forwards of a cached model on llama.cpp: the paths of a draft tree become sequences that share their beginnings.

1. Cells that nobody uses any more are cut off the sequences.
2. Every tip of the new tokens gets a sequence that ends where its path begins: the one that ends there, or a copy.
3. A new token belongs to the sequences of all tips below it, so each sees its own line of descent and nothing else.
4. One call computes the rows of all requests, more if they are many; logits are copied out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from ...core.errors import BadRequest, OutOfRoom
from ..cache.forward_request import (
    NO_STATES,
    BestTokens,
    ForwardRequest,
    attach_outputs,
    attach_rows,
    prompt_top_tokens,
)
from ..cache.sequence import CachedSequence, DraftNode
from ..cpu.kernel_outputs import KernelLaw, best_of
from ..engine.contracts import LAST
from .last_outputs import LastOutputs
from .llama_context import BATCH, OUTPUTS, ContextRow, LlamaContext
from .sequences import CellPool, Sequences

Anchor = tuple[CachedSequence, DraftNode | None]  # what new tokens hang from: a drafted token, or the end of a text


class SequenceExecutor:
    """Runs forward requests on a context whose sequences stand for the paths of all texts and drafts."""

    chunk = BATCH

    def __init__(self, context: LlamaContext, pool: CellPool) -> None:
        self._context, self._pool = context, pool
        self._most = context.sequences - 1  # at once: one is left to copy from
        self._sequences = Sequences(context, context.sequences)

    def forward(self, requests: list[ForwardRequest], wants: tuple[int, ...]) -> None:
        """Compute all new tokens and attach their laws, and what leaves the last norm if it is wanted."""
        if set(wants) - {LAST}:
            raise BadRequest(
                f"llama.cpp's runtime gives the hidden state 'hidden:{LAST}', which leaves the last norm, and not "
                f"{', '.join(f'hidden:{layer}' for layer in wants if layer != LAST)}. Use the native runtime for it."
            )
        if len(requests) == 1 and not wants and self._is_line(requests[0]):
            self._line(requests[0])
            return
        outputs, told = _outputs(requests)
        rows = sum(map(len, outputs))
        logits = torch.empty(rows, self._context.vocab)
        states = torch.empty(rows, self._context.width) if wants else None
        self._run(requests, outputs, logits, states)
        attach_rows(requests, told, logits, {} if states is None else {LAST: states})

    def prefill(self, requests: list[ForwardRequest]) -> None:
        self._run(requests, [{} for _ in requests], None, None)

    def forget(self, sequence: CachedSequence, size: int = 0) -> None:
        """Cells are let go by the pool alone."""

    def _is_line(self, request: ForwardRequest) -> bool:
        """Whether the tokens of a request follow each other at the end of its text, and fit into one call."""
        owed, added = request.owed, request.added
        return (
            len(owed) + len(added) <= self._context.most
            and len(added) < OUTPUTS
            and not (request.best and len(owed) > 1)
            and all(above == at for at, (_, above) in enumerate(added, -1))
        )

    def _line(self, request: ForwardRequest) -> None:
        """Compute what one text is asked mostly, a token or a chain of drafts: no tensor is made before one is read."""
        owed, leaf, cells = request.owed, request.leaf, self._sequences.cells
        silent = max(0, len(owed) - 1)
        self._sweep()
        number = self._sequence((leaf, None), {})
        tokens = [*owed, *(token for token, _ in request.added)]
        try:
            outputs = self._context.compute_line(number, tokens, len(leaf.slots), silent)
        except BaseException:  # parts of it may be stored
            self._sequences.cut(number, len(cells[number]))
            raise
        cells[number] += request.slots
        request.likeliest = partial(_likeliest, outputs)
        best = outputs.best()
        attach_outputs(request, lambda row: KernelLaw(outputs, row, best[row]), NO_STATES, 0)

    def _sweep(self) -> None:
        if self._pool.freed:
            self._pool.freed = False
            self._sequences.sweep(self._pool.users)

    def _run(
        self,
        requests: list[ForwardRequest],
        outputs: list[dict[int, int]],
        logits: Tensor | None,
        states: Tensor | None,
    ) -> None:
        """Compute requests together as long as there are sequences for them, then go on with the rest."""
        self._sweep()
        paths: dict[int, list[int]] = {}  # the new cells of every sequence that is busy
        rows: list[ContextRow] = []
        for request, output in zip(requests, outputs, strict=True):
            tips = list(_tips(request))
            if len(tips) > self._most:
                raise OutOfRoom(
                    f"a tree with {len(tips)} ends needs as many sequences, and llama.cpp's runtime has {self._most}. "
                    "Choose a narrower tree (its width, budget, branches, …)."
                )
            if len(paths) + len(tips) > self._most:
                self._compute(rows, paths, logits, states)
                paths, rows = {}, []
            rows += self._rows(request, tips, output, paths)
        self._compute(rows, paths, logits, states)

    def _compute(
        self, rows: list[ContextRow], paths: dict[int, list[int]], logits: Tensor | None, states: Tensor | None
    ) -> None:
        try:
            self._context.compute(rows, logits, states)
        except BaseException:
            for number in paths:  # parts of it may be stored
                self._sequences.cut(number, len(self._sequences.cells[number]))
            raise
        for number, cells in paths.items():
            self._sequences.cells[number] += cells

    def _rows(
        self, request: ForwardRequest, tips: list[list[int]], output: dict[int, int], paths: dict[int, list[int]]
    ) -> list[ContextRow]:
        """The rows of a request; the sequences that it takes, and their new cells, are added to `paths`."""
        tokens = [*request.owed, *(token for token, _ in request.added)]
        of: list[list[int]] = [[] for _ in tokens]
        places = [0] * len(tokens)
        for path in tips:
            leaf, node = anchor = _anchor(request, path[0])
            number = self._sequence(anchor, paths)
            paths[number] = [request.slots[i] for i in path]
            first = node.place + 1 if node is not None else len(leaf.slots)
            for depth, i in enumerate(path):
                of[i].append(number)
                places[i] = first + depth
        return [
            ContextRow(token, place, tuple(numbers), output.get(i, -1))
            for i, (token, place, numbers) in enumerate(zip(tokens, places, of, strict=True))
        ]

    def _sequence(self, anchor: Anchor, busy: dict[int, list[int]]) -> int:
        """A sequence that is not busy and ends in the anchor."""
        leaf, node = anchor
        if node is None and not leaf.slots:
            return self._free(busy)
        cell = leaf.slots[-1] if node is None else node.slot
        place = len(leaf.slots) - 1 if node is None else node.place
        found = self._sequences.ending(cell, place, busy)
        if found is not None:
            return found
        source = self._sequences.through(cell, place)
        if source is None:
            return self._restored(anchor, busy)
        found = self._free({*busy, source})
        self._sequences.copy(source, found, place + 1)
        return found

    def _restored(self, anchor: Anchor, busy: dict[int, list[int]]) -> int:
        """The same where the anchor's cells were lost: what is left of its path is copied, the rest computed again."""
        leaf, node = anchor
        cells, tokens = list(leaf.slots), leaf.tokens[: len(leaf.slots)]
        line: list[DraftNode] = []
        above: CachedSequence | DraftNode | None = node
        while isinstance(above, DraftNode):
            line.append(above)
            above = above.above
        cells += [one.slot for one in reversed(line)]
        tokens = [*tokens, *(one.token for one in reversed(line))]
        known, source = 0, None
        for number, held in enumerate(self._sequences.cells):
            common = min(len(held), len(cells))
            while common > known and held[common - 1] != cells[common - 1]:
                common -= 1
            if common > known:
                known, source = common, number
        found = self._free({*busy, *(() if source is None else (source,))})
        if source is not None:
            self._sequences.copy(source, found, known)
        rows = [ContextRow(token, known + i, (found,)) for i, token in enumerate(tokens[known:])]
        self._compute(rows, {found: cells[known:]}, None, None)
        return found

    def _free(self, busy: dict[int, list[int]] | set[int]) -> int:
        found = self._sequences.free(busy)
        if found is None:
            raise OutOfRoom(f"all {self._most} sequences of llama.cpp's cache are needed at once. Ask for less.")
        return found


def _outputs(requests: list[ForwardRequest]) -> tuple[list[dict[int, int]], list[tuple[ForwardRequest, int]]]:
    """For every request which of its tokens has which row of the outputs, and whom the last rows tell of prompts."""
    outputs: list[dict[int, int]] = []
    at = 0
    for request in requests:
        first = max(0, len(request.owed) - 1)
        outputs.append({i: at + i - first for i in range(first, len(request))})
        at += len(request) - first
    told: list[tuple[ForwardRequest, int]] = []
    for request, output in zip(requests, outputs, strict=True):
        for i, place in prompt_top_tokens(request, 0):
            output[i] = at
            at += 1
            told.append((request, place))
    return outputs, told


def _likeliest(outputs: LastOutputs, k: int) -> BestTokens:
    return best_of(outputs.logits, k)


def _tips(request: ForwardRequest) -> Iterator[list[int]]:
    """For every new token that nothing new hangs from, the new tokens down to it, itself last."""
    owed = len(request.owed)
    above = [i - 1 for i in range(owed)] + [_above(request, i) for i in range(len(request.added))]
    inner = set(above)
    for tip in range(len(above)):
        if tip in inner:
            continue
        path, i = [], tip
        while i >= 0:
            path.append(i)
            i = above[i]
        yield path[::-1]


def _above(request: ForwardRequest, added: int) -> int:
    """The new token that an added one hangs from, −1 if that was computed before."""
    parent = request.added[added][1]
    if isinstance(parent, DraftNode):
        return -1
    return len(request.owed) + parent  # which is the last owed one, or −1 if nothing is owed, for the leaf itself


def _anchor(request: ForwardRequest, first: int) -> Anchor:
    """What was computed before and the new token `first` hangs from."""
    added = first - len(request.owed)
    parent = request.added[added][1] if added >= 0 else -1
    return request.leaf, parent if isinstance(parent, DraftNode) else None
