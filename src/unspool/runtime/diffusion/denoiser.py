"""Denoisers compute the looks of a model that fills holes; the one here calls the network as it is."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from ...core.asks import Soft
from ...models.shape import DiffusionSpec
from ..network.network import Batch, Network, Row
from .denoise_batch import DenoiseBatch, mixed


class Denoiser(Protocol):
    """One forward over what several looks add to their texts, in slots that were taken for it."""

    def logits(self, sheets: list[DenoiseBatch]) -> list[Tensor]:
        """For every sheet the logits that it reads."""


class EagerDenoiser:
    """Looks by a network that takes any batch."""

    def __init__(self, network: Network, spec: DiffusionSpec) -> None:
        self._network, self._spec = network, spec

    def logits(self, sheets: list[DenoiseBatch]) -> list[Tensor]:
        """One call of the network over all sheets, packed without padding."""
        tokens, places, slots = list[int](), list[int](), list[int]()
        rows, read, soft, counts = list[Row](), list[int](), list[tuple[int, Soft]](), list[int]()
        for sheet in sheets:
            first = len(tokens)
            own_tokens, own_places, own_rows = sheet.packed(first, self._spec)
            tokens += own_tokens
            places += own_places
            slots += sheet.slots
            rows += own_rows
            soft += sheet.mixtures(first)
            reads = sheet.reads(self._spec)
            read += (first + number for number in reads)
            counts.append(len(reads))
        if not tokens:  # all is known
            return [torch.empty(0)] * len(sheets)
        batch = Batch(torch.tensor(tokens), torch.tensor(places), slots, rows, torch.tensor(read), (), mixed(soft))
        return list(torch.split(self._network.forward(batch).logits, counts))
