"""What already stands on a canvas behind the final text, shown dimly on a terminal until it is final or gone."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from .terminal import visible, write

if TYPE_CHECKING:
    from ...api.writer import Event
    from ...core.canvas import Canvas

HOLE = "·"
NEWLINE = "⏎"


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
