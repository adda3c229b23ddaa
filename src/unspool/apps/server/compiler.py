"""The compiler's process: grammars are tried here first, each in a fork that may be ended, or crash, at no cost.

Some grammars of a few hundred bytes take minutes and gigabytes, and some end the process that compiles them. A thread
cannot be ended, so a server tries a grammar here before it compiles it. This file is run by its path, in a process that
has nothing of unspool in it: it starts in a tenth of a second, and a fork of it costs a millisecond.

It reads (number, size, grammar) from stdin, where size 0 ends the trial of that number, and writes (number, exit code)
to stdout for each trial that has ended. When stdin ends, so does it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import struct
import sys
import threading
from collections.abc import Mapping
from typing import Any, NoReturn

HEAD, TAIL = struct.Struct(">QQ"), struct.Struct(">Qi")
FINE, NO_MEMORY = 0, 3
STACK = 4 << 20  # bytes: less than the threads have that compile what has passed, as deep recursion ends a process


def main(seconds: float, memory: int, limits: Mapping[str, Any]) -> None:
    """Try what comes until nothing more does; `seconds` of processor time and `memory` bytes for each."""
    import llguidance  # here: a server that compiles no grammars may lack it, and imports this file for its path

    tokens = llguidance.LLTokenizer("byte")  # how long it takes to compile does not depend on the vocabulary
    running: dict[int, tuple[int, int]] = {}  # by the pipe that closes with it: number and process
    os.nice(5)  # whoever writes a text goes first
    try:
        _serve(tokens, running, seconds, memory, limits)
    except EOFError:
        for _, process in running.values():
            os.kill(process, signal.SIGKILL)


def _serve(
    tokens: Any, running: dict[int, tuple[int, int]], seconds: float, memory: int, limits: Mapping[str, Any]
) -> NoReturn:
    while True:
        for ready in select.select([0, *running], [], [])[0]:
            if ready in running:
                number, process = running.pop(ready)
                os.close(ready)
                os.write(1, TAIL.pack(number, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])))
                continue
            number, size = HEAD.unpack(_read(HEAD.size))
            if size == 0:
                for process in (process for n, process in running.values() if n == number):
                    os.kill(process, signal.SIGKILL)
                continue
            grammar = _read(size)
            ends, held = os.pipe()
            if (process := os.fork()) == 0:
                os.closerange(0, 2)  # or who waits for the end of this process would wait for its forks too
                _bound(seconds, memory)
                threading.stack_size(STACK)
                thread = threading.Thread(target=_compile, args=(tokens, grammar, limits))
                thread.start()
                thread.join()
                os._exit(FINE)  # refused or not: it has ended in time
            os.close(held)
            running[ends] = number, process


def _compile(tokens: Any, grammar: bytes, limits: Mapping[str, Any]) -> None:
    """What a server does with a grammar: check it, build it, and ask what may come first."""
    from llguidance import LLMatcher, LLParserLimits  # here: as in `main`, which has imported it before the fork

    try:
        source = grammar.decode()
        if not LLMatcher.validate_grammar(source):
            matcher = LLMatcher(tokens, source, log_level=0, limits=LLParserLimits(**limits))
            if not matcher.is_error():
                matcher.compute_bitmask()
    except MemoryError:
        os._exit(NO_MEMORY)
    except BaseException:  # a panic of the library too: whoever compiles it next tells the client
        os._exit(FINE)


def _bound(seconds: float, memory: int) -> None:
    """Let this process end by itself when it has had so much processor time, or asks for so much more memory."""
    import resource  # here: Windows has none, and there too a server imports this file

    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # no /proc: then only its time is bound
        with open("/proc/self/statm") as sizes:
            now = int(sizes.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + memory, now + memory))


def _read(size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(0, min(size - len(data), 1 << 20))
        if not more:
            raise EOFError
        data += more
    return data


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))
