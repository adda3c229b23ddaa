"""Figures of a training run: what validation found, and what passed since the last line of the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .noisy_rows import NoisyBatch, Recipe, pack
from .objective import Readouts
from .token_corpus import TokenCorpus

CERTAIN = 0.9


def exam(corpus: TokenCorpus, among: NDArray[np.int64], count: int, recipe: Recipe) -> list[NoisyBatch]:
    """Batches that are the same in every run: blocks of 16 and of 32, any number of masks, all weighing alike.

    Where windows are learnt too, also those of the recipe's size, of masks alone.
    """
    plain = replace(recipe, ordered=0.0, decay=1.0, fade=1.0)
    kinds = [replace(plain, blocks=(size,), shares=(1.0,), sliding=0.0) for size in (16, 32)]
    kinds += [replace(plain, sliding=1.0)] if recipe.sliding else []
    batches = []
    for kind in kinds:
        rng = np.random.default_rng(9)
        stream = corpus.stream(rng, among, 1.0)
        batches += [pack(corpus, stream, rng, kind) for _ in range(count)]
    return batches


def marks(batches: Sequence[NoisyBatch], answers: Sequence[Readouts]) -> dict[str, dict[str, float]]:
    """Cross-entropy and accuracy of next tokens, and of masks by block size and by the share of the block masked."""
    loss, right, sure = (
        np.concatenate([getattr(answer, name).float().cpu().numpy() for answer in answers])
        for name in ("loss", "right", "confidence")
    )
    block, masks, real = (np.concatenate([getattr(b, name) for b in batches]) for name in ("block", "masks", "real"))
    groups = {"causal": block == 0}
    for size in sorted({int(size) for size in block} - {0}):
        for quarter in (0.25, 0.5, 0.75, 1.0):
            groups[f"block {size} masked {quarter}"] = (
                (block == size) & real & (np.ceil(4 * masks / size) / 4 == quarter)
            )
    found = {}
    for name, some in groups.items():
        if some.any():
            certain = some & (sure > CERTAIN)
            found[name] = {
                "ce": round(float(loss[some].mean()), 4),
                "right": round(float(right[some].mean()), 4),
                "certain": round(float(certain.sum() / some.sum()), 4),
                "certain and right": round(float(right[certain].mean()), 4) if certain.any() else 0.0,
            }
    return found


@dataclass
class StepSums:
    """What passed since a moment; sums stay on the device until they are read."""

    since: float
    causal: list[Tensor] = field(default_factory=list)
    block: list[Tensor] = field(default_factory=list)
    tokens: int = 0
    clean: int = 0
    waited: float = 0.0

    def add(self, batch: NoisyBatch, answer: Readouts, waited: float) -> None:
        """Count a batch and the seconds that were spent waiting for it."""
        causal = torch.from_numpy(batch.block == 0).to(answer.loss.device)
        weight = torch.from_numpy(batch.weight).to(answer.loss.device)
        self.causal.append((answer.loss * causal).sum() / causal.sum())
        self.block.append((answer.loss * weight * ~causal).sum())
        self.tokens += batch.tokens.size
        self.clean += batch.clean
        self.waited += waited

    def figures(self, now: float) -> dict[str, float]:
        """Mean losses and speed."""
        return {
            "causal": float(torch.stack(self.causal).mean()),
            "block": float(torch.stack(self.block).mean()),
            "tokens per second": self.tokens / (now - self.since),
            "clean tokens": self.clean,
            "waited": self.waited,
        }
