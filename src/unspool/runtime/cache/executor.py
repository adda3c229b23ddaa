"""Executors run the forwards of a cached model; the one here calls the network as it is, for CPUs and any device."""

from __future__ import annotations

from typing import Protocol

import torch

from ...core.law import Law
from ..network.network import Batch, Network
from .forward_request import ForwardRequest, attach_outputs, prompt_top_tokens, row_of, tell
from .sequence import CachedSequence


class Executor(Protocol):
    """Computes new tokens into slots that were taken for them."""

    @property
    def chunk(self) -> int:
        """Tokens of a prompt that it reads at a time without waste."""
        ...

    def forward(self, requests: list[ForwardRequest], wants: tuple[int, ...]) -> None:
        """Compute all new tokens; laws, and hidden states of the layers `wants`, are attached to their sequences."""
        ...

    def prefill(self, requests: list[ForwardRequest]) -> None:
        """Compute keys and values of the owed tokens and nothing else; sequences are not changed."""
        ...

    def forget(self, sequence: CachedSequence, size: int = 0) -> None:
        """Take note that from its token `size` on, a sequence has other slots from now on, or none."""
        ...


class EagerExecutor:
    """Packs all requests into one batch without padding and calls the network."""

    chunk = 128  # tokens from which on a matrix product on a CPU wastes next to nothing

    def __init__(self, network: Network) -> None:
        self._network = network

    def forward(self, requests: list[ForwardRequest], wants: tuple[int, ...]) -> None:
        """One call of the network: logits after the last owed token and after every drafted one."""
        batch, told = _batch(requests, wants)
        logits, hidden = self._network.forward(batch)
        at = 0
        for request in requests:
            request.logits = logits[at : at + 1 + len(request.added)]
            at = attach_outputs(request, lambda row: Law(logits[row]), hidden, at)
        if told:
            tell(told, logits[at:])

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
