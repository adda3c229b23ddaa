"""Files: those that somebody names are read no further than a limit, and where the trained weights of unspool lie.

A device or a pipe may have no end and tells no size. Weights are a distribution of their own, unspool-weights.
"""

from __future__ import annotations

import errno
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from .errors import MissingDistribution

MODEL = 1 << 28  # bytes of a JSON file of a model; tokenizers are the largest
SETTINGS = 1 << 24  # bytes of a file of settings or keys
TEXT = 1 << 26  # bytes of a prompt, of a file of prompts, of a schema or a grammar
DELTAS, HEADS, DRAFTERS, FILTERS = "deltas", "heads", "drafters", "filters"  # folders of unspool-weights


def read_bytes(path: str | Path, most: int) -> bytes:
    """All bytes of a file; OSError if there are more than `most`."""
    with Path(path).open("rb") as file:
        return read_stream(file, most, str(path))


def read_text(path: str | Path, most: int) -> str:
    """The same as text in UTF-8."""
    return read_bytes(path, most).decode("utf-8")


def read_stream(stream: BinaryIO, most: int, name: str) -> bytes:
    """What is left of an open file; OSError if that is more than `most` bytes."""
    data = stream.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is too long; expected at most {most} bytes", name)
    return data


def trained(folder: str, file: str) -> Path | None:
    """A file of unspool-weights; None where that is not installed."""
    found = find_spec("unspool_weights")
    return None if found is None or found.origin is None else Path(found.origin).parent / folder / file


def required(folder: str, file: str, purpose: str) -> Path:
    """The same file, or an error that says what to install, and what for."""
    found = trained(folder, file)
    if found is None:
        raise MissingDistribution("unspool-weights", "packages/weights", purpose)
    return found
