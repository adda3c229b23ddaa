"""Readers of what was measured of filling holes: on a real model, on a GPU, on tasks whose answers are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from table import EVEN, Table, cells, grouped, machine, short

SETS = {"chat": "open chat", "plain": "lists, copies, records"}  # of bench/denoise.py
TASKS = ("copy", "sort", "replace_random", "insert_random", "remove_random", "shuffle", "parity", "words", "chain")


def filled(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/denoise.py: policies of filling holes on a real model. Its times hold set-up too, so they are left out."""
    sets = data.get("methods", {})
    if not sets or not all("nats" in cell for per in sets.values() for cell in cells(per)):
        return
    heads = ["", *(f"{SETS.get(s, s)}: {what}" for s in sets for what in ("tokens per forward", "nats per token"))]
    where = (
        f"{data['model']}, {data['dtype']}, {data['limit']} prompts of chat, up to {data['max_tokens']} tokens; nats: "
        f"mean log-likelihood under {data['base']}. {machine(data)}"
    )
    specs = list(dict.fromkeys(spec for per in sets.values() for spec in per))
    for name, own in grouped(specs).items():
        shown = own if name == "plain" else [*own, "plain"]
        rows = [[f"`{spec}`", *(text for per in sets.values() for text in _filling(per.get(spec)))] for spec in shown]
        yield name, Table("Filling holes", file, where, heads, rows)


def _filling(cell: dict[str, Any] | None) -> tuple[str, str]:
    return ("–", "–") if cell is None else (f"{cell['tokens_per_forward']:.2f}", f"{cell['nats']:.3f}")


def looked(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/canvas.py: what a look costs on a GPU."""
    methods = data.get("methods", {})
    if "look_ms" not in data:
        return
    where = f"{data['model']}, up to {data['max_tokens']} tokens. {machine(data)}"
    for name, specs in grouped([spec for spec in methods if spec != "eager"]).items():
        shown = specs if name == "plain" else [*specs, "plain"]
        rows = [
            [f"`{s}`", f"{methods[s]['tokens_per_forward']:.2f}", f"{methods[s]['tokens_per_second']:,.0f}"]
            for s in shown
        ]
        plain = methods["plain"]["tokens_per_second"]
        over = {s: methods[s]["tokens_per_second"] / plain for s in specs}
        behind = [f"`{s}` ({ratio:.2f}×)" for s, ratio in over.items() if ratio < EVEN]
        slower = (f"{data['model']} on {short(data)}: {', '.join(behind)}",) if behind else ()
        heads = ["", "tokens per forward", "tokens per second"]
        yield name, Table("One canvas on a GPU", file, where, heads, rows, True, slower)


def listed(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/parallel.py: list tasks whose best possible score is known."""
    rows = data.get("rows")
    rows = rows if isinstance(rows, list) else []  # of another script it may be a number
    found = {(r["method"], r["model"], r["task"]): r for r in rows if "accuracy" in r}
    if not found:
        return
    size = next(iter(found.values()))["n"]
    where = f"Right answers at tokens per forward. {machine(data)}"
    for name, specs in grouped(list(dict.fromkeys(spec for spec, _, _ in found))).items():
        columns = [
            (s, model) for s in specs for model in ("oracle", "pupil") if any(c[:2] == (s, model) for c in found)
        ]
        tasks = [task for task in TASKS if any((*column, task) in found for column in columns)]
        rows = [[f"`{task}`", *(_right(found.get((*column, task))) for column in columns)] for task in tasks]
        heads = ["", *(f"`{s}`, {model}" for s, model in columns)]
        wrong = []
        for s in specs:
            exact = {task: found[s, "oracle", task] for task in tasks if (s, "oracle", task) in found}
            lost = [f"{task} ({_right(row)})" for task, row in exact.items() if row["accuracy"] < EVEN]
            wrong += [f"`{s}`, {size} items: {', '.join(lost)}"] if lost else []
        yield name, Table(f"List tasks, {size} items", file, where, heads, rows, wrong=tuple(wrong))


def _right(row: dict[str, Any] | None) -> str:
    return "–" if row is None else f"{row['accuracy']:.0%} at {row['tokens_per_forward']:.2f}"


SMALL = {"molecules": "fragments", "certain": "peaked", "inserter": "insert", "corrector": "resample"}
FIGURES = ("worth", "valid", "all words", "a word twice in a row", "forwards", "tokens_per_forward")


def taught(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/fillers.py: small models that were trained here."""
    for kind, rows in data.get("fillers", {}).items():
        known = [name for name in FIGURES if name in next(iter(rows.values()))]
        lines = [[name, *(f"{row[figure]:.2f}" for figure in known)] for name, row in rows.items()]
        heads = ["", *(name.replace("_", " ") for name in known)]
        where = f"Models of `unspool train filler`, a few minutes of training each. {machine(data)}"
        yield SMALL[kind], Table("A small model trained here", file, where, heads, lines)


def asked(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """`unspool bench parallel-text --json`: questions in words on a real model."""
    tasks = data.get("tasks")
    if not isinstance(tasks, dict) or not all("score" in cell for per in tasks.values() for cell in cells(per)):
        return
    specs = list(dict.fromkeys(spec for per in tasks.values() for spec in per if " " not in spec))
    for name, own in grouped(specs).items():
        shown = own if name == "plain" else [*own, "plain"]
        heads = ["", *(f"`{spec}`" for spec in shown)]
        rows = [[task, *(_scored(per.get(spec)) for spec in shown)] for task, per in tasks.items()]
        where = f"Score at tokens per forward, {data['model']}. {machine(data)}"
        yield name, Table("ParallelBench in words", file, where, heads, rows)


def _scored(cell: dict[str, Any] | None) -> str:
    return "–" if cell is None else f"{cell['score']:.2f} at {cell['tokens_per_forward']:.2f}"
