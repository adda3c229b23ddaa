"""Masks packed beside a text: what the target itself guesses behind them, in the forward that verifies.

In a row [text | masks] every block of places has masks that see the text before it and the masks before them, at the
places of the tokens they stand for, and nobody sees them. The law behind mask s is to be the target's own behind the
s-th token of the block. PPD (arXiv 2405.18628) learns nothing but what a mask shows, and the model stays as it is; here
all masks show the same and their places tell them apart, where the paper has one for each. SPACE (arXiv 2402.11809)
and LUD (arXiv 2405.15208) change the model as well, here by factors of low rank, its laws on clean text held where
they were; both fine-tune all weights on labels.

The file is a delta with `model.mask`, so that `unspool run -m FILE --method masks` drafts with it. Claim: SEED, of the
model with that change; PPD's is the target itself, but for one token that it does not say any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from ..chunked_loss import Slopes, foreseen
from ..delta_compression import filed
from ..rows import batch_of
from ..teacher import Teacher
from ..token_corpus import TokenCorpus
from .acceptance import ROWS, Acceptance
from .consistency import FILE, KEPT, RANK, Consistent, Laid, Weights
from .target_outputs import TargetOutputs, Teaching

HOLE = -1
MASK = 16  # the token by which files name masks, as those of block diffusion do: the model with masks never says it


class PackedMasks(Consistent):
    """The target with masks: their embedding learns, and with `factors` every matrix a little."""

    def __init__(self, teacher: Teacher, block: int, seed: int, factors: bool) -> None:
        super().__init__(teacher, block, seed)
        self.factors = factors
        if not factors:
            self.tensors = {}
        self.tensors["mask"] = self.frozen.embedding.mean(0).detach().float().clone().requires_grad_()

    def weights(self) -> dict[str, Tensor]:
        return super().weights() if self.factors else dict(self.frozen.base)

    def embedded(self, tokens: Tensor) -> Tensor:
        words = self.teacher.embedding[tokens.clamp(min=0)]
        return torch.where((tokens == HOLE)[..., None], self.tensors["mask"].to(words), words)

    def guesses(self, weights: Weights, lesson: TargetOutputs) -> tuple[Tensor, Tensor, Laid]:
        """States behind the text's tokens and behind the masks in their places."""
        laid = self.lay(lesson)
        masks = torch.full_like(lesson.tokens, HOLE)
        return *self.states(weights, torch.cat([lesson.tokens, masks], 1), laid), laid

    def learn(self, lesson: TargetOutputs, decay: float, rule: Slopes) -> list[float]:
        """Add the slopes of the distance of laws behind masks, by their number in the block; return these distances."""
        clean, behind, laid = self.guesses(self.weights(), lesson)
        loss, found = clean.new_zeros((), dtype=torch.float32), list[Tensor]()
        for s in range(self.block):
            which = torch.isin(lesson.place, laid.inside[s :: self.block])
            row, place = lesson.row[which], lesson.place[which]
            each = torch.full((len(row),), 1 / max(len(row), 1), device=clean.device)
            own = foreseen(behind[row, place], self.teacher.head, lesson.laws[which], each, rule)
            loss = loss + decay**s * own
            found.append(own.detach())
        if self.factors:
            each = torch.full((len(lesson.row),), KEPT / max(len(lesson.row), 1), device=clean.device)
            loss = loss + foreseen(clean[lesson.row, lesson.place], self.teacher.head, lesson.laws, each, rule)
        loss.backward()  # type: ignore[no-untyped-call]
        return torch.stack(found).tolist()

    @torch.no_grad()
    def measure(self, teaching: Teaching, corpus: TokenCorpus, documents: Sequence[int]) -> Acceptance:
        """`best` and `overlap` by the number of the mask, as those of heads; `length`: tokens of a greedy round."""
        best, overlap, counted = (torch.zeros(self.block) for _ in range(3))
        runs, starts = 0, 0
        weights, device = self.weights(), str(self.teacher.head.device)
        for first in range(0, len(documents), ROWS):
            lesson = teaching.lesson(batch_of(corpus, list(documents[first : first + ROWS]), device))
            _, behind, laid = self.guesses(weights, lesson)
            right = torch.zeros_like(lesson.tokens, dtype=torch.bool)
            whole = torch.zeros_like(right)
            likeliest = teaching.best(lesson)
            for s in range(self.block):
                which = torch.isin(lesson.place, laid.inside[s :: self.block])
                row, place = lesson.row[which], lesson.place[which]
                law = functional.linear(behind[row, place], self.teacher.head).float().softmax(1)
                hit = law.argmax(1) == likeliest[which]
                right[row, place], whole[row, place] = hit, True
                best[s] += float(hit.sum())
                overlap[s] += float(torch.minimum(law, lesson.laws[which].float()).sum())
                counted[s] += len(row)
            blocks = (part[:, laid.inside].view(len(part), -1, self.block) for part in (right, whole))
            hits, inside = next(blocks), next(blocks).all(2)
            runs += int(hits.cumprod(2).sum(2)[inside].sum())
            starts += int(inside.sum())
        counted = counted.clamp(min=1)
        rates = (best / counted).tolist(), (overlap / counted).tolist()
        return Acceptance(*rates, 1 + runs / max(starts, 1), int(counted[0]))

    def write(self, folder: Path, base: str) -> None:
        """The mask, and the change if there is one, as a delta of the model `base`."""
        save_file(self.stored(), folder / f"{FILE}.part", metadata={"base": base, **self.about()})
        (folder / f"{FILE}.part").replace(folder / FILE)

    def stored(self) -> dict[str, Tensor]:
        """The tensors of the file."""
        stored: dict[str, Tensor] = {filed("mask"): self.tensors["mask"].detach().to(torch.float16).cpu()}
        for name, tensor in self.tensors.items():
            matrix, _, side = name.rpartition(".")
            if matrix:
                stored[f"{filed(matrix)}.{side}"] = tensor.detach().to(torch.float16).cpu().contiguous()
                stored[f"{filed(matrix)}.{side}_scale"] = torch.ones(RANK, dtype=torch.float16)
        return stored

    def about(self) -> dict[str, str]:
        """What the file says of itself."""
        return {"layout": "causal", "reading": "shifted", "mask": str(MASK), "block": str(self.block)}
