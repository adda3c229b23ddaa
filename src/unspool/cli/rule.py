"""A rule of the user's own, from FILE.py:NAME."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadRequest

if TYPE_CHECKING:
    from ..claim import Method

_CALL = "a method is called as method(text, chance, warp, stop) and yields asks"


def is_rule(spec: str) -> bool:
    """Whether a name is FILE.py:NAME rather than that of a registered rule."""
    return ".py:" in spec or spec.endswith(".py")


def load_rule(spec: str) -> Method:
    """Run the file and take the attribute; the file's folder can be imported from, as if it were run itself."""
    file, _, name = spec.rpartition(":")
    if not file or not name:
        raise BadRequest(f"{spec!r} names no object; write {spec.rstrip(':')}:NAME.")
    found = getattr(module := _run(Path(file)), name, None)
    if found is None:
        own = [key for key in vars(module) if not key.startswith("_") and callable(getattr(module, key))]
        raise BadRequest(f"{file} has no {name!r}; it has: {', '.join(own) or 'nothing to call'}.")
    return _method(found, spec)


def _run(file: Path) -> Any:
    if not file.is_file():
        raise BadRequest(f"{file}: there is no such file; give FILE.py:NAME.")
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


def _method(found: Any, spec: str) -> Method:
    """The object itself if it can be called as a method (or is registered under @claims), else why it cannot."""
    from ..claim import entries

    if any(entry.rule is found for entry in entries().values()):
        return found  # type: ignore[no-any-return]
    if inspect.isclass(found):
        raise BadRequest(f"{spec} is a class; give an object of it ({_CALL}).")
    if not callable(found):
        raise BadRequest(f"{spec} is a {type(found).__name__}, which cannot be called; {_CALL}.")
    try:
        inspect.signature(found).bind((), None, None, None)
    except TypeError:
        takes = ", ".join(inspect.signature(found).parameters) or "nothing"
        hint = " A verifier becomes one as Speculate(Chain(depth=2), rule)." if takes == "scored, chance" else ""
        raise BadRequest(f"{spec} takes ({takes}), but {_CALL}.{hint}") from None
    return found  # type: ignore[no-any-return]
