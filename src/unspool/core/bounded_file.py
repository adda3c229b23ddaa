"""Files that are read whole, but no further than a limit: a device or a pipe may have no end and tells no size."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import BinaryIO

MODEL = 1 << 28  # bytes of a JSON file of a model; tokenizers are the largest
SETTINGS = 1 << 24  # bytes of a file of settings or keys
TEXT = 1 << 26  # bytes of a prompt, of a file of prompts, of a schema or a grammar


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
