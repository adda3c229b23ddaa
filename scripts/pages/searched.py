"""The reader of what search makes of problems at equal rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from table import Table, machine

MEASURES = ("greedy", "one sample")  # shown beside every search
WAYS = {  # the names that bench/search.py gives them
    "greedy": "plain",
    "one sample": "plain",
    "beam": "beam",
    "diverse beams": "diverse",
    "stochastic beams": "stochastic",
    "A*": "astar",
    "foresight": "foresight",
    "cautious": "cautious",
    "chaotic": "chaotic",
    "smc": "smc",
    "best of n": "several",
}


def searched(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/search.py: problems solved, and the rows that took."""
    tasks = data.get("tasks", {})
    if not tasks or not all("right" in cell for per in tasks.values() for cell in per.values()):
        return
    heads = ["", *(f"{task}: {what}" for task in tasks for what in ("solved", "rows per greedy token"))]
    where = (
        f"{data['model']}, {data['limit']} problems of each task, about {data['times']} rows for every token of the "
        f"greedy text; intervals are Wilson's at 95 %. {machine(data)}"
    )
    ways = list(dict.fromkeys(way for per in tasks.values() for way in per))
    for name in dict.fromkeys(filter(None, map(_rule, ways))):
        own = [way for way in ways if _rule(way) == name]
        shown = own if name == "plain" else [*own, *(way for way in MEASURES if way in ways)]
        rows = [[way, *(text for per in tasks.values() for text in _cell(per, way))] for way in shown]
        yield name, Table("Search at equal rows", file, where, heads, rows)


def _rule(way: str) -> str | None:
    """The rule that a way to search belongs to: by its name up to what it is told, as in `A* (checked)`."""
    return WAYS.get(way.partition(" (")[0].partition(",")[0])


def _cell(per: dict[str, dict[str, Any]], way: str) -> tuple[str, str]:
    if way not in per:
        return "–", "–"
    cell = per[way]
    solved = f"{cell['right']} of {cell['problems']} ({100 * cell['low']:.0f}–{100 * cell['high']:.0f} %)"
    return solved, f"{cell['rows'] / per[MEASURES[0]]['tokens']:.1f}"
