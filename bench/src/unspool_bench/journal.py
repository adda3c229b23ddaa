"""A journal: what was measured, one line each under a key that is measured once, so that a killed run goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from unspool.core.errors import BadRequest

Key: TypeAlias = tuple[str, ...]


class Journal:
    """The lines of a file, and those that are added to it. The first says how all of them were measured.

    A line is on the disk before the next measurement begins. One that was cut off when a run was killed is dropped.
    """

    def __init__(self, path: Path | None, about: Mapping[str, Any], apart: frozenset[str] = frozenset()) -> None:
        """`apart` are what may differ between runs that add to one file, such as the commit."""
        self._path, self.about = path, dict(about)
        self._rows: dict[Key, dict[str, Any]] = {}
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = _whole_lines(path)
        if path.exists() and (rest := path.stat().st_size - sum(len(line) + 1 for line in lines)):
            with path.open("r+b") as file:
                file.truncate(path.stat().st_size - rest)
        if not lines:
            self._append({"about": self.about})
            return
        try:
            known = json.loads(lines[0])["about"]
            self._rows = {tuple(row.pop("key")): row for row in map(json.loads, lines[1:])}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadRequest(f"{path} is no journal of measurements ({error!r}); name another file") from None
        changed = sorted(k for k in {*known, *self.about} - apart if known.get(k) != self.about.get(k))
        if changed:
            was, now = known.get(changed[0]), self.about.get(changed[0])
            raise BadRequest(
                f"{path} was measured with {changed[0]} {was!r}, now it is {now!r}; "
                "keep this run elsewhere, or remove the file"
            )
        self.about = known

    @staticmethod
    def read(path: Path) -> Journal:
        """What a file holds by now, whatever it was measured with; it may be written on meanwhile."""
        lines = _whole_lines(path)
        try:
            journal = Journal(None, json.loads(lines[0])["about"])
            journal._rows = {tuple(row.pop("key")): row for row in map(json.loads, lines[1:])}
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise BadRequest(f"{path} is no journal of measurements ({error!r})") from None
        return journal

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: Key) -> dict[str, Any]:
        return self._rows[key]

    def items(self) -> list[tuple[Key, dict[str, Any]]]:
        """All lines with their keys, in the order in which they were measured."""
        return list(self._rows.items())

    def add(self, key: Key, row: Mapping[str, Any]) -> None:
        """Keep a measurement."""
        self._rows[key] = dict(row)
        if self._path is not None:
            self._append({"key": list(key), **row})

    def _append(self, record: Mapping[str, Any]) -> None:
        assert self._path is not None
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _whole_lines(path: Path) -> list[bytes]:
    """The lines of a file; what stands behind the last line break was cut off."""
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []
