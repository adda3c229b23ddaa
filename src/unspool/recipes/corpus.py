"""Texts to draft from, in files: stores that `unspool store` makes, for `retrieve`, `suffix` and `trigram`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..core.claim import Method
from ..core.errors import BadRequest
from ..loops.drafter import Draft
from ..loops.speculate import Speculate
from ..rules import draft
from .memory import expect_stamp, stamp_of

LARGEST = 1 << 18  # tokens of a corpus that is kept as an automaton or a table, of about 0.5 kB each


@dataclass(frozen=True)
class Stocked(Speculate):
    """Speculation from stores, refused for models with another vocabulary than theirs when it is fitted to one."""

    stores: tuple[str, ...] = ()

    def fit(self, vocabulary: Any) -> Method:
        for file in self.stores:
            store = stored(file)
            if store.stamp:
                expect_stamp(f"the store {file}", store.stamp, stamp_of(vocabulary))
            if store.largest >= vocabulary.size:
                raise BadRequest(
                    f"the store {file} was made with another tokenizer: it has the token {store.largest}, and this"
                    f" model's are 0 to {vocabulary.size - 1}"
                )
        return Speculate(self.draft, self.verify, self.budget)


def stocked(drafter: Draft, budget: int, *files: str) -> Method:
    """A drafter under sample matching that draws on these files."""
    return Stocked(drafter, budget=budget, stores=tuple(filter(None, files)))


def stored(file: str) -> draft.Store:
    """The store in a file; it is read once, and again when it has changed."""
    path = Path(file)
    return _read(file, path.stat().st_mtime_ns if path.is_file() else 0)


@lru_cache(maxsize=8)
def _read(file: str, changed: int) -> draft.Store:
    return draft.Store.load(file)


def texts_of(file: str, name: str) -> list[tuple[int, ...]]:
    """The texts of a store that is small enough to be kept as `name` does."""
    store = stored(file)
    if len(store) > LARGEST:
        raise BadRequest(
            f"the store {file} has {len(store)} tokens; {name} takes at most {LARGEST}, and retrieve:store={file} more"
        )
    return store.texts


@lru_cache(maxsize=4)
def _corpus(file: str, changed: int) -> draft.Corpus:
    return draft.Corpus(texts_of(file, "suffix"))


def corpus(file: str) -> draft.Corpus | None:
    """The automaton of a store, made once; None for no file."""
    path = Path(file)
    return _corpus(file, path.stat().st_mtime_ns if path.is_file() else 0) if file else None
