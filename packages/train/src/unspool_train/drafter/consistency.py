"""Jacobi consistency (CLLM, arXiv 2403.00835): a model learns to guess a block's end from a wrong beginning.

Blocks of a text are filled with tokens of its prompt, and a few Jacobi steps of the frozen model bring them nearer to
what it writes. From there the student is to give the frozen model's laws at once: those of the text behind clean
tokens. Its laws on the clean text itself are held where they were. Every block of a text is learned side by side: in a
row [clean | noisy] a noisy place sees the clean text before its block and its own block up to itself.

The change is factors of low rank on every matrix, written as a delta, which `unspool run -m FILE --method jacobi`
reads. Claim: greedy decoding is exact, of the changed model; how far that is from the old one is `overlap`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from ..training_network import is_matrix, layer, normed
from .acceptance import ROWS, Acceptance
from .target_outputs import TargetOutputs, Teaching

FILE = "delta.safetensors"
RANK = 32
KEPT = 0.5  # weight of the laws on clean text
Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Laid:
    """Texts beside their noisy blocks: the mask of both, rotary places, and of each noisy place its own in the text."""

    mask: Tensor
    places: Tensor
    inside: Tensor  # places of the text that are in a whole block

    @classmethod
    def of(cls, width: int, block: int, first: int, device: torch.device) -> Laid:
        """Blocks from this place on, as many as there is room for."""
        text = torch.arange(width, device=device)
        begin = first + (text - first).div(block, rounding_mode="floor") * block
        clean = text[:, None] >= text
        past = begin[:, None] > text
        own = clean & (begin[:, None] == begin)
        none = torch.zeros_like(clean)
        mask = torch.cat([torch.cat([clean, none], 1), torch.cat([past, own], 1)])
        inside = text[(text >= first) & (begin + block <= width)]
        return cls(mask, torch.cat([text, text]), inside)


class Consistent:
    """The model that is changed: factors of each matrix, the right ones random and the left ones 0 at first."""

    def __init__(self, teacher: Teacher, block: int, seed: int) -> None:
        self.teacher, self.frozen, self.block, self.depth = teacher, teacher.frozen, block, block
        dice = torch.Generator().manual_seed(seed)
        self.tensors: dict[str, Tensor] = {}
        for name, weight in self.frozen.base.items():
            if is_matrix(name):
                out, into = weight.shape
                right = torch.randn(into, RANK, generator=dice) / into**0.5
                self.tensors[f"{name}.a"] = torch.zeros(out, RANK, device=weight.device).requires_grad_()
                self.tensors[f"{name}.b"] = right.to(weight.device).requires_grad_()
        self._dice, self._turn = torch.Generator().manual_seed(seed), 0

    def weights(self) -> dict[str, Tensor]:
        """The changed weights, with their gradients' way back."""
        found = dict(self.frozen.base)
        for name in found:
            if is_matrix(name):
                found[name] = found[name] + self.tensors[f"{name}.a"] @ self.tensors[f"{name}.b"].T
        return found

    def embedded(self, tokens: Tensor) -> Tensor:
        """What enters the first layer."""
        return self.teacher.embedding[tokens]

    def entering(self, index: int, x: Tensor, laid: Laid) -> Tensor:
        """What enters a layer [rows, 2 · width, dim], of what has left the one before it."""
        return x

    def states(self, weights: Weights, tokens: Tensor, laid: Laid) -> tuple[Tensor, Tensor]:
        """What leaves the last norm on clean and on noisy places, for tokens [rows, 2 · width]."""
        shape, dtype = self.frozen.shape, self.teacher.dtype
        cos, sin = self.frozen.rotation(laid.places[None, None])
        x = self.embedded(tokens)
        for index in range(shape.layers):
            x = self.entering(index, x, laid)
            laid_out = self.frozen.laid_out(weights, index, dtype)
            x = layer(x, *laid_out, cos, sin, laid.mask, shape.heads, shape.kv_heads, shape.norm_eps)
        clean, noisy = normed(x, weights["norm"], shape.norm_eps).chunk(2, 1)
        return clean, noisy

    def begun(self, lesson: TargetOutputs, laid: Laid) -> Tensor:
        """The texts with tokens of their openings drawn for all places of blocks."""
        first = int(laid.inside[0]) if len(laid.inside) else 1
        drawn = torch.randint(0, max(first, 1), lesson.tokens.shape, generator=self._dice).to(lesson.tokens.device)
        noisy = lesson.tokens.clone()
        noisy[:, laid.inside] = lesson.tokens.gather(1, drawn)[:, laid.inside]
        return noisy

    @torch.no_grad()
    def iterated(self, weights: Weights, lesson: TargetOutputs, laid: Laid, noisy: Tensor) -> Iterator[Tensor]:
        """One Jacobi step after the other: every place of a block takes what the model holds likeliest there."""
        inside = laid.inside
        while True:
            clean, behind = self.states(weights, torch.cat([lesson.tokens, noisy], 1), laid)
            opens = (inside - int(inside[0])) % self.block == 0  # read behind the clean token before the block
            before = torch.where(opens[None, :, None], clean[:, inside - 1], behind[:, inside - 1])
            noisy = noisy.clone()
            noisy[:, inside] = functional.linear(before, self.teacher.head).argmax(-1)
            yield noisy

    def lay(self, lesson: TargetOutputs) -> Laid:
        """Blocks over a batch; where they begin goes on from batch to batch."""
        self._turn = (self._turn + 1) % self.block
        prompt = max(int(lesson.place.min()) if len(lesson.place) else 1, 1)
        return Laid.of(lesson.tokens.shape[1], self.block, prompt + self._turn, lesson.tokens.device)

    def learn(self, lesson: TargetOutputs, decay: float, rule: Slopes) -> list[float]:
        """Add the slopes of the distance of laws behind noisy tokens, and behind clean ones; return both."""
        laid = self.lay(lesson)
        noisy = self.begun(lesson, laid)
        steps = int(torch.randint(0, 4, (), generator=self._dice))  # what is far from its end is seldom met later
        nearer = self.iterated(self.frozen.base, lesson, laid, noisy)
        for _ in range(steps if len(laid.inside) else 0):
            noisy = next(nearer)
        clean, behind = self.states(self.weights(), torch.cat([lesson.tokens, noisy], 1), laid)
        chosen = torch.zeros(lesson.tokens.shape[1], dtype=torch.bool, device=clean.device)
        chosen[laid.inside] = True
        which = chosen[lesson.place]
        found = []
        for states, some, weight in ((behind, which, 1.0), (clean, torch.ones_like(which), KEPT)):
            row, place = lesson.row[some], lesson.place[some]
            each = torch.full((len(row),), 1 / max(len(row), 1), device=clean.device)
            found.append((weight, foreseen(states[row, place], self.teacher.head, lesson.laws[some], each, rule)))
        loss = sum((weight * own for weight, own in found), torch.zeros((), device=clean.device))
        loss.backward()  # type: ignore[no-untyped-call]
        return [float(own.detach()) for _, own in found]

    @torch.no_grad()
    def measure(self, teaching: Teaching, corpus: TokenCorpus, documents: Sequence[int]) -> Acceptance:
        """`best[s]`: which share of block tokens is the text's after s + 1 forwards; `length`: tokens per forward.

        `overlap` is Σ min of the laws on clean text before and after: what is left of the old model.
        """
        best, counted, kept, places = torch.zeros(self.block), 0, 0.0, 0
        forwards, blocks = 0, 0
        weights, device = self.weights(), str(self.teacher.head.device)
        for first in range(0, len(documents), ROWS):
            lesson = teaching.lesson(batch_of(corpus, list(documents[first : first + ROWS]), device))
            laid = self.lay(lesson)
            if not len(laid.inside):
                continue
            answers = torch.zeros_like(lesson.tokens, dtype=torch.bool)
            answers[lesson.row, lesson.place + 1] = True
            real = answers[:, laid.inside]
            open_ = real.view(len(real), -1, self.block).all(2)
            blocks += int(open_.sum())
            noisy = self.begun(lesson, laid)
            for s, then in zip(range(self.block), self.iterated(weights, lesson, laid, noisy), strict=False):
                forwards += int(open_.sum())
                best[s] += float(((then == lesson.tokens)[:, laid.inside] & real).sum())
                moved = (then != noisy)[:, laid.inside].view(len(real), -1, self.block).any(2)
                open_, noisy = open_ & moved, then
            counted += int(real.sum())
            clean, _ = self.states(weights, torch.cat([lesson.tokens, noisy], 1), laid)
            law = functional.linear(clean[lesson.row, lesson.place], self.teacher.head).float().softmax(1)
            kept += float(torch.minimum(law, lesson.laws.float()).sum())
            places += len(law)
        shares = (best / max(counted, 1)).tolist()
        return Acceptance(shares, [kept / max(places, 1)], self.block * blocks / max(forwards, 1), places)

    def write(self, folder: Path, base: str) -> None:
        """The change as a delta of the model `base`."""
        stored: dict[str, Tensor] = {}
        for name, tensor in self.tensors.items():
            matrix, _, side = name.rpartition(".")
            stored[f"{filed(matrix)}.{side}"] = tensor.detach().to(torch.float16).cpu().contiguous()
            stored[f"{filed(matrix)}.{side}_scale"] = torch.ones(RANK, dtype=torch.float16)
        save_file(stored, folder / f"{FILE}.part", metadata={"base": base})
        (folder / f"{FILE}.part").replace(folder / FILE)
