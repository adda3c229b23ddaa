"""Results with what is needed to read them later: machine, versions, commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unspool_bench.machine import machine


def save(path: str, result: dict[str, Any]) -> None:
    """Write a result beside its machine."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps({"machine": machine(), **result}, indent=1) + "\n")
