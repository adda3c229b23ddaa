"""Where the figures of all pages come from: every file of bench/results/ with its machine and commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from table import DIRTY, commit


def origins(folder: Path) -> str:
    """A section for the page about benchmarks."""
    lines = ["| file | machine | measured at |", "|---|---|---|"]
    for path in sorted(folder.glob("*.json")):
        read = json.loads(path.read_text(encoding="utf-8"))
        if chips := ", ".join(dict.fromkeys(map(_chip, _machines(read)))):
            lines.append(f"| [{path.name}](results/{path.name}) | {chips} | {_told(_commits(read))} |")
    return "\n\n## Where each file comes from\n\n" + "\n".join(lines) + "\n"


def _told(commits: set[str | None]) -> str:
    """One commit in words, or all of them, those of changed trees behind the others."""
    if len(commits) == 1:
        return commit(*commits)
    named = sorted(said for said in commits if said)
    clean = [said for said in named if not said.endswith(DIRTY)]
    changed = [said.removesuffix(DIRTY) for said in named if said.endswith(DIRTY)]
    parts = [f"row by row at commits {', '.join(clean)}" if clean else "row by row"]
    return ", and ".join(parts + ([f"at {', '.join(changed)} with changes that were not committed"] if changed else []))


def _machines(read: Any) -> list[dict[str, Any]]:
    """What a file says of machines, wherever in it."""
    if isinstance(read, list):
        return [found for each in read for found in _machines(each)]
    if not isinstance(read, dict):
        return []
    own = [read["machine"]] if isinstance(read.get("machine"), dict) else []
    return own + [found for each in read.values() for found in _machines(each)]


def _commits(read: Any) -> set[str | None]:
    """The commits that a file names; None if it says nothing of one."""
    found: set[str | None] = set()
    if isinstance(read, dict):
        found |= {read["commit"]} if "commit" in read else set()
        found = found.union(*(_commits(each) - {None} for each in read.values()))
    elif isinstance(read, list):
        found = found.union(*(_commits(each) - {None} for each in read))
    return found or {None}


def _chip(made: dict[str, Any]) -> str:
    chip = made.get("gpu") or f"{made['cores']} cores of an {made['cpu']}" if "cores" in made else made["cpu"]
    return f"{chip}, torch {made['torch']}"
