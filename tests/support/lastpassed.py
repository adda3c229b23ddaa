"""When each of the slow tests last passed, since no build runs them: `pytest -m slow --record-slow FILE`.

There are thousands of them, so a file has a short line for each: {"with": [what it ran with, …], "tests": {file: {test:
[passed, seconds, number in "with"]}}}. A test that failed since has that date as a fourth entry.
"""

from __future__ import annotations

import json
import platform
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-slow", type=Path, metavar="FILE", help="write there when each slow test last passed")


class LastPassed:
    """Notes every slow test that passes, at once, so that an interrupted run keeps what it has seen."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.seen: dict[str, dict[str, Any]] = read(file) if file.exists() else {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and "slow" in report.keywords:
            self.note(report.nodeid, report.outcome, report.duration)

    def note(self, test: str, outcome: str, seconds: float) -> None:
        """A test that fails keeps the date of its last pass; one that is skipped, or gone, says so by an old date."""
        today = datetime.now(timezone.utc).date().isoformat()
        entry = self.seen.setdefault(test, {"passed": None})
        if outcome == "passed":
            made = f"Python {platform.python_version()}, torch {version('torch')}, {platform.machine()}"
            entry |= {"passed": today, "seconds": round(seconds, 1), "with": made}
            entry.pop("failed", None)
        elif outcome == "failed":
            entry["failed"] = today
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(written(self.seen))


def read(file: Path) -> dict[str, dict[str, Any]]:
    """What a file says of each test: when it passed, in how many seconds, with what, and when it failed since."""
    told = json.loads(file.read_text())
    found = {}
    for place, tests in told["tests"].items():
        for test, (passed, *rest) in tests.items():
            entry = found[f"{place}::{test}"] = {"passed": passed}
            if rest[0] is not None:
                entry |= {"seconds": rest[0], "with": told["with"][rest[1]]}
            entry |= {"failed": rest[2]} if len(rest) > 2 else {}
    return found


def written(seen: dict[str, dict[str, Any]]) -> str:
    """The same as the text of a file, a line for each test."""
    made = sorted({entry["with"] for entry in seen.values() if "with" in entry})
    places: dict[str, list[str]] = {}
    for name, entry in sorted(seen.items()):
        place, _, test = name.partition("::")
        row = [entry["passed"], entry.get("seconds"), made.index(entry["with"]) if "with" in entry else None]
        row += [entry["failed"]] if "failed" in entry else []
        places.setdefault(place, []).append(f"  {json.dumps(test)}: {json.dumps(row)}")
    blocks = ",\n".join(f" {json.dumps(place)}: {{\n" + ",\n".join(rows) + "\n }" for place, rows in places.items())
    return f'{{"with": {json.dumps(made)}, "tests": {{\n{blocks}\n}}}}\n'


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("record_slow")
    if file and not hasattr(config, "workerinput"):  # of several workers, one process hears what came of all tests
        config.pluginmanager.register(LastPassed(file))
