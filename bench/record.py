"""Results with what is needed to read them later: machine, versions, commit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from unspool.core.errors import BadRequest
from unspool_bench.journal import Journal
from unspool_bench.machine import machine

Rows = dict[str, dict[str, Any]]


def save(path: str, result: dict[str, Any]) -> None:
    """Write a result beside its machine."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps({"machine": machine(), **result}, indent=1) + "\n")


def rows(path: Path, parts: Iterable[str], asked: Mapping[str, Any]) -> Rows:
    """The rows of a result by name, or of the journal of a run that was stopped, each with the machine of its own.

    What was measured with other settings than `asked` is refused.
    """
    if path.suffix == ".jsonl":
        journal = Journal.read(path)
        read, found = journal.about, {name: row for (name,), row in journal.items()}
    else:
        read = json.loads(path.read_text(encoding="utf-8"))
        found = {name: row for part in parts for name, row in read.get(part, {}).items()}
    for name, value in asked.items():
        if read.get(name) != value:
            raise BadRequest(
                f"{path} was measured with {name} {read.get(name)!r}, now it is {value!r}; keep this run elsewhere"
            )
    return {name: row if "machine" in row else _placed(row, read["machine"]) for name, row in found.items()}


def unclean(commit: str | None) -> bool:
    """Whether a tree had changes that no commit has, or nobody knows."""
    return commit is None or commit.endswith("-dirty")


def stale(row: Mapping[str, Any]) -> bool:
    """Whether a row is of such a tree, and what is measured now is not."""
    return unclean(row["machine"]["commit"]) and not unclean(machine()["commit"])


def _placed(row: Mapping[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a result whose rows name a commit alone."""
    rest = {key: value for key, value in row.items() if key != "commit"}
    return {"machine": {**beside, "commit": row.get("commit", beside["commit"])}, **rest}
