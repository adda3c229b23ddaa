"""Rows for block diffusion: each document once clean and twice noisy, packed without waste, with its losses.

A document of prompt P and answer A takes [P A | noisy a | noisy b] in one row. The clean stream is causal. A noisy
block sees the clean tokens of everything before it, and itself in full, so both noisy streams share one clean stream.
Every token therefore sees two stretches of its row, [past, past_end) and [own, own_end); no other mask is needed.

The read-out is shifted: the output at i − 1 predicts i. The first token of a block would be read from the clean stream,
where next-token prediction already teaches it, so it has no loss of its own.

Decoding with a window that slides sees one thing alone: clean text, and behind it masks that begin anywhere. A document
can be packed so: both noisy streams are such windows, end to end, half a window apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .token_corpus import Document, TokenCorpus

Ints = NDArray[np.int32]
_OPENING = 0.25  # of the ordered blocks: the first look, all masked, and the second with the first token alone
_MISSES = 12  # documents in a row that find no room before a batch counts as full


@dataclass(frozen=True)
class Recipe:
    """How rows are made and what a masked token's loss weighs.

    A block of size B with k masks weighs min(B/k, `clip`) per mask, times `decay` for each mask between a token and
    the nearest visible one on its left: far guesses are hopeless, and decoding by confidence does not take them.
    A share `ordered` of the blocks is masked roughly in reading order, as decoding leaves them; there the second
    stream has another number of masks, and a quarter are openings. In all others the second stream masks exactly what
    the first shows, but for the block's first token, which both show. End tokens that fill up a last block weigh
    `padding`. The first `lead` tokens, which all prompts share, are not learnt.

    A share `sliding` of the documents has windows of `window` masks instead, whose place i weighs `fade`ⁱ.
    """

    rows: int = 64
    width: int = 2048
    blocks: tuple[int, ...] = (4, 8, 16, 32)
    shares: tuple[float, ...] = (0.15, 0.25, 0.3, 0.3)
    ordered: float = 0.4
    clip: float = 10.0
    decay: float = 0.93
    padding: float = 0.3
    causal: float = 0.5
    sliding: float = 0.0
    window: int = 8
    fade: float = 0.8
    lead: int = 24
    mask: int = 16
    end: int = 2


@dataclass(frozen=True)
class NoisyBatch:
    """Rows of tokens with what each sees, and the read-outs: flat place, target, weight, block (0: causal), masks.

    Read-outs of the clean stream come before all others.
    """

    tokens: Ints
    places: Ints
    past: Ints
    past_end: Ints
    own: Ints
    own_end: Ints
    read: NDArray[np.int64]
    target: NDArray[np.int64]
    weight: NDArray[np.float32]
    block: NDArray[np.int16]
    masks: NDArray[np.int16]
    real: NDArray[np.bool_]
    documents: int
    clean: int
    fill: float


def masks(rng: np.random.Generator, count: int, size: int, ordered: float) -> NDArray[np.bool_]:
    """Draw which tokens of `count` blocks are masked in the two noisy streams [2, count, size]; True is masked.

    Decoding fixes a block's first token at the first look, from the clean stream, so it is masked in openings only.
    """
    rest = size - 1
    k = np.floor((np.arange(count) + rng.random(count)) / count * (rest + 1)).astype(np.int64).clip(0, rest)
    rng.shuffle(k)
    order = rng.random((count, rest)).argsort(1).argsort(1)
    both = np.zeros((2, count, size), np.bool_)
    both[:, :, 1:] = np.stack([order < k[:, None], order >= k[:, None]])
    reading = rng.random(count) < ordered
    blur = rng.choice(np.array([0.0, 1.0, 3.0]), (count, 1)) * rng.standard_normal((count, rest))
    rank = (-(np.arange(rest) + blur)).argsort(1).argsort(1)  # 0 is the last token, roughly
    k = k.clip(1)
    other = (k - 1 + rest // 2) % rest + 1
    both[:, reading, 1:] = np.stack([rank < k[:, None], rank < other[:, None]])[:, reading]
    opening = reading & (rng.random(count) < _OPENING)
    both[:, opening] = True
    both[1, opening, 0] = False
    return both


def weights(masked: NDArray[np.bool_], clip: float, decay: float) -> NDArray[np.float64]:
    """Weigh the tokens of blocks [count, size] as a recipe says; visible and first tokens weigh nothing."""
    size = masked.shape[1]
    place = np.arange(size)
    seen = np.maximum.accumulate(np.where(masked, -1, place), axis=1)
    far = np.maximum(place - seen - 1, 0)
    each = np.minimum(size / np.maximum(masked.sum(1, keepdims=True), 1), clip) * decay**far
    return np.where(masked & (place > 0), each, 0.0)


def pack(corpus: TokenCorpus, stream: Iterator[int], rng: np.random.Generator, recipe: Recipe) -> NoisyBatch:
    """Fill rows with documents until none fits."""
    rows = _Rows(recipe)
    missed = 0
    while missed < _MISSES:
        slides = recipe.sliding > 0 and rng.random() < recipe.sliding
        size = recipe.window if slides else int(rng.choice(np.array(recipe.blocks), p=np.array(recipe.shares)))
        missed = 0 if rows.place(corpus[next(stream)], size, slides, rng) else missed + 1
    return rows.batch()


class _Rows:
    """Rows being filled."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        size = (recipe.rows, recipe.width)
        self.tokens, self.places = np.zeros(size, np.int32), np.zeros(size, np.int32)
        self.past = np.tile(np.arange(recipe.width, dtype=np.int32), (recipe.rows, 1))
        self.past_end = self.past + 1  # filling tokens see themselves, so that no row of attention is empty
        self.own, self.own_end = np.zeros(size, np.int32), np.zeros(size, np.int32)
        self.used = np.zeros(recipe.rows, np.int64)
        self.reads: list[tuple[NDArray[np.generic], ...]] = []
        self.documents = self.clean = 0

    def place(self, document: Document, size: int, slides: bool, rng: np.random.Generator) -> bool:
        """Put a document into the first row with room, with blocks or windows of this size; False if there is none."""
        recipe, prompt = self.recipe, document.prompt
        text = document.tokens[: prompt + max((recipe.width - prompt) // 3 // size, 1) * size]
        answer = len(text) - prompt
        whole = len(text) == len(document.tokens) and document.closed
        first = int(rng.integers(size)) if slides else 0
        begins = (first, (first + size // 2) % size) if slides else (0, 0)
        counts = [max(-(-(answer - begin) // size) if whole else (answer - begin) // size, 0) for begin in begins]
        need = len(text) + sum(counts) * size
        rows = np.nonzero(self.used + need <= recipe.width)[0]
        if not len(rows) or need > recipe.width:
            return False
        row, start = int(rows[0]), int(self.used[rows[0]])
        self.used[row] += need
        self.documents += 1
        self.clean += len(text)
        self._causal(row, start, text, prompt)
        both = [np.ones((n, size), np.bool_) for n in counts] if slides else masks(rng, counts[0], size, recipe.ordered)
        at = start + len(text)
        for begin, count, masked in zip(begins, counts, both, strict=True):
            target = np.full(count * size, recipe.end, np.int32)
            known = text[prompt + begin : prompt + begin + count * size]
            target[: len(known)] = known
            weight = weights(masked, recipe.clip, recipe.fade if slides else recipe.decay)
            self._noisy(row, at, start, start + prompt + begin, target, masked, weight, len(known))
            at += count * size
        return True

    def _causal(self, row: int, start: int, text: Ints, prompt: int) -> None:
        here = np.s_[row, start : start + len(text)]
        self.tokens[here], self.places[here] = text, np.arange(len(text))
        self.past[here], self.past_end[here] = start, start + 1 + np.arange(len(text))
        before = np.arange(max(min(self.recipe.lead, prompt), 1) - 1, len(text) - 1)
        some = len(before)
        self.reads.append(
            (
                row * self.recipe.width + start + before,
                text[before + 1],
                np.ones(some),
                np.zeros(some, np.int16),
                np.zeros(some, np.int16),
                np.ones(some, np.bool_),
            )
        )

    def _noisy(
        self,
        row: int,
        at: int,
        start: int,
        seen: int,
        target: Ints,
        masked: NDArray[np.bool_],
        weight: NDArray[np.float64],
        answer: int,
    ) -> None:
        """Write blocks to `at`; the first sees the clean text from `start` to `seen`, and `answer` targets are real."""
        count, size = masked.shape
        flat, offset = masked.ravel(), np.arange(count * size)
        begin = offset // size * size
        here = np.s_[row, at : at + count * size]
        self.tokens[here] = np.where(flat, self.recipe.mask, target)
        self.places[here] = seen - start + offset
        self.past[here], self.past_end[here] = start, seen + begin
        self.own[here], self.own_end[here] = at + begin, at + begin + size
        real = offset < answer
        each = weight.ravel() * np.where(real, 1.0, self.recipe.padding)
        some = np.nonzero(each)[0]
        number = np.repeat(masked.sum(1), size)[some].astype(np.int16)
        self.reads.append(
            (
                row * self.recipe.width + at + some - 1,
                target[some],
                each[some],
                np.full(len(some), size, np.int16),
                number,
                real[some],
            )
        )

    def batch(self) -> NoisyBatch:
        """Return the rows; the causal weights add up to `causal`, those of the blocks to 1."""
        read, target, weight, block, number, real = (np.concatenate(part) for part in zip(*self.reads, strict=True))
        order = np.argsort(block > 0, kind="stable")
        read, target, weight, block, number, real = (
            part[order] for part in (read, target, weight, block, number, real)
        )
        total_causal, total_block = weight[block == 0].sum(), weight[block > 0].sum()
        scale = np.where(block == 0, self.recipe.causal / max(total_causal, 1e-9), 1.0 / max(total_block, 1e-9))
        return NoisyBatch(
            self.tokens,
            self.places,
            self.past,
            self.past_end,
            self.own,
            self.own_end,
            read.astype(np.int64),
            target.astype(np.int64),
            (weight * scale).astype(np.float32),
            block,
            number,
            real,
            self.documents,
            self.clean,
            float(self.used.sum() / (self.recipe.rows * self.recipe.width)),
        )
