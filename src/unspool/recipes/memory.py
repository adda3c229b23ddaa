"""Memories with a scope: `stand@batch`, `recycle@process`, `recycle:memory=FILE`; who shares what drafters have learnt.

    request   every text by itself
    batch     the texts of one call or request: samples of one prompt, a list of prompts
    session   all texts of one method, as long as the object lives: a chat, or what a program keeps
    process   all texts of this process that name the method alike; on a server, of one client alone
    FILE      the same, read from a file if it is there, and written to it in the end

A memory belongs to a vocabulary: others are refused, or have their own.
"""

from __future__ import annotations

import atexit
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch

from ..core.claim import Method
from ..core.errors import BadRequest, cut
from ..core.saved_tensors import read_tensors
from ..loops.drafter import Memory
from ..loops.speculate import Speculate

SCOPES = ("request", "batch", "session", "process")
OPEN = SCOPES[:2]  # those that a request may name: nobody else's text is in them
MOST = 1 << 16  # entries of one memory
MEMORIES = 16  # of a process, the longest unused out


@dataclass(frozen=True)
class Remembering(Speculate):
    """Speculation whose drafter gets a memory when it is fitted to a vocabulary; else every text has its own."""

    scope: str = "batch"
    shared_by: str = ""  # who shares the memory of a process: how the method was named, and the client
    file: str = ""
    held: dict[str, Memory] = field(default_factory=dict, compare=False, repr=False)

    def fit(self, vocabulary: Any) -> Method:
        stamp, make = stamp_of(vocabulary), partial(_made, self)
        if self.file:
            memory = _kept(Path(self.file), type(self.draft).__name__, stamp, make)
        elif self.scope == "process":
            memory = _of((stamp, self.shared_by), make)
        else:
            memory = make() if self.scope == "batch" else self.held.setdefault(stamp, make())
        return Speculate(self.draft.sharing(memory), self.verify, self.budget)


def remembering(method: Speculate, file: str = "", scope: str = "batch") -> Method:
    """A method with a memory of this scope, or in a file."""
    return Remembering(method.draft, method.verify, method.budget, scope, file=file)


def scoped(method: Method, scope: str, spec: str, client: str) -> Method:
    """A method with another scope; BadRequest if its drafter remembers nothing."""
    if not isinstance(method, Speculate) or method.draft.memory(1) is None:
        raise BadRequest(f"{cut(spec)!r} cannot be used: it remembers nothing that a {scope} could share")
    if scope == "request":
        return Speculate(method.draft, method.verify, method.budget)
    found = method if isinstance(method, Remembering) else remembering(method)
    assert isinstance(found, Remembering)
    if found.file:
        raise BadRequest(f"{cut(spec)!r} cannot be used: its memory is in a file, so leave @{scope} out")
    return replace(found, scope=scope, shared_by=f"{spec}\0{client}")


def expect_scope(scope: str, spec: str, drafts: bool) -> None:
    """BadRequest if there is no such scope, or if it stands behind something that does not draft."""
    if scope not in SCOPES:
        raise BadRequest(f"{cut(spec)!r} has the scope {cut(scope)!r}; expected one of {', '.join(SCOPES)}")
    if not drafts:
        raise BadRequest(f"{cut(spec)!r} cannot be used: verifiers remember nothing; write @{scope} after the drafter")


def _made(method: Remembering) -> Memory:
    memory = method.draft.memory(MOST)
    assert memory is not None  # only such drafters are given one
    return memory


_stamps: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def stamp_of(vocabulary: Any) -> str:
    """What tells vocabularies apart: a digest of the bytes of all tokens."""
    if vocabulary not in _stamps:
        told = blake2b(digest_size=16)
        for token in range(vocabulary.size):
            piece = vocabulary.piece(token)
            told.update(len(piece).to_bytes(4, "little") + piece)
        _stamps[vocabulary] = told.hexdigest()
    return _stamps[vocabulary]


# The memories of this process: it is what they are shared by.
_memories: OrderedDict[tuple[str, str], Memory] = OrderedDict()
_files: dict[Path, tuple[str, str, Memory]] = {}
_lock = threading.Lock()


def _of(key: tuple[str, str], make: Callable[[], Memory]) -> Memory:
    with _lock:
        memory = _memories.setdefault(key, make())
        _memories.move_to_end(key)
        while len(_memories) > MEMORIES:
            _memories.popitem(last=False)
        return memory


def _kept(file: Path, kind: str, stamp: str, make: Callable[[], Memory]) -> Memory:
    """The memory in a file, read when it is first asked for, and written when the process ends."""
    place = file.resolve()
    with _lock:
        if place not in _files:
            memory = make()
            _files[place] = (*_read(place, kind, stamp, memory), memory)
            if len(_files) == 1:
                atexit.register(save)
        found, of, memory = _files[place]
    expect_stamp(f"the memory {file}", of, stamp)
    if found != kind:
        raise BadRequest(f"{file} is a memory of {found}, and {kind} has others; give it a file of its own")
    return memory


def _read(place: Path, kind: str, stamp: str, memory: Memory) -> tuple[str, str]:
    if not place.exists():
        if not place.parent.is_dir():
            raise BadRequest(f"{place} cannot be a memory: its folder does not exist")
        return kind, stamp
    try:
        found = read_tensors(place)
        told = str(found["kind"]), str(found["vocabulary"])
        if told == (kind, stamp):
            memory.restore(found["state"])
        return told
    except Exception as error:
        raise BadRequest(
            f"{place} cannot be read as a memory of {kind} ({type(error).__name__}: {error}); name a file that a "
            "memory was kept in before, or one that is not there yet"
        ) from error


def save() -> None:
    """Write the memories that belong to files; done by itself when the process ends."""
    with _lock:
        for place, (kind, stamp, memory) in _files.items():
            part = place.with_name(place.name + ".part")
            torch.save({"kind": kind, "vocabulary": stamp, "state": memory.state()}, part)
            part.replace(place)


def expect_stamp(what: str, found: str, stamp: str) -> None:
    """BadRequest if something was made with another vocabulary."""
    if found != stamp:
        raise BadRequest(f"{what} was made with another tokenizer than this model's; make one with this model")
