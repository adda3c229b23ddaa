"""Files: those that somebody names are read no further than a limit, and where the trained weights of unspool lie.

A device or a pipe may have no end and tells no size, and a pipe may have nobody who writes to it. Weights are a
distribution of their own, unspool-weights.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from .errors import MissingDistribution

MODEL = 1 << 28  # bytes of a JSON file of a model; tokenizers are the largest
SETTINGS = 1 << 24  # bytes of a file of settings or keys
TOML, LINE = 1 << 20, 1 << 13  # bytes of a TOML file, characters of a line: a key of n parts costs n² to read
TEXT = 1 << 26  # bytes of a prompt, of a file of prompts, of a schema or a grammar
WRITER = 10.0  # seconds in which somebody must begin to write to a pipe that is named
DELTAS, HEADS, DRAFTERS, FILTERS = "deltas", "heads", "drafters", "filters"  # folders of unspool-weights


def read_bytes(path: str | Path, most: int) -> bytes:
    """All bytes of a file; OSError if there are more than `most`."""
    with open(path, "rb", opener=_at_once) as file:
        pipe, begun = file.fileno(), b""
        if stat.S_ISFIFO(os.fstat(pipe).st_mode):
            begun = _begun(pipe, str(path))
        if hasattr(os, "set_blocking"):
            os.set_blocking(pipe, True)
        return read_stream(file, most, str(path), begun)


def read_text(path: str | Path, most: int) -> str:
    """The same as text in UTF-8."""
    return read_bytes(path, most).decode("utf-8")


def read_toml(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file; ValueError if it is none, or none that can be read in no time."""
    if sys.version_info >= (3, 11):
        import tomllib  # here: every command reads files, few of them TOML
    else:
        import tomli as tomllib  # here for the same reason
    text = read_text(path, TOML)
    if any(len(line) > LINE for line in text.splitlines()):
        raise ValueError(f"a line is too long; expected at most {LINE} characters")
    try:
        found: dict[str, Any] = tomllib.loads(text)
        return found
    except RecursionError:
        raise ValueError("it is nested too deeply to be read") from None


def plain_file(path: str | Path) -> Path:
    """The path of a plain file; OSError if something else lies there, which other libraries might wait for."""
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return Path(path)


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _begun(pipe: int, name: str) -> bytes:
    """The first byte of a pipe, none if its writer has written none yet; OSError if nobody comes to write."""
    heard, until = select.poll(), time.monotonic() + WRITER
    heard.register(pipe, select.POLLIN)
    while time.monotonic() < until:
        try:
            if first := os.read(pipe, 1):
                return first
        except BlockingIOError:  # somebody has the other end
            return b""
        if heard.poll(10):  # had it, and is gone
            return os.read(pipe, 1)
    raise OSError(errno.ENXIO, "nobody writes to this pipe; expected a file, or a pipe with a writer", name)


def read_stream(stream: BinaryIO, most: int, name: str, begun: bytes = b"") -> bytes:
    """What was read of an open file and what is left; OSError if that is more than `most` bytes."""
    data = begun + stream.read(most + 1)
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
