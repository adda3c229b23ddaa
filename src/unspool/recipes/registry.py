"""The registry: every rule that comes with unspool, and whatever else has been registered by then."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from .. import rules
from ..core.claim import Entry, registered

FAMILIES = ("constrain", "decode", "draft", "search", "unmask", "verify")


def entries() -> dict[str, Entry]:
    """Every registered rule by name; the first call imports all of them."""
    _import_all()
    return registered()


@cache
def _import_all() -> None:
    for family in FAMILIES:
        package = import_module(f"{rules.__name__}.{family}")
        for module in iter_modules(package.__path__):
            import_module(f"{package.__name__}.{module.name}")
