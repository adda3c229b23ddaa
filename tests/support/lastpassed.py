"""When each of the slow tests last passed, since no build runs them: `pytest -m slow --record-slow FILE`."""

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
        self.seen: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}

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
        self.file.write_text(json.dumps(dict(sorted(self.seen.items())), indent=1) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("record_slow")
    if file and not hasattr(config, "workerinput"):  # of several workers, one process hears what came of all tests
        config.pluginmanager.register(LastPassed(file))
