"""Packages whose names and modules are loaded when they are first used, so that naming one rule imports one rule.

Whoever may need such a package imports it at the top of the file, `from ... import api`, and what he uses of it is
imported where he uses it, `api.loader.load(…)`: so a file says at its top all that it stands on, and `unspool --help`
does not wait for torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, by the modules in it and the names of each, separated by spaces.

    The modules themselves can be had too; where one of them is called as one of the names, the name goes first, though
    the import system would put the module there. What type checkers read stands beside it under TYPE_CHECKING.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    class Package(ModuleType):
        def __setattr__(self, name: str, value: Any) -> None:
            named_alike = isinstance(value, ModuleType) and home.get(name) == name
            super().__setattr__(name, getattr(value, name) if named_alike else value)

    sys.modules[package].__class__ = Package

    def load(name: str) -> Any:
        if name in home:
            value = getattr(import_module(f".{home[name]}", package), name)
            setattr(sys.modules[package], name, value)
            return value
        if name in homes:
            return import_module(f".{name}", package)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return load, lambda: sorted(home)
