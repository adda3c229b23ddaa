"""What numbers were measured on: machine, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from unspool.core.version import VERSION

RUNS = ("src", "packages", "bench", ":!bench/results")  # what a figure can depend on


def machine() -> dict[str, Any]:
    """All of it as plain data."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": _version("transformers"),
        "llama_cpp": _version("llama_cpp_python"),
        "unspool": VERSION,
        "commit": _commit(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the source tree this runs from; of a tree without git what UNSPOOL_COMMIT says, or None.

    `-dirty` is behind it if something that runs has changes: pages, tests and the results themselves do not count.
    """
    here = Path(__file__).parents[3]
    if not (here / ".git").exists():
        return os.environ.get("UNSPOOL_COMMIT")
    try:
        ran = subprocess.run(["git", "describe", "--always"], cwd=here, capture_output=True, text=True)
        changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *RUNS], cwd=here, capture_output=True)
    except OSError:
        return None
    named = ran.stdout.strip()
    return f"{named}-dirty" if named and changed.returncode == 1 else named or None
