"""Judge and defendant: the tests in one process, the program that is not trusted in another, plain values between them.

A program cannot vouch for itself: what it prints, returns to the system or does to its own interpreter proves nothing.
So the tests are run by a process that never runs a line of it. Whatever the tests call is a request through a pipe, and
what comes back is data: an object that claims to equal everything arrives as the text of its name. The tests, and with
them the right answers, reach the judge after the defendant was forked off, so they are nowhere in its memory; the pipe
that carries the verdict is closed in it, and the kernel is told that nobody may look into the judge.

This file is run inside a cell, by an interpreter without packages: it needs the standard library alone.
"""

from __future__ import annotations

import builtins
import ctypes
import io
import json
import os
import pickle
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any

DUMPABLE = 4  # prctl's number: 0 keeps processes of the same user out of one's memory and open files
MOST = 1 << 23  # bytes of one message
DEEPEST = 100  # levels of one value


# ---- what travels


def plain(value: Any, kept: list[Any], depth: int = 0) -> Any:
    """A value as JSON. Subclasses travel as their base; what is no plain data is kept here, and its number sent."""
    if depth > DEEPEST:
        return ["other", "nested too deeply", -1]
    if value is None or isinstance(value, (bool, str)):
        return value if value is None or isinstance(value, bool) else ["str", str.__str__(value)]
    if isinstance(value, int):
        return ["int", hex(int(value))]
    if isinstance(value, float):
        return ["float", float.hex(value)]
    if isinstance(value, complex):
        return ["complex", float.hex(value.real), float.hex(value.imag)]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, range):
        return ["range", value.start, value.stop, value.step]
    if isinstance(value, dict):
        return [
            "dict",
            [[plain(key, kept, depth + 1), plain(item, kept, depth + 1)] for key, item in dict.items(value)],
        ]
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return [kind.__name__, [plain(item, kept, depth + 1) for item in value]]
    kept.append(value)
    return ["other", type(value).__name__, len(kept) - 1]


class Other:
    """Something that is no plain data: it equals nothing, and as an argument it is what it is in the program."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.number = name, number

    def __repr__(self) -> str:
        return f"<{self.name}>"


def value_of(sent: Any) -> Any:
    """The value that was sent."""
    if sent is None or isinstance(sent, bool):
        return sent
    kind, *rest = sent
    simple: dict[str, Callable[..., Any]] = {
        "str": str,
        "int": lambda text: int(text, 16),
        "float": float.fromhex,
        "complex": lambda a, b: complex(float.fromhex(a), float.fromhex(b)),
        "bytes": bytes.fromhex,
        "range": range,
        "other": Other,
    }
    if kind in simple:
        return simple[kind](*rest)
    (items,) = rest
    if kind == "dict":
        return {value_of(key): value_of(item) for key, item in items}
    made: Callable[[Any], Any] = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind]
    return made(map(value_of, items))


def send(pipe: int, message: bytes) -> None:
    """One message, after its length."""
    data = struct.pack(">I", len(message)) + message
    while data:
        data = data[os.write(pipe, data) :]


def receive(pipe: int) -> bytes | None:
    """One message; None at the end, or where it is longer than it may be."""
    head = _exactly(pipe, 4)
    if head is None or (size := struct.unpack(">I", head)[0]) > MOST:
        return None
    return _exactly(pipe, size)


def _exactly(pipe: int, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        part = os.read(pipe, min(size - len(found), 1 << 16))
        if not part:
            return None
        found += part
    return bytes(found)


# ---- the defendant


def serve(program: str, requests: int, replies: int) -> None:
    """Run the program, then answer calls of what it defined."""
    names: dict[str, Any] = {"__name__": "candidate"}  # not __main__: only what is defined is wanted
    kept: list[Any] = []
    exec(compile(program, "program", "exec"), names)
    send(replies, b"ready")
    while (asked := receive(requests)) is not None:
        try:
            called, given, named = Arguments(asked, names, kept).load()
            answer = ["value", plain(called(*given, **named), kept)]
        except Exception as error:
            answer = ["raised", type(error).__name__, str(error)[:500]]
        send(replies, json.dumps(answer).encode())


class Arguments(pickle.Unpickler):
    """What the judge sends: plain data of its own, and names and numbers for what is the program's."""

    def __init__(self, message: bytes, names: dict[str, Any], kept: list[Any]) -> None:
        super().__init__(io.BytesIO(message))
        self.names, self.kept = names, kept

    def persistent_load(self, mark: Any) -> Any:
        """What a name or a number means here."""
        return self.names[mark] if isinstance(mark, str) else self.kept[mark]


class ArgumentPickler(pickle.Pickler):
    """How the judge sends arguments."""

    def persistent_id(self, value: Any) -> Any:
        """The name or number of what is the program's."""
        return value.name if isinstance(value, Remote) else value.number if isinstance(value, Other) else None


# ---- the judge


class Gone(Exception):
    """The defendant has ended."""


class Remote:
    """A name of the program: calling it asks the defendant, and as an argument it means what it means there."""

    asks: tuple[int, int]

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *given: Any, **named: Any) -> Any:
        """What the program answers, or the error that it raised."""
        requests, replies = Remote.asks
        message = io.BytesIO()
        ArgumentPickler(message).dump((self, given, named))
        try:
            send(requests, message.getvalue())
        except OSError:
            raise Gone from None
        answer = receive(replies)
        if answer is None:
            raise Gone
        kind, *rest = json.loads(answer)
        if kind == "value":
            return value_of(rest[0])
        name, message = rest
        error = getattr(builtins, str(name), None)
        known = isinstance(error, type) and issubclass(error, Exception)
        raise (error if known else RuntimeError)(f"{name}: {message}")  # type: ignore[misc]


def judge(case: dict[str, Any], asks: tuple[int, int]) -> str:
    """Run the tests: what went wrong, or nothing. `given` is code to be trusted, for names that tests take from it."""
    Remote.asks = asks
    names: dict[str, Any] = {"__name__": "tests"}
    exec(compile(case["given"], "given", "exec"), names)
    for name in case["names"]:
        names[name] = Remote(name)
    try:
        exec(compile(case["tests"], "tests", "exec"), names)
    except Gone:
        raise
    except BaseException as error:
        return _told(error, case["tests"])
    return ""


def _told(error: BaseException, tests: str) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "tests"]
    line = tests.splitlines()[lines[-1] - 1].strip()[:300] if lines and lines[-1] else ""
    return f"{type(error).__name__}: {str(error)[:300]} in: {line}"


def try_case(verdict: int, walls: list[str]) -> None:
    """Read the program, fork the defendant, read the tests, and write the verdict into a pipe that nobody else has."""
    ctypes.CDLL(None).prctl(DUMPABLE, 0, 0, 0, 0)
    program = receive(0)
    assert program is not None
    to_defendant, requests = os.pipe()
    replies, to_judge = os.pipe()
    child = os.fork()
    if child == 0:
        _defend(program.decode(), to_defendant, to_judge, (verdict, requests, replies), walls)
    os.close(to_defendant)
    os.close(to_judge)
    for number in (signal.SIGPIPE, signal.SIGINT):  # the first process of a namespace hears no others from inside
        signal.signal(number, signal.SIG_IGN)
    raw = receive(0)
    assert raw is not None
    said: dict[str, Any] = {}
    try:
        if receive(replies) != b"ready":
            raise Gone
        why = judge(json.loads(raw), (requests, replies))
        said |= {"outcome": "failed" if why else "passed", "why": why}
    except Gone:
        said |= _ended(child)
    except BaseException as error:  # an answer that cannot be read is no answer
        said |= {"outcome": "failed", "why": f"the judge could not read an answer: {type(error).__name__}"}
    os.write(verdict, json.dumps(said).encode()[: 1 << 15])


def _ended(child: int) -> dict[str, str]:
    """How a defendant ended that should have gone on."""
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        return {"outcome": "failed", "why": f"the program ended by itself, with status {os.WEXITSTATUS(status)}"}
    number = os.WTERMSIG(status)
    outcome = "timeout" if number == signal.SIGXCPU else "killed"
    return {"outcome": outcome, "why": f"the program ended by {signal.Signals(number).name}"}


def _defend(program: str, requests: int, replies: int, others: tuple[int, ...], walls: list[str]) -> None:
    """Become the defendant: let go of all that is the judge's, and never return."""
    status = 1
    try:
        for pipe in others:
            os.close(pipe)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        if "network" not in walls:
            _no_sockets()
        serve(program, requests, replies)
        status = 0
    except BaseException:
        traceback.print_exc(limit=-3)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _no_sockets() -> None:
    """Where the kernel gives no network of its own: make sockets hard to have. A fence, not a wall."""
    import _socket  # both here: where there is a wall, no trial waits for them
    import socket  # here for the same reason

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError("no network here")

    for module in (socket, _socket):
        setattr(module, "socket", refuse)  # noqa: B010
