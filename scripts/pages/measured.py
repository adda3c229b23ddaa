"""What bench/results/ says of each method: tables with the machine and the commit that they come from."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from fillings import asked, filled, listed, looked, taught
from formed import aligned, constrained, identical, stepped, validated
from races import drafted, on_a_gpu, raced
from ruled import enumerated, ruled
from searched import searched
from table import Table as Table

READERS = (
    raced,
    on_a_gpu,
    filled,
    looked,
    listed,
    asked,
    taught,
    searched,
    constrained,
    stepped,
    validated,
    identical,
    aligned,
    drafted,
    ruled,
    enumerated,
)


def measured(folder: Path) -> dict[str, list[Table]]:
    """All tables by the name of the method, without its options; a file is read by what it holds, not by its name."""
    read = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    runs = {name: data for name, data in read.items() if isinstance(data, dict) and "machine" in data}
    found: defaultdict[str, list[Table]] = defaultdict(list)
    for reader in READERS:
        for file, data in runs.items():
            for name, table in reader(file, data):
                found[name].append(table)
    return found
