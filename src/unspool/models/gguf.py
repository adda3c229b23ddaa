"""The GGUF file: metadata and quantised tensors, read through a memory map and checked before anything is believed."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Union

import torch
from torch import Tensor

from ..core.errors import BadModel
from ..core.files import plain_file
from .quant import FORMATS, UNREADABLE, Format, dequantise

Value = Union[bool, int, float, str, list["Value"]]  # noqa: UP007 (| takes no forward reference in 3.10)

_FIXED: Mapping[int, str] = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_NESTING = 4
_DIMENSIONS = 4


@dataclass(frozen=True)
class TensorEntry:
    """Where a tensor lies: its format, its shape (rows first, as torch counts) and its bytes in the file."""

    name: str
    format: Format
    shape: tuple[int, ...]
    offset: int
    bytes: int


class _Cursor:
    """A reading position in the header that can never leave the file."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self.data, self.path, self.at, self.end = data, path, 0, len(data)

    def fail(self, problem: str) -> BadModel:
        """Make the error that names the file, the place and the way out."""
        return BadModel(
            f"{self.path}: {problem} (at byte {self.at:,} of {self.end:,}). "
            "Expected a complete GGUF file; copy or download it again."
        )

    def take(self, size: int, what: str) -> int:
        """Step over `size` bytes and return where they began."""
        start = self.at
        if size > self.end - start:
            raise self.fail(f"{what} needs {size:,} bytes, but the file ends after {self.end - start:,}")
        self.at = start + size
        return start

    def number(self, code: str, what: str) -> int:
        found = struct.unpack_from("<" + code, self.data, self.take(struct.calcsize("<" + code), what))[0]
        return int(found)

    def count(self, smallest: int, what: str) -> int:
        """Read a count of things, each of which takes at least `smallest` bytes: more than fit is a lie."""
        count = self.number("Q", what)
        if count * smallest > self.end - self.at:
            raise self.fail(f"{what} is {count:,}, which cannot fit in the rest of the file")
        return count

    def string(self, what: str) -> str:
        size = self.number("Q", f"the length of {what}")
        start = self.take(size, what)
        try:
            return str(self.data[start : self.at], "utf-8")
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} is not valid UTF-8") from error

    def strings(self, count: int, what: str) -> list[Value]:
        """Read many strings; the one loop that runs a quarter of a million times, so it is written flat."""
        length, data, at, end = struct.Struct("<Q").unpack_from, self.data, self.at, self.end
        found: list[Value] = []
        append = found.append
        try:
            for _ in range(count):
                start = at + 8
                at = start + length(data, at)[0]
                if at > end:
                    raise self.fail(f"{what} runs past the end of the file")
                append(str(data[start:at], "utf-8"))
        except struct.error as error:
            raise self.fail(f"{what} runs past the end of the file") from error
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} holds text that is not valid UTF-8") from error
        self.at = at
        return found

    def value(self, kind: int, what: str, depth: int = 0) -> Value:
        if kind in _FIXED:
            code = "<" + _FIXED[kind]
            found: Value = struct.unpack_from(code, self.data, self.take(struct.calcsize(code), what))[0]
            return found
        if kind == _STRING:
            return self.string(what)
        if kind != _ARRAY:
            raise self.fail(f"{what} has the unknown value type {kind}")
        if depth == _NESTING:
            raise self.fail(f"{what} nests arrays more than {_NESTING} deep")
        kind = self.number("I", f"the element type of {what}")
        if kind in _FIXED:
            size = struct.calcsize(_FIXED[kind])
            count = self.count(size, f"the number of elements of {what}")
            return list(struct.unpack_from(f"<{count}{_FIXED[kind]}", self.data, self.take(count * size, what)))
        count = self.count(8, f"the number of elements of {what}")
        if kind == _STRING:
            return self.strings(count, what)
        return [self.value(kind, what, depth + 1) for _ in range(count)]


class GGUF:
    """An open GGUF file: `metadata`, the tensor directory, and tensors decoded exactly on demand.

    A file with tensors in other formats than `formats` is refused.
    """

    def __init__(self, path: Path | str, formats: Mapping[int, Format] = FORMATS) -> None:
        self.path = Path(path)
        self._map = _map(self.path)
        cursor = _Cursor(self._map, self.path)
        _check_magic(cursor)
        tensors = cursor.count(24, "the number of tensors")
        values = cursor.count(13, "the number of metadata values")
        self.metadata: Mapping[str, Value] = _read_metadata(cursor, values)
        self.directory: Mapping[str, TensorEntry] = _read_directory(cursor, tensors, self._alignment(cursor), formats)

    @property
    def bytes(self) -> int:
        """The size of the file."""
        return len(self._map)

    def tensor(self, name: str, dtype: torch.dtype = torch.float32, part: int | slice | None = None) -> Tensor:
        """Decode one tensor exactly in float32 and round it once to `dtype`; or one `part` of its first dimension.

        A float32 tensor is a view of the (private, copy-on-write) memory map, so nothing is read before it is used.
        """
        entry = self.entry(name)
        shape = entry.shape[1:] if isinstance(part, int) else (-1, *entry.shape[1:])
        return dequantise(self.blocks(name, part), entry.format, dtype).reshape(shape)

    def blocks(self, name: str, part: int | slice | None = None) -> Tensor:
        """Return the raw bytes of a tensor, or of a part of it, as uint8 [blocks, block bytes], still quantised."""
        entry = self.entry(name)
        raw = torch.frombuffer(self._map, dtype=torch.uint8, count=entry.bytes, offset=entry.offset)
        raw = raw if part is None else raw.view(entry.shape[0], -1)[part]
        return raw.view(-1, entry.format.width)

    def release(self, name: str) -> None:
        """Let the system have back the memory that the bytes of a tensor were read into; they can be read again."""
        entry, page = self.entry(name), mmap.PAGESIZE
        start, end = -(-entry.offset // page) * page, (entry.offset + entry.bytes) // page * page
        if end > start and hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED, start, end - start)

    def entry(self, name: str) -> TensorEntry:
        """Return where a tensor lies."""
        if name not in self.directory:
            raise BadModel(f"{self.path}: there is no tensor {name!r}; the file has {len(self.directory)} others.")
        return self.directory[name]

    def _alignment(self, cursor: _Cursor) -> int:
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 8 or alignment & (alignment - 1):
            raise cursor.fail(f"general.alignment is {alignment!r}, not a power of two of at least 8")
        return alignment


def _map(path: Path) -> mmap.mmap:
    try:
        with plain_file(path).open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise BadModel(f"{path}: is empty. Expected a complete GGUF file; copy or download it again.")
            # ACCESS_COPY: torch wants a writable buffer, and the file must stay as it is.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except (OSError, ValueError) as error:
        raise BadModel(
            f"{path}: cannot be opened as a GGUF file ({error}). Check the path and its permissions."
        ) from error


def _check_magic(cursor: _Cursor) -> None:
    magic = cursor.data[cursor.take(4, "the magic number") : cursor.at]
    if magic != b"GGUF":
        raise BadModel(
            f"{cursor.path}: begins with {magic!r} where a GGUF file begins with b'GGUF'. "
            "Give a .gguf file, or a folder with config.json and model.safetensors."
        )
    version = cursor.number("I", "the format version")
    if version in (0x01000000, 0x02000000, 0x03000000):
        raise BadModel(
            f"{cursor.path}: is a big-endian GGUF file; only little-endian ones can be read. Convert it first."
        )
    if version not in (2, 3):
        raise BadModel(
            f"{cursor.path}: has GGUF version {version}; versions 2 and 3 can be read. Convert the model again."
        )


def _read_metadata(cursor: _Cursor, count: int) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    for index in range(count):
        key = cursor.string(f"the key of metadata value {index}")
        if key in metadata:
            raise cursor.fail(f"metadata key {key!r} appears twice")
        metadata[key] = cursor.value(cursor.number("I", f"the type of {key!r}"), f"metadata {key!r}")
    return metadata


def _read_directory(
    cursor: _Cursor, count: int, alignment: int, formats: Mapping[int, Format]
) -> dict[str, TensorEntry]:
    drafts: dict[str, Callable[[int], TensorEntry]] = {}
    for index in range(count):
        name = cursor.string(f"the name of tensor {index}")
        if name in drafts:
            raise cursor.fail(f"tensor {name!r} appears twice")
        drafts[name] = _read_entry(cursor, name, alignment, formats)
    start = -(-cursor.at // alignment) * alignment
    return {name: place(start) for name, place in drafts.items()}


def _read_entry(
    cursor: _Cursor, name: str, alignment: int, formats: Mapping[int, Format]
) -> Callable[[int], TensorEntry]:
    """Read one directory line; where it points is known only after the last line, hence the function."""
    rank = cursor.number("I", f"the rank of tensor {name!r}")
    if not 1 <= rank <= _DIMENSIONS:
        raise cursor.fail(f"tensor {name!r} has {rank} dimensions; expected 1 to {_DIMENSIONS}")
    # The file lists the fastest-running dimension first.
    shape = tuple(cursor.number("Q", f"the shape of tensor {name!r}") for _ in range(rank))[::-1]
    kind = cursor.number("I", f"the type of tensor {name!r}")
    offset = cursor.number("Q", f"the offset of tensor {name!r}")
    form = formats.get(kind)
    if form is None:
        known = ", ".join(sorted(form.name for form in formats.values()))
        stored = UNREADABLE[kind].name if kind in UNREADABLE else f"unknown type {kind}"
        raise BadModel(
            f"{cursor.path}: tensor {name!r} is stored as {stored}, which cannot be read; these can: {known}. Use a "
            "file quantised as one of them, such as Q4_K_M or Q8_0, or the llama.cpp runtime, which reads all."
        )
    if min(shape) < 1 or shape[-1] % form.size:
        raise cursor.fail(f"tensor {name!r} has shape {shape}, which {form.name} blocks of {form.size} cannot fill")
    if offset % alignment:
        raise cursor.fail(f"tensor {name!r} begins at {offset:,}, which is not a multiple of {alignment}")
    size = prod(shape) // form.size * form.width

    def place(start: int) -> TensorEntry:
        if start + offset + size > cursor.end:
            missing = start + offset + size - cursor.end
            raise cursor.fail(f"tensor {name!r} ends {missing:,} bytes past the end: the file was cut short")
        return TensorEntry(name, form, shape, start + offset, size)

    return place
