"""The C kernels of this folder: compiled once for this machine into the cache folder, and loaded.

A wheel that holds machine code would be one per system; a compiler on the user's machine knows its processor better.
Where there is none, or the cache folder is not safe to load code from, there are no kernels, and PyTorch does the work.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import signal
import stat
import subprocess
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from ...core.errors import UnspoolError
from ...models.address import home

SOURCES = (
    "simd.h",
    "threads.h",
    "tiles.h",
    "product.h",
    "attend.h",
    "best.h",
    "forward.h",
    "step.h",
    "heads.h",
    "packed.c",
)
COMPILERS = ("cc", "gcc", "clang")
SECONDS = 120  # that a compiler may take; it takes three
OFF = "UNSPOOL_KERNELS"  # set to 0, no kernels are compiled or loaded


class NoKernels(Exception):
    """Why there are no kernels, in a clause."""


class MatrixStruct(ctypes.Structure):
    """A packed matrix as the kernels see it."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("out", ctypes.c_int),
        ("inputs", ctypes.c_int),
        ("tiles", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
    )


class Plan(ctypes.Structure):
    """What each token of a batch sees."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("slots", "start", "near", "first", "own"))


class LayerStruct(ctypes.Structure):
    """A layer as the kernels see it."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("before_attention", "qk_norm", "after_attention")),
        *((name, ctypes.c_void_p) for name in ("before_mlp", "after_mlp", "qkv", "out", "gate_up", "down")),
        *((name, ctypes.c_void_p) for name in ("cosine", "sine", "keys", "values")),
        *((name, ctypes.c_int) for name in ("qkv_count", "gate_up_count", "plan")),
    )


class NetworkStruct(ctypes.Structure):
    """A network as the kernels see it."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("layer", "norm", "head")),
        *(
            (name, ctypes.c_int)
            for name in ("layers", "dim", "heads", "kv_heads", "head_dim", "hidden", "rotary", "gelu")
        ),
        ("room", ctypes.c_longlong),
        ("eps", ctypes.c_float),
        ("scale", ctypes.c_float),
    )


class TableStruct(ctypes.Structure):
    """A table of embeddings as the kernels see it."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("bytes", ctypes.c_longlong),
        ("kind", ctypes.c_int),
        ("size", ctypes.c_int),
    )


class HeadsStruct(ctypes.Structure):
    """Heads that look ahead as the kernels see them."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("first", "read", "rest", "common")),
        *((name, ctypes.c_int) for name in ("heads", "blocks", "dim")),
    )


class Kernels:
    """The functions of the library, by their names in packed.c."""

    def __init__(self, file: Path) -> None:
        self.name, library = file.stem, ctypes.CDLL(str(file))
        number, pointer = ctypes.c_int, ctypes.c_void_p
        self.tiled_bytes, self.tile = library.tiled_bytes, library.tile
        self.multiply, self.forward, self.best = library.multiply, library.forward, library.best
        self.tiled_bytes.argtypes = (number, ctypes.c_longlong, ctypes.c_longlong)
        self.tiled_bytes.restype = ctypes.c_longlong
        self.tile.argtypes, self.tile.restype = (number, pointer, number, number, pointer), None
        self.multiply.argtypes = (pointer, number, pointer, pointer, number, number)
        self.forward.argtypes = (
            *(pointer, number, pointer, pointer, pointer, pointer, number),
            *(number, pointer, pointer, pointer, number, pointer, number),
        )
        self.step, self.decode = library.step, library.decode
        self.step.argtypes = (
            *(pointer, pointer, pointer, number, number, number),
            *(pointer, pointer, number, number, pointer, pointer, number),
        )
        self.give = library.give
        self.give.argtypes, self.give.restype = (pointer,), None
        self.decode.argtypes, self.decode.restype = (number, pointer, number, pointer), None
        self.best.argtypes, self.best.restype = (pointer, number, number, number, pointer, pointer), None
        self.guess = library.guess
        self.guess.argtypes = (*(pointer, pointer, pointer, number, number, pointer, pointer, pointer), number)
        self.sums = library.sums
        self.sums.argtypes, self.sums.restype = (pointer, number, number, pointer, pointer), None
        library.level.restype = ctypes.c_char_p
        self.level: str = library.level().decode()


def kernels() -> Kernels | None:
    """The kernels for this machine, or None; `missing` says why."""
    found = _native()
    return found if isinstance(found, Kernels) else None


def loaded() -> Kernels | None:
    """The kernels if somebody has had them loaded already: for what they speed up and nobody would compile them for."""
    return kernels() if _native.cache_info().currsize else None


def load_if_compiled() -> None:
    """Load the kernels if they were compiled for this machine before."""
    with suppress(NoKernels):
        if _library(_flags(_native_options()), home_folder()).exists():
            kernels()


def missing() -> str | None:
    """Why there are no kernels, or None if there are."""
    found = _native()
    return found if isinstance(found, str) else None


@lru_cache
def _native() -> Kernels | str:
    try:
        if os.environ.get(OFF) == "0":
            raise NoKernels(f"{OFF} is 0")
        library = compiled(_native_options())
    except NoKernels as error:
        return str(error)
    try:
        return Kernels(library)
    except (OSError, AttributeError) as error:  # a folder from which nothing may be run, a library that is damaged
        return f"they cannot be loaded ({error}); without {library} they are compiled anew"


def compiled(options: tuple[str, ...], folder: Path | None = None) -> Path:
    """The library for a machine that `options` describe, compiled if it is not in the folder yet.

    It is found by a hash of its sources, the options and the processor, written beside its place and moved there at
    once; a folder that others may write to is not used, since whatever lies there is run.
    """
    flags = _flags(options)
    folder = _safe(home_folder() if folder is None else folder)
    library = _library(flags, folder)
    if library.exists():
        return _own(library)
    compiler = _compiler()
    part = tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False)  # noqa: SIM115 (moved away)
    part.close()
    try:
        _call([compiler, *flags, str(Path(__file__).parent / SOURCES[-1]), "-o", part.name, "-lm", "-lpthread"])
        if not os.path.getsize(part.name):
            raise NoKernels(f"{compiler} says that it has compiled them, and has written nothing")
        os.chmod(part.name, 0o700)  # whatever the umask is: what others may write to is not loaded
        os.replace(part.name, library)
    except OSError as error:
        raise NoKernels(f"they cannot be compiled ({error})") from error
    finally:
        Path(part.name).unlink(missing_ok=True)
    return library


def _native_options() -> tuple[str, ...]:
    """What describes this machine to a compiler."""
    return ("-march=native" if platform.machine().lower() in ("x86_64", "amd64") else "-mcpu=native",)


def _flags(options: tuple[str, ...]) -> list[str]:
    return ["-std=gnu11", "-O2", "-ffp-contract=off", "-fPIC", "-shared", *options]


def _library(flags: list[str], folder: Path) -> Path:
    """Where the library is that these flags make of the sources as they are."""
    texts = [(Path(__file__).parent / name).read_bytes() for name in SOURCES]
    mark = hashlib.sha256(b"\0".join((*texts, " ".join(flags).encode(), _processor()))).hexdigest()[:24]
    return folder / f"packed-{mark}.so"


def _call(command: list[str]) -> None:
    """Run a compiler to its end, or end it and all that it has started; NoKernels if it fails or takes too long.

    It writes to a file, since a pipe would be waited for as long as any of those that it has started hold it.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )
        try:
            code = process.wait(SECONDS)
        except BaseException as error:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise NoKernels(f"{command[0]} has not compiled them after {SECONDS} seconds") from None
            raise
        errors.seek(0)
        said = errors.read(4096).decode(errors="replace").strip().splitlines()
    if code:
        raise NoKernels(f"{command[0]} cannot compile them ({said[0] if said else 'it says nothing'})")


def home_folder() -> Path:
    """Where compiled libraries are kept."""
    try:
        return home() / "native"
    except UnspoolError as error:
        raise NoKernels(str(error)) from error


def _compiler() -> str:
    for name in COMPILERS:
        if found := shutil.which(name):
            return found
    raise NoKernels("there is no C compiler (cc, gcc or clang)")


def _processor() -> bytes:
    """What tells processors apart whose code differs, for cache folders that several machines share."""
    try:
        with open("/proc/cpuinfo", "rb") as file:
            wanted = (line for line in file if line.startswith((b"flags", b"Features")))
            return next(wanted, b"")
    except OSError:
        return f"{platform.machine()} {platform.processor()}".encode()


def _safe(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise NoKernels(f"{folder} cannot be made ({error})") from error
    for parent in folder.resolve().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX and hasattr(os, "geteuid"):
            raise NoKernels(f"everybody may put another folder in place of {folder}, as {parent} is open to them")
    return _own(folder)


def _own(path: Path) -> Path:
    """The path, if nobody but this user and root can write what is there."""
    if hasattr(os, "geteuid"):
        found = path.stat()
        if found.st_uid not in (os.geteuid(), 0) or found.st_mode & 0o022:
            raise NoKernels(f"others may write to {path}; make it yours alone, or set UNSPOOL_HOME to another folder")
    return path
