"""The terminal: UTF-8 streams, text that cannot steer a screen, a status line, and a quiet end."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

BROKEN_PIPE = 141  # what shells report of a program whose reader has left: 128 + SIGPIPE


def prepare() -> None:
    """Make the standard streams speak UTF-8 unless PYTHONIOENCODING asks for another, and keep noise off them."""
    # A shell can close them (`<&-`); then there is nothing to read and nowhere to write, which is no reason to fail.
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    # torch says so when numpy is not there, which nothing here needs.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    if not sys.stderr.isatty():  # bars of the packages below us would fill a log
        os.environ.setdefault("TQDM_DISABLE", "1")
    for stream, errors in ((sys.stdout, "replace"), (sys.stderr, "backslashreplace"), (sys.stdin, "surrogateescape")):
        if isinstance(stream, io.TextIOWrapper):
            encoding = None if os.environ.get("PYTHONIOENCODING") else "utf-8"
            stream.reconfigure(encoding=encoding, errors=errors)


def close(code: int) -> int:
    """Flush what is left and return the exit status; a reader that has gone (`| head`) is no error to speak of."""
    try:
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        code = code or BROKEN_PIPE
    except OSError as error:
        note(f"unspool: the output cannot be written: {error.strerror or error}")
        code = code or 1
    # The interpreter flushes once more at exit, and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def visible(text: str, stream: TextIO) -> str:
    """The text as it may be shown: on a terminal, control characters other than newline and tab are spelt out.

    What a model writes could otherwise move the cursor, change colours or the title, or hide what was printed.
    """
    if not stream.isatty():
        return text
    return "".join(c if c in "\n\t" or not _controls(c) else f"\\x{ord(c):02x}" for c in text)


def _controls(character: str) -> bool:
    return character < " " or "\x7f" <= character <= "\x9f"


def write(text: str) -> None:
    """Put text on stdout now."""
    sys.stdout.write(visible(text, sys.stdout))
    sys.stdout.flush()


def note(text: str) -> None:
    """Put a line on stderr, where it does not mix with the text."""
    print(visible(text, sys.stderr), file=sys.stderr, flush=True)


@contextmanager
def status(text: str) -> Iterator[None]:
    """Show a line while something takes long, and take it away again; only on a terminal."""
    shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if shown:
        print(visible(text, sys.stderr), end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
