"""A corpus of conversations as token ids: the model's own answers to prompts, with how each was drawn and ended."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unspool.core.errors import BadRequest

FIELDS = ("toks", "lens", "plen", "mode", "end")
CLOSED = 1  # `end`: the answer closed itself; every other value was cut
SAMPLED = 1  # bit of `mode`: the answer was sampled; without it, greedy
SHORTEST = 8  # answers below this teach nothing about blocks


@dataclass(frozen=True)
class Document:
    """One conversation: its tokens, how many of them are the prompt, and whether the answer closed itself."""

    tokens: NDArray[np.int32]
    prompt: int
    closed: bool


@dataclass(frozen=True)
class TokenCorpus:
    """Documents end to end: `starts` has one more entry than there are documents."""

    tokens: NDArray[np.unsignedinteger[Any]]
    starts: NDArray[np.int64]
    prompts: NDArray[np.int64]
    greedy: NDArray[np.bool_]
    closed: NDArray[np.bool_]

    @classmethod
    def read(cls, sources: Sequence[Path | str]) -> TokenCorpus:
        """Read .npz and .npz.gz files, or every such file of a folder, in the order of their names."""
        parts = [_load(file) for source in sources for file in _files(Path(source))]
        joined = {field: np.concatenate([part[field] for part in parts]) for field in FIELDS}
        starts = np.concatenate([[0], np.cumsum(joined["lens"].astype(np.int64))])
        if starts[-1] != len(joined["toks"]):
            raise BadRequest(
                f"the corpus has {len(joined['toks']):,} tokens, but its lengths add up to {starts[-1]:,}."
            )
        greedy, closed = joined["mode"] & SAMPLED == 0, joined["end"] == CLOSED
        return cls(joined["toks"], starts, joined["plen"].astype(np.int64), greedy, closed)

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, index: int) -> Document:
        tokens = self.tokens[self.starts[index] : self.starts[index + 1]].astype(np.int32)
        return Document(tokens, int(self.prompts[index]), bool(self.closed[index]))

    def split(self, held: float, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the documents (to train on, to hold out); those with too short an answer are in neither."""
        long = np.diff(self.starts) - self.prompts >= SHORTEST
        out = np.random.default_rng(seed).random(len(self)) < held
        return np.nonzero(long & ~out)[0], np.nonzero(long & out)[0]

    def stream(self, rng: np.random.Generator, among: NDArray[np.int64], greedy: float) -> Iterator[int]:
        """Yield documents for ever, a share `greedy` of them greedy answers; each kind is shuffled anew when spent."""
        kinds = [among[~self.greedy[among]], among[self.greedy[among]]]
        if not len(kinds[0]) or not len(kinds[1]):
            kinds = [among, among]
        cycles = [_cycle(rng, kind) for kind in kinds]
        while True:
            yield next(cycles[int(rng.random() < greedy)])


def _cycle(rng: np.random.Generator, among: NDArray[np.int64]) -> Iterator[int]:
    if not len(among):
        raise BadRequest(f"the corpus holds no document with an answer of {SHORTEST} tokens; add some.")
    while True:
        yield from (int(index) for index in rng.permutation(among))


def _files(source: Path) -> list[Path]:
    if source.is_file():
        return [source]
    found = sorted(file for file in source.glob("*.npz*") if file.name.endswith((".npz", ".npz.gz")))
    if not found:
        raise BadRequest(f"{source}: holds no corpus. Give .npz or .npz.gz files, or a folder of them.")
    return found


def _load(file: Path) -> dict[str, NDArray[np.generic]]:
    data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    with np.load(io.BytesIO(data)) as stored:
        missing = [field for field in FIELDS if field not in stored.files]
        if missing:
            raise BadRequest(f"{file}: is no corpus, for it lacks {', '.join(missing)}; expected {', '.join(FIELDS)}.")
        return {field: stored[field] for field in FIELDS}
