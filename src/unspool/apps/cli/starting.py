"""Importing PyTorch: a line on the terminal meanwhile, no garbage collector, and a Ctrl-C that ends it."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

from .terminal import INTERRUPTED, status


@contextmanager
def starting() -> Iterator[None]:
    """Say that PyTorch is being imported, if it is not there yet, and import it in here.

    Without passes of the garbage collector, which would look at all of it time and again; what is there then stays
    until the process ends, so later passes leave it out. Where PyTorch is loaded already the process is another's,
    and nothing is done. Ctrl-C ends the process at once: as an exception it would be lost in PyTorch's own code, which
    goes on, or fails later with modules that are there by half.
    """
    if "torch" in sys.modules:
        yield
        return
    collecting = gc.isenabled()
    gc.disable()
    held = current_thread() is main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if held:
        signal.signal(signal.SIGINT, _end)
    try:
        with status("starting: PyTorch takes a few seconds …"):
            yield
    finally:
        if held:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        gc.freeze()
        if collecting:
            gc.enable()


def _end(number: int, frame: FrameType | None) -> None:
    """End the process; nothing has been written by now."""
    if sys.stderr.isatty():
        os.write(2, b"\n")
    os._exit(INTERRUPTED)
