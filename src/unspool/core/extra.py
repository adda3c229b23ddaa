"""Packages that an extra brings: imported where they are first needed, by those who can do without them until then."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .errors import MissingExtra


def brought_by(extra: str, module: str, purpose: str) -> Any:
    """The module, imported now; where its package is not installed, MissingExtra says what to install for `purpose`."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(module.partition(".")[0], extra, purpose) from error
