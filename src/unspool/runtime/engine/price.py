"""What forwards cost here: measured once per model and machine, and kept in a file of the cache folder."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...core.cost import Cost
from ...core.errors import BadRequest, UnspoolError
from ...models.home import home
from .contracts import Causal
from .measure_cost import measure

FILE = "costs.json"


def price(model: Causal, key: str | None) -> Cost:
    """The cost of this model's forwards: what the file knows under `key`, else measured now and written there.

    Without a key nothing is read or kept. A file that cannot be read or written is no reason to fail.
    """
    if key is None:
        return measure(model)
    with suppress(UnspoolError, OSError, ValueError, KeyError, TypeError):
        known = _read(home() / FILE)[key]
        return Cost(tuple(known["rows"]), tuple(known["seconds"]), aside=float(known["aside"]))
    cost = measure(model)
    with suppress(UnspoolError, OSError):
        _write(home() / FILE, key, cost)
    return cost


def _read(path: Path) -> dict[str, Any]:
    known = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(known, dict):
        raise BadRequest(f"{path} is not a table of costs")
    return known


def _write(path: Path, key: str, cost: Cost) -> None:
    known: dict[str, Any] = {}
    with suppress(UnspoolError, OSError, ValueError):
        known = _read(path)
    known[key] = {"rows": cost.rows, "seconds": cost.times, "aside": cost.aside}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
