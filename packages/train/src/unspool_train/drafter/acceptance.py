"""How many of a drafter's guesses would stand, on texts that were held out, depth by depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch.nn import functional

from ..chunked_loss import CHUNK
from ..rows import batch_of
from ..token_corpus import TokenCorpus
from .target_outputs import Teaching, TrainableDrafter

ROWS = 32  # texts of a batch


@dataclass(frozen=True)
class Acceptance:
    """Over places of held-out texts, given that all guesses before were the text's own.

    `best[s]`: how often the likeliest guess of depth s is the target's likeliest token, which decides at temperature 0;
    `overlap[s]`: Σ min(p, q), which decides at temperature 1. `length`: how many guesses in a row are the target's
    likeliest, and the token that every round adds: the tokens of a round with a chain of guesses, greedily.
    """

    best: list[float]
    overlap: list[float]
    length: float
    places: int

    def record(self) -> dict[str, object]:
        """As plain data, rounded."""
        rounded = {name: [round(x, 4) for x in getattr(self, name)] for name in ("best", "overlap")}
        return {**asdict(self), **rounded, "length": round(self.length, 3)}

    def __str__(self) -> str:
        shares = " ".join(f"{x:.3f}" for x in self.best), " ".join(f"{x:.3f}" for x in self.overlap)
        return f"best {shares[0]} | overlap {shares[1]} | {self.length:.2f} tokens a round"


@torch.no_grad()
def acceptance(
    pupil: TrainableDrafter, teaching: Teaching, corpus: TokenCorpus, documents: Sequence[int]
) -> Acceptance:
    """Measure these documents."""
    depth = pupil.depth
    best, overlap, counted = torch.zeros(depth), torch.zeros(depth), torch.zeros(depth)
    runs, starts = 0, 0
    device = str(teaching.teacher.head.device)
    for first in range(0, len(documents), ROWS):
        lesson = teaching.lesson(batch_of(corpus, list(documents[first : first + ROWS]), device))
        right = torch.zeros(depth, *lesson.tokens.shape, dtype=torch.bool, device=device)
        whole = torch.zeros_like(right)
        likeliest = teaching.best(lesson)
        for s, guess in enumerate(pupil.guesses(lesson, depth)):
            top = likeliest[guess.which]
            for some in torch.split(torch.arange(len(guess.x), device=device), CHUNK):
                law = functional.linear(guess.x[some], guess.head).float().softmax(1)
                first_of = law.argmax(1) if teaching.ids is None else teaching.ids[law.argmax(1)]
                hit, here = first_of == top[some], (s, guess.row[some], guess.at[some])
                right[here], whole[here] = hit, True
                best[s] += float(hit.sum())
                overlap[s] += float(torch.minimum(law, guess.laws[some].float()).sum())
            counted[s] += len(guess.x)
        inside = whole.all(0)
        runs += int((right.cumprod(0).bool() & inside).sum())
        starts += int(inside.sum())
    counted = counted.clamp(min=1)
    return Acceptance(
        (best / counted).tolist(), (overlap / counted).tolist(), 1 + runs / max(starts, 1), int(counted[0])
    )
