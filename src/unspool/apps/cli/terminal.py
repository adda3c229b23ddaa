"""The terminal: UTF-8 streams, text that cannot steer a screen, JSON, a status line, canvases, and a quiet end.

A failure ends in one line on stderr that says what to do, and in an exit status that scripts can tell apart.
"""

from __future__ import annotations

import difflib
import io
import json
import math
import os
import shutil
import sys
import traceback
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

from ...core.errors import BadRequest, OutOfRoom, UnspoolError, spelt_out
from ...core.files import TEXT, read_bytes, read_stream

if TYPE_CHECKING:
    from ...api.writer import Event
    from ...core.canvas import Canvas

BROKEN_PIPE = 141  # what shells report of a program whose reader has left: 128 + SIGPIPE
FAILED, BAD_REQUEST, CUT, INTERRUPTED = 1, 2, 3, 130
# Options that had another name before 0.1.
RENAMED = {
    "--room": "--kv-cache-tokens",
    "--weights": "--quantization",
    "--shapes": "--batch-invariant",
    "--repetition": "--repetition-penalty",
    "--frequency": "--frequency-penalty",
    "--presence": "--presence-penalty",
    "--no-repeat-ngram": "--no-repeat-ngram-size",
}
STDIN = "-"
KEPT = "\n\t"  # controls that lines of ours may have
HOLE, NEWLINE = "·", "⏎"  # as a canvas shows them on one line
NARROWEST = 40  # columns of a terminal that tables keep to


def prepare() -> None:
    """Make the standard streams speak UTF-8 unless PYTHONIOENCODING asks for another, and keep noise off them."""
    # A shell can close them (`<&-`); then there is nothing to read and nowhere to write, which is no reason to fail.
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
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
    """Put a line on stderr, where it does not mix with the text; it may quote files and lines of strangers."""
    print(spelt_out(text, KEPT), file=sys.stderr, flush=True)


@contextmanager
def status(text: str) -> Iterator[None]:
    """Show a line while something takes long, and take it away again; only on a terminal."""
    shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if shown:
        print(spelt_out(text), end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def dump(data: Any) -> None:
    """Print data as JSON on stdout; numbers that JSON lacks (NaN, ±infinity) become null."""
    # A terminal gets ASCII, so that no control character of a model's text reaches it.
    print(json.dumps(_finite(data), indent=2, ensure_ascii=sys.stdout.isatty(), allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value


def report(error: Exception) -> int:
    """Say what went wrong and return the exit status; UNSPOOL_DEBUG=1 adds the traceback."""
    if os.environ.get("UNSPOOL_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error)
    message, code = _said(error)
    note(f"unspool: {message}".replace("\n", "\n  "))  # what it quotes cannot begin a line of ours
    return code


def _said(error: Exception) -> tuple[str, int]:
    if isinstance(error, click.NoSuchOption) and error.option_name in RENAMED:
        return f"{error.option_name} is now called {RENAMED[error.option_name]}.", BAD_REQUEST
    if isinstance(error, click.UsageError):
        where = f" See: {error.ctx.command_path} --help" if error.ctx is not None else ""
        return (_mistyped(error) or _plain(error.format_message())) + where, BAD_REQUEST
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    if isinstance(error, (BadRequest, OutOfRoom)):
        return str(error), BAD_REQUEST
    if isinstance(error, UnspoolError):
        return str(error), FAILED
    if isinstance(error, MemoryError):
        return "the machine has no memory left for this; see what it needs with: unspool plan", FAILED
    if isinstance(error, OSError):
        return f"{error.filename or 'input or output'}: {error.strerror or error}", FAILED
    return (
        f"{type(error).__name__}: {error}. This is a mistake in unspool or in a package it uses; "
        "run again with UNSPOOL_DEBUG=1 to see where.",
        FAILED,
    )


def _mistyped(error: click.UsageError) -> str | None:
    """What to say of an option that there is not: the nearest that there is, or several that are as near."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return None
    every = [flag for each in error.ctx.command.get_params(error.ctx) for flag in each.opts + each.secondary_opts]
    near = difflib.get_close_matches(error.option_name, sorted(flag for flag in every if flag.startswith("--")))
    alike = [difflib.SequenceMatcher(None, error.option_name, flag).ratio() for flag in near]
    close = sorted(repr(flag) for flag, like in zip(near, alike, strict=True) if like == alike[0])
    return f"there is no option {error.option_name!r}." + (f" Did you mean {' or '.join(close)}?" if close else "")


def _plain(message: str) -> str:
    """Click's sentences begin with a capital letter and end with a full stop; ours follow `unspool: `."""
    message = message[:1].lower() + message[1:] if message[1:2].islower() else message
    return message if message.endswith((".", "?", "?)", "!")) else message + "."


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
    """Rows under their heads, each column as wide as its widest cell; those named in `right` stand flush right.

    `right` lists heads separated by commas. The last column is not padded, so lines have no trailing blanks. On a
    terminal that is too narrow the columns come in several tables below each other, each with the first column, and a
    cell that does not fit even so is cut.
    """
    flush = {head.strip() for head in right.split(",")}
    lines = [list(heads), *map(list, rows)]
    wide = [max(_width(line[i]) for line in lines) for i in range(len(heads))]
    most = max(NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else sum(wide) + 2 * len(wide)
    return "\n\n".join(
        "\n".join(
            _line(
                [_cut(line[i], width) for i, width in band],
                [width for _, width in band],
                [heads[i] in flush for i, _ in band],
            )
            for line in lines
        )
        for band in _bands(wide, most)
    )


def _bands(wide: Sequence[int], most: int) -> list[list[tuple[int, int]]]:
    """The columns of each table that fits into so many columns of a terminal, with their widths."""
    first = 0, min(wide[0], most // 2)
    bands, used = [[first]], first[1]
    for i, width in enumerate(wide[1:], 1):
        width = min(width, most - first[1] - 2)
        if used + 2 + width > most and len(bands[-1]) > 1:
            bands.append([first])
            used = first[1]
        bands[-1].append((i, width))
        used += 2 + width
    return bands


def _cut(cell: str, width: int) -> str:
    if _width(cell) <= width:
        return cell
    while _width(cell) > width - 1:
        cell = cell[:-1]
    return cell + "…"


def _line(cells: Sequence[str], wide: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, width, flush in zip(cells, wide, right, strict=True):
        blanks = " " * (width - _width(cell))
        padded.append(blanks + cell if flush else cell + blanks)
    return "  ".join(padded).rstrip()


def _width(text: str) -> int:
    """How many terminal columns a text takes: wide East Asian characters take two, combining ones none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def size(count: float) -> str:
    """Bytes as people say them: 92.9 MB, 1.1 GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


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
        return utf8(read_bytes(path, TEXT), path)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror or error}; give a file that can be read.") from None


def read_stdin() -> str:
    """The text that stdin brings until its end."""
    try:
        return utf8(read_stream(sys.stdin.buffer, TEXT, "stdin"), "stdin")
    except OSError as error:
        raise BadRequest(f"stdin: {error.strerror or error}; give a text that can be read.") from None


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
        text, source = _line_end(read_stdin()), "stdin"
    if not (text if raw else text.strip()):
        raise BadRequest(f"the prompt is empty ({source}); give some text to go on from.")
    return text


def _line_end(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")


class Sketch:
    """Prints a text as it arrives; where a method fills a canvas, the rest of the line shows what is not final yet.

    The cursor stays where the final text ends, so that what is dim is simply written over. Elsewhere than on a
    terminal only what is final is printed.
    """

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece, self._column, self._dim = piece, 0, False
        self._able = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"

    def event(self, event: Event) -> None:
        """Print what is new."""
        self.clear()
        if event.text:
            write(event.text)
            _, newline, last = visible(event.text, sys.stdout).rpartition("\n")
            self._column = len(last) if newline else self._column + len(last)
        if event.canvas is not None and self._able:
            self._show(event.canvas)

    def clear(self) -> None:
        """Take away what is not final."""
        if self._dim:
            sys.stdout.write("\x1b[K")
            sys.stdout.flush()
            self._dim = False

    def _show(self, canvas: Canvas) -> None:
        width = shutil.get_terminal_size().columns
        room = width - self._column % width - 1  # a full line would move the cursor to the next
        places = range(canvas.settled, min(len(canvas), canvas.settled + room))
        shown = "".join(self._place(canvas, i) for i in places)[: max(room, 0)]
        if shown:
            sys.stdout.write(f"\x1b[2m{shown}\x1b[0m\x1b[{len(shown)}D")
            sys.stdout.flush()
            self._dim = True

    def _place(self, canvas: Canvas, place: int) -> str:
        if canvas.is_hole(place):
            return HOLE
        text = self._piece(canvas.tokens[place]).decode("utf-8", "replace")
        return visible(text.replace("\n", NEWLINE).replace("\t", " "), sys.stdout)
