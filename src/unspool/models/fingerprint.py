"""Fingerprints of models: what is in their files, so that others of the same name and size are told apart."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

WHOLE = 1 << 28  # bytes up to which all of a file counts; that takes less than a second
ENDS = 1 << 20  # bytes at both ends of a larger one: headers, and what was written last
BLOCK, BLOCKS = 1 << 12, 4096  # and so many blocks in between, at even distances
READ = frozenset({".safetensors", ".gguf", ".bin", ".pt", ".json", ".jinja", ".model", ".txt"})
SIZE = 16  # bytes of a fingerprint


def fingerprint(path: Path) -> str:
    """Of a file, or of all files of a folder that loading may read: their names, sizes and contents.

    Of a file above 256 MiB the ends count and 4096 blocks in between, one of 4 KiB for every few MiB. Other weights
    differ everywhere, so that they are told apart; one number that was changed by hand may not be.
    """
    told = blake2b(digest_size=SIZE)
    files = [path] if path.is_file() else sorted(file for file in path.iterdir() if _counts(file))
    for file in files:
        told.update(f"{file.name if path.is_dir() else file.suffix}\0{file.stat().st_size}\0".encode())
        told.update(_contents(file))
    return told.hexdigest()


def _counts(file: Path) -> bool:
    return file.is_file() and file.suffix in READ and not file.name.startswith(".")


def _contents(path: Path) -> bytes:
    told, size = blake2b(digest_size=SIZE), path.stat().st_size
    with path.open("rb") as file:
        if size <= WHOLE:
            while part := file.read(ENDS):
                told.update(part)
            return told.digest()
        inner = size - 2 * ENDS
        starts = [0, *(ENDS + inner * i // BLOCKS for i in range(BLOCKS)), size - ENDS]
        for start in starts:
            file.seek(start)
            told.update(file.read(ENDS if start in (0, size - ENDS) else BLOCK))
    return told.digest()
