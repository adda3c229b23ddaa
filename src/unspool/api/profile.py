"""Profiles: which model, where and how to decode it, kept in a small TOML file that commands and programs load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import BadRequest, cut
from ..core.files import read_toml
from ..recipes.methods import refuse_files
from .loader import load

if TYPE_CHECKING:
    from .lm import LM

NOTES = ("measured", "machine")  # tables that say where a profile comes from


@dataclass(frozen=True)
class Profile:
    """A model and a method that suit each other on some machine; `notes` say how that was found."""

    model: str = "smollm2"
    method: str = "plain"
    draft: str | None = None
    small: str | None = None
    dtype: str = "auto"
    quantization: str = "auto"
    device: str = "auto"
    heads: str | None = None
    adapter: str | None = None
    notes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False)

    @staticmethod
    def read(file: str | Path) -> Profile:
        """From a file."""
        path = Path(file)
        try:
            data = read_toml(path)
        except OSError as error:
            raise BadRequest(f"the profile {path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise BadRequest(f"the profile {path} is not TOML: {error}") from None
        known = [each.name for each in fields(Profile) if each.name != "notes"]
        for name, value in data.items():
            if name in NOTES and isinstance(value, dict):
                continue
            if name not in known or not isinstance(value, str):
                raise BadRequest(
                    f"the profile {path} has {name} = {cut(repr(value))}; expected texts for {', '.join(known)}"
                )
        given = {name: data[name] for name in known if name in data}
        if "method" in given:  # a profile may be somebody else's, and the files that a method names are run
            try:
                refuse_files(given["method"])
            except BadRequest as error:
                raise BadRequest(f"the profile {path} cannot be used: {error}") from None
        return Profile(**given, notes={name: data[name] for name in NOTES if name in data})

    def write(self, file: str | Path, about: str = "") -> None:
        """To a file, all at once; `about` becomes its first lines."""
        lines = [f"# {line}" for line in about.splitlines()]
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "notes"}
        lines += [f"{name} = {_toml(value)}" for name, value in given.items() if value is not None]
        for name, table in self.notes.items():
            lines += ["", f"[{name}]", *(f"{key} = {_toml(x)}" for key, x in table.items() if x is not None)]
        path = Path(file)
        part = path.with_name(path.name + ".part")
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")
        part.replace(path)

    def load(self) -> LM:
        """The model, with its draft model, heads and adapter if there are any; decode it with `method`."""
        return load(
            self.model,
            dtype=self.dtype,
            quantization=self.quantization,
            device=self.device,
            draft=self.draft,
            small=self.small,
            heads=self.heads,
            adapter=self.adapter,
        )


def _toml(value: Any) -> str:
    """A value as TOML writes it: texts, numbers, booleans and lists of them are as in JSON."""
    return json.dumps(value, ensure_ascii=False)
