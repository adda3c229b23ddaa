"""Drafts on a terminal: shown behind the final text, written over by it, and never left behind."""

import io

from unspool.api.writer import Event
from unspool.apps.cli.terminal import Sketch
from unspool.core.canvas import HOLE, Canvas, Status


class Screen(io.StringIO):
    """A terminal of one line: it knows what stands where, and where the cursor is."""

    def isatty(self):
        return True

    def line(self) -> tuple[str, int]:
        cells, cursor, text = [], 0, self.getvalue()
        while text:
            if text.startswith("\x1b["):
                end = next(i for i, c in enumerate(text[2:], 2) if c.isalpha())
                number, kind, text = text[2:end], text[end], text[end + 1 :]
                if kind == "D":
                    cursor -= int(number)
                elif kind == "K":
                    del cells[cursor:]
                else:
                    assert kind == "m"
                continue
            cells[cursor : cursor + 1] = [text[0]]
            cursor, text = cursor + 1, text[1:]
        return "".join(cells), cursor


def screen_of(monkeypatch) -> Screen:
    """A screen in the place of stdout; not a fixture, since pytest puts its own there once those are made."""
    found = Screen()
    monkeypatch.setattr("sys.stdout", found)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "12")
    return found


def piece(token: int) -> bytes:
    return {1: b"one ", 2: b"two ", 3: b"\n", 4: b"\x1b[31m"}[token]


def shown(canvas: Canvas, text: str = "") -> Event:
    return Event(HOLE if not text else 1, text, 1, False, canvas=canvas)


def test_drafts_stand_behind_the_text_and_the_cursor_before_them(monkeypatch):
    screen = screen_of(monkeypatch)
    sketch, canvas = Sketch(piece), Canvas.blank((9,), 4).fill({2: 2, 3: 3}, Status.DRAFT)
    sketch.event(shown(canvas))
    assert screen.line() == ("·two ⏎·", 0)
    sketch.event(shown(canvas.fill({1: 1}), "one "))
    assert screen.line() == ("one two ⏎·", 4)
    sketch.clear()
    assert screen.line() == ("one ", 4)
    sketch.clear()
    assert screen.line() == ("one ", 4)


def test_a_sketch_ends_before_the_line_does_and_cannot_steer_the_screen(monkeypatch):
    screen = screen_of(monkeypatch)
    sketch = Sketch(piece)
    sketch.event(shown(Canvas.blank((9,), 40).fill({1: 4}, Status.DRAFT)))
    line, cursor = screen.line()
    assert line == "\\x1b[31m····"[:11]
    assert cursor == 0


def test_elsewhere_only_what_is_final_is_printed(monkeypatch):
    plain = io.StringIO()
    monkeypatch.setattr("sys.stdout", plain)
    sketch = Sketch(piece)
    sketch.event(shown(Canvas.blank((9,), 4)))
    sketch.event(shown(Canvas.blank((9,), 4).fill({1: 1}), "one "))
    sketch.clear()
    assert plain.getvalue() == "one "
