"""Trials: grammars of requests are compiled in another process first, which can be ended."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from hashlib import sha256
from itertools import count
from threading import Lock, Thread
from typing import IO

from ...core.errors import BadRequest
from ...rules.constrain.matcher import LIMITS
from . import compiler
from .compiler import FINE, HEAD, NO_MEMORY, TAIL
from .server_request import Busy

MEMORY = 1 << 29  # bytes that compiling one grammar may take
PASSED = 4096  # grammars remembered as harmless
LOST = 1  # the exit code of a trial whose process is gone
START = "import json, runpy, sys; sys.path[:] = json.loads(sys.argv.pop()); runpy.run_path(sys.argv.pop(), None, '__main__')"  # noqa: E501


class AskerLeft(Exception):
    """Whoever asked for a trial wants no answer any more."""


class Asker:
    """Who asks for trials: one request, which may leave at any time."""

    def __init__(self) -> None:
        self.gone = False
        self.end: Callable[[], None] | None = None  # ends the trial that runs for it

    def leave(self) -> None:
        """End its trial, if one runs; the next one is not begun."""
        self.gone = True
        if self.end is not None:
            self.end()


class Trials:
    """Compiles grammars in a process of their own, each for at most `seconds` of processor time and in 512 MiB.

    The process is started when it is first needed, or by `start`, and again if it was lost. Where there is no `fork`
    (Windows) nothing is tried, and only the sizes of what is asked for are bounded.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._running: dict[int, tuple[subprocess.Popen[bytes], Future[int]]] = {}
        self._passed: OrderedDict[bytes, None] = OrderedDict()
        self._numbers = count(1)
        self._lock, self._writing = Lock(), Lock()

    def __call__(self, grammar: str, asker: Asker) -> None:
        """Return if a grammar, in llguidance's own form, can be compiled without harm; it may still be wrong."""
        data = grammar.encode("utf-8", "surrogatepass")
        name = sha256(data).digest()
        if name in self._passed or not hasattr(os, "fork"):
            return
        code = self._tried(data, asker)
        if asker.gone:
            raise AskerLeft
        if code != FINE:
            raise self._refused(code)
        with self._lock:
            self._passed[name] = None
            if len(self._passed) > PASSED:
                self._passed.popitem(last=False)

    def start(self) -> None:
        """Have the process ready before somebody waits for it."""
        with self._lock:
            self._started()

    def close(self) -> None:
        """End the process and everything that runs in it."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            with self._writing, suppress(OSError):
                _pipe(process.stdin).close()  # then it ends its forks, and itself

    def _tried(self, data: bytes, asker: Asker) -> int:
        ended: Future[int] = Future()
        with self._lock:
            process, number = self._started(), next(self._numbers)
            self._running[number] = process, ended
        self._send(process, HEAD.pack(number, len(data)) + data)
        asker.end = lambda: self._send(process, HEAD.pack(number, 0))
        try:
            if asker.gone:  # before there was something to end
                asker.end()
            return ended.result()
        finally:
            asker.end = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            options = [str(self.seconds), str(MEMORY), json.dumps(LIMITS)]
            command = [sys.executable, "-I", "-c", START, *options, compiler.__file__, json.dumps(sys.path)]
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is for the server, which lets requests finish
                    bufsize=0,
                )
            except OSError as error:
                logging.getLogger("unspool").warning("no process to compile grammars in: %s", error)
                raise Busy("the server has no process to compile grammars in; try again later") from None
            Thread(target=self._hear, args=(self._process,), name="unspool-trials", daemon=True).start()
        return self._process

    def _send(self, process: subprocess.Popen[bytes], data: bytes) -> None:
        view, pipe = memoryview(data), _pipe(process.stdin)
        try:
            with self._writing:
                while view:
                    view = view[pipe.write(view) :]
        except (OSError, ValueError):  # it is gone, and so is what was asked of it
            process.kill()

    def _hear(self, process: subprocess.Popen[bytes]) -> None:
        """Pass on what the process says until it ends."""
        data, pipe = b"", _pipe(process.stdout)
        while more := pipe.read(4096):
            data += more
            while len(data) >= TAIL.size:
                number, code = TAIL.unpack(data[: TAIL.size])
                data = data[TAIL.size :]
                with self._lock:
                    _, ended = self._running.pop(number)
                ended.set_result(code)
        with self._lock:
            left = [number for number, (asked, _) in self._running.items() if asked is process]
            lost = [self._running.pop(number)[1] for number in left]
            closed = self._process is not process
            self._process = self._process if closed else None
        pipe.close()
        with self._writing, suppress(OSError):
            _pipe(process.stdin).close()
        code = process.wait()
        if not closed:
            logging.getLogger("unspool").warning("the process that compiles grammars has ended, with %s", code)
        for ended in lost:
            ended.set_result(LOST)

    def _refused(self, code: int) -> Exception:
        match signal.SIGABRT if code == NO_MEMORY else -code:
            case signal.SIGPROF:
                return BadRequest(
                    f"the schema or grammar takes more than {self.seconds:g} seconds of processor time to compile, "
                    "which is what this server spends on one. Simplify it: many optional properties, allOf over "
                    "patterns, and rules that lead into each other cost most."
                )
            case signal.SIGSEGV | signal.SIGBUS:
                return BadRequest("the schema or grammar is nested too deeply to be compiled. Make it flatter.")
            case signal.SIGABRT | signal.SIGKILL:
                return BadRequest(
                    f"the schema or grammar takes more than {MEMORY >> 20} MiB to compile, which is what this server "
                    "spends on one. Simplify it."
                )
        return Busy("the process that compiles grammars was lost; try again")


def _pipe(end: IO[bytes] | None) -> IO[bytes]:
    assert end is not None  # as it was started
    return end
