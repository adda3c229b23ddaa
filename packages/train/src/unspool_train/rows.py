"""Documents as rows of a batch: similar lengths together, one per row, so that plain causal attention serves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .token_corpus import TokenCorpus

POOL = 4096  # documents that are sorted by their lengths at a time
STEP = 32  # widths are multiples of this


@dataclass(frozen=True)
class PaddedBatch:
    """Documents of similar length, one per row, padded on the right; their lengths and those of their prompts."""

    tokens: Tensor
    lengths: Tensor
    prompts: Tensor

    def answers(self) -> Tensor:
        """Places [n, 2] (row, t), row by row, with token t + 1 in the answer."""
        place = torch.arange(self.tokens.shape[1], device=self.tokens.device)[None]
        return ((place + 1 >= self.prompts[:, None]) & (place + 1 < self.lengths[:, None])).nonzero()


def batches(
    corpus: TokenCorpus, among: NDArray[np.int64], rng: np.random.Generator, greedy: float, most: int, device: str
) -> Iterator[PaddedBatch]:
    """Batches of at most so many tokens for ever: documents of similar length together, in a random order of lengths.

    A share `greedy` of the documents are greedy answers. Tokens are counted with their padding.
    """
    documents = corpus.stream(rng, among, greedy)
    while True:
        some = sorted((next(documents) for _ in range(POOL)), key=lambda i: corpus.starts[i + 1] - corpus.starts[i])
        groups: list[list[int]] = [[]]
        for index in some:
            width = _wide(int(corpus.starts[index + 1] - corpus.starts[index]))
            if groups[-1] and (len(groups[-1]) + 1) * width > most:
                groups.append([])
            groups[-1].append(index)
        for number in rng.permutation(len(groups)):
            yield batch_of(corpus, groups[number], device)


def batch_of(corpus: TokenCorpus, chosen: list[int], device: str) -> PaddedBatch:
    """These documents as rows."""
    documents = [corpus[index] for index in chosen]
    tokens = np.zeros((len(documents), _wide(max(len(one.tokens) for one in documents))), np.int64)
    for row, one in enumerate(documents):
        tokens[row, : len(one.tokens)] = one.tokens
    lengths, prompts = [len(one.tokens) for one in documents], [one.prompt for one in documents]
    return PaddedBatch(*(torch.as_tensor(part).to(device) for part in (tokens, lengths, prompts)))


def _wide(length: int) -> int:
    return -(-length // STEP) * STEP
