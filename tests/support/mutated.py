"""Model files with something wrong, the same for the same seed: bytes flipped, lengths that lie, absurd settings."""

from __future__ import annotations

import gc
import json
import math
import random
import resource
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

from unspool.core.errors import UnspoolError

ABSURD: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 3, 7, 10**9, 1 << 40, 1 << 63, 10**30, -(10**9)),
    *(0.5, -0.25, 1.0, 1e-300, 1e90, 1e308, math.inf, -math.inf, math.nan),
    *("", "strange", "1", [], {}, [0], [-1, 10**9], [[[]]], [math.nan] * 4, {"a": 1}),
)
WHOLE = (0, 1, 2, 3, 255, 4096, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of the values of a GGUF file
LIKE = {  # types of as many bytes, so that a file that has the other one is still a file
    "F32": ("I32", "U32"),
    "F16": ("BF16", "I16"),
    "BF16": ("F16", "U16"),
    "I32": ("F32",),
    "I64": ("F64",),
    "U8": ("I8", "F8_E4M3", "BOOL"),
    "I8": ("U8", "F8_E5M2"),
    "F8_E4M3": ("U8", "I8"),
    "BOOL": ("U8", "I8"),
}
SECONDS, MEGABYTES, LASTING = 20.0, 2048, 160  # of the processor, of memory at once, and of what stays behind

Mutation = Callable[[bytes, random.Random], bytes]


def settings(data: bytes, dice: random.Random) -> bytes:
    """A JSON file with one to three settings replaced, gone or grown; now and then not even JSON."""
    if dice.random() < 0.1:
        return flipped(data, dice, len(data)) if dice.random() < 0.5 else data[: dice.randrange(len(data))]
    told = json.loads(data)
    for _ in range(dice.choice((1, 1, 2, 3))):
        places = list(_places(told))
        if not places:
            break
        held, key = dice.choice(places)
        old, act = held[key], dice.random()
        if act < 0.15:
            del held[key]
        elif act < 0.4 and isinstance(old, (int, float)) and not isinstance(old, bool):
            held[key] = dice.choice((old + 1, old - 1, old * 2, old // 2, -old, old * 4096))
        elif act < 0.5 and isinstance(old, list):
            held[key] = dice.choice((old[:-1], [*old, *old], [absurd(dice), *old[1:]]))
        else:
            held[key] = absurd(dice)
    return json.dumps(told).encode()


def _places(told: Any) -> Iterator[tuple[Any, Any]]:
    """Where all settings stand, those of groups too."""
    for key in told if isinstance(told, dict) else range(len(told)) if isinstance(told, list) else ():
        yield told, key
        yield from _places(told[key])


def absurd(dice: random.Random) -> Any:
    """One of these, as an object of its own: a later change may go into it."""
    return deepcopy(dice.choice(ABSURD))


def flipped(data: bytes, dice: random.Random, end: int) -> bytes:
    """Some of the first `end` bytes changed."""
    made = bytearray(data)
    for _ in range(dice.choice((1, 2, 8))):
        made[dice.randrange(end)] = dice.randrange(256)
    return bytes(made)


def safetensors(data: bytes, dice: random.Random) -> bytes:
    """A file of safetensors that is cut, or whose directory lies; often it is one that can be opened."""
    size = int.from_bytes(data[:8], "little")
    head, body, act = json.loads(data[8 : 8 + size]), data[8 + size :], dice.randrange(9)
    if act == 0:
        return data[: dice.randrange(len(data))]
    if act == 1:
        return flipped(data, dice, 8 + size)
    if act == 2:
        return struct.pack("<Q", dice.choice(WHOLE)) + data[8:]
    if act == 3:
        return data[: 8 + size] + flipped(body, dice, len(body))
    names = sorted(name for name in head if name != "__metadata__")
    name = dice.choice(names)
    told = head[name]
    if act == 4:
        del head[name]
    elif act == 5:
        told["dtype"] = dice.choice(LIKE.get(told["dtype"], ("F4",)))
    elif act == 6:
        shape, at = told["shape"], dice.randrange(max(1, len(told["shape"])))
        turned = [[1, *shape], shape[::-1], [math.prod(shape)], [*shape, 1]]
        turned += [[*shape[:at], shape[at] // 2, 2, *shape[at + 1 :]]] if shape else []
        told["shape"] = dice.choice([*turned, [dice.choice(WHOLE), *shape[1:]], absurd(dice)])
    elif act == 7:
        told["data_offsets"] = dice.choice(([0, 0], [0, 1 << 60], told["data_offsets"][::-1], absurd(dice)))
    else:
        head[dice.choice((dice.choice(names), name.replace("0", "1"), "x", name + ".weight"))] = head.pop(name)
    made = json.dumps(head).encode()
    return struct.pack("<Q", len(made)) + made + body


def gguf(data: bytes, dice: random.Random) -> bytes:
    """A GGUF file that is cut, whose numbers lie, or which names one thing twice."""
    fields, names, end = _directory(data)
    act, made = dice.randrange(8), bytearray(data)
    if act == 0:
        return data[: dice.randrange(len(data))]
    if act == 1:
        return flipped(data, dice, end)
    if act == 2:
        start, size = dice.choice(names)
        other = dice.choice([place for place in names if place[1] == size])[0]
        made[start : start + size] = data[other : other + size]
        return bytes(made)
    for _ in range(dice.choice((1, 1, 2))):
        at, width = dice.choice(fields)
        told = dice.choice(WHOLE) if act < 7 else dice.getrandbits(64)
        made[at : at + width] = (told & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    return bytes(made)


def _directory(data: bytes) -> tuple[list[tuple[int, int]], list[tuple[int, int]], int]:
    """Where a sound file has its numbers, and its names, as (byte, width); and where its directory ends."""
    fields, names, at = [(4, 4), (8, 8), (16, 8)], list[tuple[int, int]](), 24

    def number(width: int) -> int:
        nonlocal at
        fields.append((at, width))
        at += width
        return int.from_bytes(data[at - width : at], "little")

    def string(told: list[tuple[int, int]] | None = None) -> None:
        nonlocal at
        size = number(8)
        if told is not None:
            told.append((at, size))
        at += size

    def value(kind: int) -> None:
        if kind == 8:
            string()
        elif kind == 9:
            inner, count = number(4), number(8)
            for _ in range(count):
                value(inner)
        else:
            number(WIDTHS[kind])

    tensors, values = struct.unpack_from("<QQ", data, 8)
    for _ in range(values):
        string(names)
        value(number(4))
    for _ in range(tensors):
        string(names)
        for _ in range(number(4)):
            number(8)
        number(4), number(8)
    return fields, names, at


# ---- what must hold


def refused(attempt: Callable[[], object]) -> str | None:
    """The words in which a file is refused, None if it is not; anything else, a hang or much memory is a failure."""
    before = time.process_time()
    try:
        with little_memory():
            attempt()
    except UnspoolError as error:
        return str(error)
    finally:
        assert time.process_time() - before < SECONDS, "it takes long to say no"
    return None


@contextmanager
def little_memory() -> Iterator[None]:
    """Whoever asks for more than MEGABYTES within it fails, where the system can bound it."""
    old = resource.getrlimit(resource.RLIMIT_AS)
    held = _pages(0)
    if held:
        resource.setrlimit(resource.RLIMIT_AS, (held + (MEGABYTES << 20), old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, old)


def _pages(which: int) -> int:
    """Bytes that this process has mapped (0) or holds (1); 0 where the system does not tell."""
    told = Path("/proc/self/statm")
    return int(told.read_text().split()[which]) * resource.getpagesize() if told.exists() else 0


def hold(files: dict[Path, Mutation], attempt: Callable[[], object], count: int, seed: int = 0) -> list[str]:
    """Damage one of these files `count` times, and attempt to use it; how it was refused, "" where it was not.

    Every refusal is in words and of bounded length, and what is left in memory is little.
    """
    sound = {path: path.read_bytes() for path in files}
    attempt()  # as it is, it can be used
    gc.collect()
    said, before = list[str](), _pages(1)
    for number in range(count):
        dice = random.Random(f"{seed} {number}")
        path = dice.choice(sorted(files))
        _rewrite(path, files[path](sound[path], dice))
        try:
            words = refused(attempt)
        except Exception as error:  # whatever it is, it is the seed that leads back to it
            raise AssertionError(f"mutation {number} of {path.name} ended in {type(error).__name__}") from error
        finally:
            _rewrite(path, sound[path])
        said.append(words or "")
        assert words is None or 20 < len(words) < 4000, words
    gc.collect()
    assert _pages(1) - before < LASTING << 20, f"{(_pages(1) - before) >> 20} MB stay behind"
    return said


def _rewrite(path: Path, data: bytes) -> None:
    """Another file of the same name: whoever still has the old one mapped keeps it."""
    path.unlink()
    path.write_bytes(data)
