"""Reading what the user wrote: prompts from the command line, files and pipes, as exact UTF-8."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ...core.errors import BadRequest

STDIN = "-"


def utf8(data: bytes, source: str) -> str:
    """Bytes as text without a byte-order mark, or an error that names the first bad byte."""
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise BadRequest(
            f"{source} is not UTF-8: byte {error.object[error.start]:#04x} at offset {error.start} ({error.reason}). "
            "Convert it first, for example with: iconv -f LATIN1 -t UTF-8"
        ) from None


def read_file(path: str) -> str:
    """The text of a file."""
    try:
        return utf8(Path(path).read_bytes(), path)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror or error}; give a file that can be read.") from None


def read_prompt(argument: str | None, file: str | None, raw: bool) -> str:
    """The prompt from the argument, the file or stdin; of files and pipes, one final newline is dropped."""
    if argument not in (None, STDIN) and file is not None:
        raise BadRequest("a prompt and --file were both given; give one of them.")
    if file is not None and file != STDIN:
        text, source = _line_end(read_file(file)), file
    elif argument is not None and argument != STDIN:
        text, source = utf8(os.fsencode(argument), "the prompt"), "the prompt"
    elif argument is None and file is None and sys.stdin.isatty():
        raise BadRequest('no prompt was given: write unspool run "some text", or use --file, or pipe text in.')
    else:
        text, source = _line_end(utf8(sys.stdin.buffer.read(), "stdin")), "stdin"
    if not (text if raw else text.strip()):
        raise BadRequest(f"the prompt is empty ({source}); give some text to go on from.")
    return text


def _line_end(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")
