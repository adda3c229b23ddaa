"""The sandbox: a program that nobody trusts, tried in a cell, and the machine unharmed whatever it does."""

from __future__ import annotations

import json
import os
import secrets
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from unspool.core.errors import BadRequest

WALLS = ("files", "network", "processes")
Outcome = Literal["passed", "failed", "timeout", "killed"]


@dataclass(frozen=True)
class SandboxLimits:
    """What a program may use: seconds of the clock, and for each process bytes of memory and open files.

    `output` is how many bytes it may print before it is ended, `file` how long a file of its may be, `files` how much
    all of them together.
    """

    seconds: float = 5.0
    memory: int = 1 << 29
    processes: int = 8
    output: int = 1 << 20
    file: int = 1 << 22
    files: int = 1 << 25
    open: int = 32


@dataclass(frozen=True)
class Trial:
    """How it ended: the outcome, why, the end of what was printed, and the walls that stood."""

    outcome: Outcome
    why: str
    output: str
    walls: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether every test held."""
        return self.outcome == "passed"


@dataclass(frozen=True)
class Sandbox:
    """Runs programs apart from the machine and from those who judge them.

    Walls: `network` and `processes` are namespaces of the kernel, so that there is no network and whatever was started
    ends with the first process; `files` is a file system in memory with the interpreter, read-only, and an empty home;
    and under root there is `identity`, a user that nobody else is. They need root or user namespaces. `walls` are those
    without which nothing is run. Without any there remain limits, an empty folder, no environment, an end to all that
    descends from the program, and a `socket` module that refuses, which a program can get round: name fewer walls only
    for programs that are clumsy, not hostile.

    A pass is proved by the judge (`program_judge.py`), a process that does not run the program.
    """

    limits: SandboxLimits = SandboxLimits()
    walls: tuple[str, ...] = WALLS
    tail: int = 2000  # characters of output that are kept
    apart: bool = True  # whether walls of the kernel are asked for at all

    def run(self, program: str, tests: str = "", given: str = "", names: Sequence[str] = ()) -> Trial:
        """Define what the program defines, then run the tests on it.

        `names` are what tests call of the program; values go to and fro as plain data. `given` is code that is trusted,
        run beside the tests for what else they use. Without tests a program passes that comes to its end.
        """
        root = tempfile.mkdtemp(prefix="cell-")
        try:
            return _Watch(self, root).trial(self._message(root, program, tests, given, names))
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def _message(self, root: str, program: str, tests: str, given: str, names: Sequence[str]) -> bytes:
        limits = self.limits
        plan = {
            "root": root,
            "user": 1 << 20 | secrets.randbelow(1 << 20),  # nobody's: so that its processes can be counted
            "seconds": max(1, int(limits.seconds)),
            "walls": self.walls,
            "apart": self.apart,
            **{name: getattr(limits, name) for name in ("memory", "processes", "file", "files", "open")},
        }
        case = json.dumps({"tests": tests, "given": given, "names": list(names)}).encode()
        parts = [program.encode("utf-8", "replace"), case]
        return json.dumps(plan).encode() + b"\n" + b"".join(struct.pack(">I", len(p)) + p for p in parts)


@dataclass
class _Watch:
    """Follows one cell: feeds it, reads a bounded part of what it says, and ends it."""

    sandbox: Sandbox
    root: str
    output: bytearray = field(default_factory=bytearray)
    printed: int = 0
    verdict: bytearray = field(default_factory=bytearray)

    def trial(self, message: bytes) -> Trial:
        said, verdict = os.pipe()
        heard, voice = os.pipe()
        command = [sys.executable, "-I", "-S", "-B", "-u", str(Path(__file__).with_name("cell.py")), str(verdict)]
        cell = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=voice,
            stderr=voice,
            env={},
            cwd="/",
            pass_fds=(verdict,),
            start_new_session=True,
        )
        os.close(verdict)
        os.close(voice)
        try:
            ended = self._follow(cell, said, heard, message)
        finally:
            self._end(cell, heard)
            os.close(said)
            os.close(heard)
        return self._told(ended)

    def _follow(self, cell: subprocess.Popen[bytes], said: int, heard: int, message: bytes) -> str:
        """Until there is a verdict, or a reason not to wait for one."""
        deadline = time.monotonic() + self.sandbox.limits.seconds
        assert cell.stdin is not None
        os.set_blocking(cell.stdin.fileno(), False)
        left = memoryview(message)
        with selectors.DefaultSelector() as ready:
            ready.register(cell.stdin, selectors.EVENT_WRITE)
            ready.register(said, selectors.EVENT_READ)
            ready.register(heard, selectors.EVENT_READ)
            while True:
                wait = deadline - time.monotonic()
                if wait <= 0:
                    return "timeout"
                for key, _ in ready.select(wait):
                    if key.fileobj == said:
                        part = os.read(said, 1 << 16)
                        self.verdict += part
                        if not part:
                            return ""
                    elif key.fileobj == heard:
                        if not self._hear(heard):
                            ready.unregister(heard)
                        if self.printed > self.sandbox.limits.output:
                            return "output"
                    else:
                        left = self._feed(cell, left)
                        if not left:
                            ready.unregister(cell.stdin)

    def _feed(self, cell: subprocess.Popen[bytes], left: memoryview) -> memoryview:
        assert cell.stdin is not None
        try:
            left = left[os.write(cell.stdin.fileno(), left) :]
        except BlockingIOError:
            return left
        except OSError:  # it has ended, which its verdict will tell
            left = left[:0]
        if not left:
            cell.stdin.close()
        return left

    def _hear(self, heard: int) -> bool:
        part = os.read(heard, 1 << 16)
        self.printed += len(part)
        self.output += part
        del self.output[: -4 * self.sandbox.tail]
        return bool(part)

    def _end(self, cell: subprocess.Popen[bytes], heard: int) -> None:
        """Kill all that is left, and wait until nobody holds the pipe it printed to."""
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and (found := [] if self._walled else descendants(cell.pid)):
            for pid in found:
                _kill(pid)
        _kill(cell.pid, os.killpg)
        cell.wait()
        if cell.stdin is not None and not cell.stdin.closed:
            with suppress(OSError):
                cell.stdin.close()
        os.set_blocking(heard, False)
        while time.monotonic() < deadline:
            try:
                if not self._hear(heard):
                    break
            except BlockingIOError:
                time.sleep(0.005)

    @property
    def _walled(self) -> bool:
        return b'"processes"' in self.verdict

    def _told(self, ended: str) -> Trial:
        output = bytes(self.output).decode("utf-8", "replace")[-self.sandbox.tail :]
        said: dict[str, Any] = {"walls": [], "outcome": "killed", "why": "the cell ended without a verdict"}
        for line in bytes(self.verdict).splitlines():
            said |= json.loads(line)
        walls = tuple(said["walls"])
        if said["outcome"] == "refused":
            raise BadRequest(
                f"programs cannot be run apart from this machine: no wall for {said['why']} {output.strip()[-300:]!r}. "
                "Run as root or where user namespaces are allowed, or name the walls that will do: Sandbox(walls=())."
            )
        if ended == "timeout":
            return Trial("timeout", f"no verdict after {self.sandbox.limits.seconds:g} s", output, walls)
        if ended == "output":
            return Trial("killed", f"printed more than {self.sandbox.limits.output} bytes", output, walls)
        return Trial(said["outcome"], str(said["why"]), output, walls)


def descendants(pid: int) -> list[int]:
    """The processes that descend from one, as the kernel knows them now; those that only wait to be buried left out."""
    parent: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                state, above = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state not in "ZX":
                parent[int(folder.name)] = int(above)
    found = [pid]
    for one in found:
        found += [child for child, above in parent.items() if above == one]
    return found[1:]


def _kill(pid: int, kill: Any = os.kill) -> None:
    with suppress(ProcessLookupError):
        kill(pid, signal.SIGKILL)
