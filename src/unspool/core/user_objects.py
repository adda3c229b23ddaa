"""An object of the user's own, from FILE.py:NAME."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from difflib import get_close_matches
from functools import lru_cache
from inspect import isclass, isroutine
from pathlib import Path
from types import ModuleType
from typing import Any

from .errors import BadRequest


def loaded(spec: str) -> Any:
    """Run the file and take the attribute; the file's folder can be imported from, as if it were run itself."""
    file, _, name = spec.rpartition(":")
    if not file or not name:
        raise BadRequest(f"{spec!r} names no object; write {spec.rstrip(':')}:NAME.")
    place = Path(file)
    if not place.is_file():
        raise BadRequest(f"{file}: there is no such file; give FILE.py:NAME.")
    found = getattr(module := _run(place, place.stat().st_mtime_ns), name, None)
    if found is None:
        own = [key for key, each in vars(module).items() if not key.startswith("_") and _made_here(each, module)]
        near = get_close_matches(name, own, n=1)
        hint = f" Did you mean {file}:{near[0]}?" if near else ""
        raise BadRequest(f"{file} has no {name!r}; it has: {', '.join(own) or 'nothing to call'}.{hint}")
    return found


def _made_here(each: Any, module: ModuleType) -> bool:
    """Whether it can be called and is the file's own: no class and no function that it imports."""
    return callable(each) and (each.__module__ == module.__name__ or not (isclass(each) or isroutine(each)))


@lru_cache(maxsize=32)
def _run(file: Path, changed: int) -> ModuleType:
    """The file as a module; it is run once, however often it is named, and again when it has changed."""
    spec = importlib.util.spec_from_file_location(f"yours_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise BadRequest(f"{file} is not a Python file; give FILE.py:NAME.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    sys.path.insert(0, str(file.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = (
            [error.lineno]
            if isinstance(error, SyntaxError)
            else [f.lineno for f in frames if f.filename == spec.origin]
        )
        where = f", line {lines[-1]}" if lines else ""
        raise BadRequest(f"{file}{where}: {type(error).__name__}: {error}") from error
    return module
