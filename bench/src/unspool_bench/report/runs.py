"""Runs: the journals of a folder with what they say, read without touching them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from unspool.core.claim import ARGMAX, LAW, SEED
from unspool.core.cost import Cost
from unspool.core.errors import BadRequest
from unspool.recipes.methods import claim_of, refuse_files
from unspool.recipes.names import known, parts_of

from ..contender import PLAIN
from ..journal import Journal
from ..parallel import ParallelRow
from ..standing import Standing, by_contender, standings

PARALLEL = "parallel*.json"
SUITES = ("spec", "long", "throughput", "quality")  # in this order, then others by name
WHOLE = "all"  # the family that stands for all of them
ADVICE = "move it away, or measure again with --fresh"


@dataclass(frozen=True)
class MeasuredRun:
    """One journal: how it was measured, its rows, and the standings."""

    path: Path
    journal: Journal
    standings: Sequence[Standing]
    cost: Cost | None  # of a forward

    @property
    def about(self) -> dict[str, Any]:
        """How it was measured."""
        return self.journal.about

    @property
    def suite(self) -> str:
        """What was measured, in a word."""
        return str(self.about.get("suite") or self.path.stem)

    @cached_property
    def table(self) -> dict[str, dict[str, Standing]]:
        """Standings by contender and family."""
        return by_contender(self.standings)

    @cached_property
    def families(self) -> list[str]:
        """All families, in the order of measurement."""
        found = dict.fromkeys(each.family for each in self.standings)
        return [*(family for family in found if family != WHOLE), *((WHOLE,) if WHOLE in found else ())]

    @property
    def overall(self) -> dict[str, Standing]:
        """Each contender on all cases; those that have not been through all of them are left out."""
        return {name: own[self.families[-1]] for name, own in self.table.items() if self.families[-1] in own}

    @cached_property
    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """What was measured, by contender."""
        found: dict[str, list[dict[str, Any]]] = {}
        for (_, contender, _), row in self.journal.items():
            found.setdefault(contender, []).append(row)
        return found

    @property
    def drawn(self) -> bool:
        """Whether texts were drawn rather than chosen greedily."""
        return bool(self.about.get("temperature"))

    @property
    def missing(self) -> int:
        """Measurements that some contender has and another lacks: the run was not finished, or goes on."""
        keys = {key for key, _ in self.journal.items()}
        return len({(case, repeat) for case, _, repeat in keys}) * len({who for _, who, _ in keys}) - len(keys)

    def kind(self, contender: str) -> str:
        """What it is called in a sentence: a program beside us is no method of ours."""
        (first, *_) = parts_of(contender)
        if not first.file and known(first.said) is None:
            return "program beside"
        return "exact method" if self.exact(contender) else "approximate method"

    def exact(self, contender: str) -> bool:
        """Whether a contender claims plain decoding's text, by the journal or else by the registry."""
        if contender == PLAIN:
            return True
        told = {row["exact"] for row in self.rows.get(contender, ()) if "exact" in row}
        if told:
            return all(told)
        try:
            refuse_files(contender)  # a journal may be somebody else's
            return claim_of(contender) in (SEED, LAW, ARGMAX)
        except BadRequest:  # somebody else's, such as transformers
            return True


@dataclass(frozen=True)
class FoundJournals:
    """What the folders hold: runs, rows of the parallel benchmark, and files that are something else."""

    runs: Sequence[MeasuredRun]
    parallel: Sequence[tuple[Path, Sequence[ParallelRow]]]
    skipped: Sequence[Path]


def found(folders: Iterable[Path]) -> FoundJournals:
    """The journals (*.jsonl) of folders, suite by suite; a journal may also be named itself."""
    runs: list[MeasuredRun] = []
    parallel: list[tuple[Path, Sequence[ParallelRow]]] = []
    skipped: list[Path] = []
    for folder in folders:
        if not folder.exists():
            raise BadRequest(
                f"{folder} is not there; name the folder that `unspool bench … --out FOLDER` has written to"
            )
        inside = sorted(folder.glob("*.jsonl")) if folder.is_dir() else [folder]
        charts = sorted(folder.glob(PARALLEL)) if folder.is_dir() else []
        if not inside and not charts:
            raise BadRequest(f"{folder} has no journals (*.jsonl); make one with: unspool bench spec --out {folder}")
        read = {path: _run(path) for path in inside}
        runs += sorted(filter(None, read.values()), key=_place)
        skipped += [path for path, run in read.items() if run is None]
        drawn = {path: _rows(path) for path in charts}
        parallel += [(path, rows) for path, rows in drawn.items() if rows]
        skipped += [path for path, rows in drawn.items() if not rows]
    if not runs and not parallel:
        names = ", ".join(map(str, skipped))
        raise BadRequest(f"{names} holds no measurements of `unspool bench`; make some with: unspool bench spec")
    return FoundJournals(runs, parallel, skipped)


def _place(run: MeasuredRun) -> int:
    return SUITES.index(run.suite) if run.suite in SUITES else len(SUITES)


def _run(path: Path) -> MeasuredRun | None:
    """The run of a file; None if its first line is that of another kind of file."""
    # What stands behind the last line break was cut off, or is being written just now; the file is left as it is.
    lines = path.read_bytes().split(b"\n")[:-1]
    if not lines:
        raise BadRequest(f"{path} is empty; remove it, or measure again")
    first = _line(path, 1, lines[0])
    if "about" not in first:
        return None
    rows = [_line(path, at, line) for at, line in enumerate(lines[1:], 2)]
    try:
        journal = Journal(None, first["about"])
        for row in rows:
            case, contender, repeat = row.pop("key")
            journal.add((case, contender, repeat), row)
        told = journal.about.get("cost")
        cost = Cost(tuple(told["rows"]), tuple(told["seconds"])) if told else None
        return MeasuredRun(path, journal, standings(journal), cost)
    except ZeroDivisionError:
        raise BadRequest(f"{path} has cases in which plain decoding wrote nothing or took no time; {ADVICE}") from None
    except (ValueError, KeyError, TypeError, AttributeError, BadRequest) as error:
        raise BadRequest(f"{path} lacks what a journal of measurements has ({error!r}); {ADVICE}") from None


def _line(path: Path, at: int, line: bytes) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except ValueError as error:
        raise BadRequest(f"{path} cannot be read: line {at} is no JSON ({error}); {ADVICE}") from None
    if not isinstance(told, dict):
        raise BadRequest(f"{path} cannot be read: line {at} is no object of a journal; {ADVICE}")
    return told


def _rows(path: Path) -> list[ParallelRow]:
    """The rows of a result of the parallel benchmark; none if it is another kind of file."""
    try:
        told = json.loads(path.read_bytes())
        return [ParallelRow(**row) for row in (told.get("rows", []) if isinstance(told, dict) else told)]
    except (ValueError, TypeError) as error:
        raise BadRequest(f"{path} has no rows of `unspool bench parallel --json` ({error!r}); move it away") from None
