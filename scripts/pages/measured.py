"""What bench/results/ says of each method: tables with the machine and the commit that they come from."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SETS = {"chat": "open chat", "plain": "lists, copies, records"}  # of bench/denoise.py
EVEN = 0.995  # what is shown as 1.00× is not called slower, nor 100 % wrong
TASKS = ("copy", "sort", "replace_random", "insert_random", "remove_random", "shuffle", "parity", "words", "chain")


@dataclass(frozen=True)
class Table:
    """Figures of one method from one run.

    `slower` says in words where it was behind plain decoding, `wrong` where its answers were not all right although the
    model's laws were exact.
    """

    title: str
    file: str
    where: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    timed: bool = False
    slower: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


def measured(folder: Path) -> dict[str, list[Table]]:
    """All tables by the name of the method, without its options; a file is read by what it holds, not by its name."""
    read = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    runs = {name: data for name, data in read.items() if isinstance(data, dict) and "machine" in data}
    found: defaultdict[str, list[Table]] = defaultdict(list)
    for reader in (_raced, _on_a_gpu, _filled, _looked, _listed, _drafted):
        for file, data in runs.items():
            for name, table in reader(file, data):
                found[name].append(table)
    return found


def _grouped(specs: Sequence[str]) -> dict[str, list[str]]:
    """Specs by the method's name."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for spec in specs:
        groups[spec.partition(":")[0]].append(spec)
    return groups


def _raced(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/spec.py: families of Spec-Bench, each method against plain decoding in the same run."""
    methods = data.get("methods", {})
    if not all("speed_up" in cell for per in methods.values() for cell in _cells(per)) or "plain" not in methods:
        return
    families = list(methods["plain"])
    draft = f", draft model {data['draft']}" if data.get("draft") else ""
    fixed = ", fixed shapes" if data.get("shapes") == "fixed" else ""
    drawn = f"temperature {data['temperature']:g}" if data["temperature"] else "greedy"
    titled = f"Spec-Bench, {data['model']}{fixed}, {drawn}"
    how = (
        f"{data['model']}{draft}, {data['dtype']}{fixed}, {drawn}, "
        f"{data['limit']} prompt{'s' * (data['limit'] > 1)} per family, up to {data['max_tokens']} tokens"
    )
    for name, specs in _grouped(list(methods)).items():
        rows, slower = [], []
        for spec in specs:
            per = methods[spec]
            rows.append([f"`{spec}`, tokens per forward", *(f"{per[f]['tokens_per_forward']:.2f}" for f in families)])
            rows.append([f"`{spec}`, speed over plain", *(f"{per[f]['speed_up']:.2f}×" for f in families)])
            rows.append([f"`{spec}`, same text", *(f"{per[f]['same_text']} of {per[f]['prompts']}" for f in families)])
            behind = [f"{_word(f)} ({per[f]['speed_up']:.2f}×)" for f in families if per[f]["speed_up"] < EVEN]
            if behind:
                slower.append(f"`{spec}` with {data['model']}{fixed} on {_short(data)}: {', '.join(behind)}")
        heads, where = ["", *map(_word, families)], f"{how}. {_machine(data)}"
        yield name, Table(titled, file, where, heads, rows, True, tuple(slower))


def _on_a_gpu(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/gpu.py: the same families, one text at a time."""
    methods = data.get("families", {}).get("methods", {}) if isinstance(data.get("families"), dict) else {}
    if not all("tokens_per_second" in cell for per in methods.values() for cell in _cells(per)):
        return
    for name, per in methods.items():
        families = list(per)
        over = {f: per[f]["tokens_per_second"] / methods["plain"][f]["tokens_per_second"] for f in families}
        rows = [
            ["tokens per forward", *(f"{per[f]['tokens_per_forward']:.2f}" for f in families)],
            ["tokens per second", *(f"{per[f]['tokens_per_second']:,.0f}" for f in families)],
            ["speed over plain", *(f"{over[f]:.2f}×" for f in families)],
        ]
        behind = ", ".join(f"{_word(f)} ({over[f]:.2f}×)" for f in families if over[f] < EVEN)
        slower = (f"`{name}` on {_short(data)}: {behind}",) if behind else ()
        where = f"SmolLM2-135M, one text at a time, prompts of Spec-Bench. {_machine(data)}"
        yield name, Table("Spec-Bench on a GPU", file, where, ["", *map(_word, families)], rows, True, slower)


def _filled(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/denoise.py: policies of filling holes on a real model. Its times hold set-up too, so they are left out."""
    sets = data.get("methods", {})
    if not sets or not all("nats" in cell for per in sets.values() for cell in _cells(per)):
        return
    heads = ["", *(f"{SETS.get(s, s)}: {what}" for s in sets for what in ("tokens per forward", "nats per token"))]
    where = (
        f"{data['model']}, {data['dtype']}, {data['limit']} prompts of chat, up to {data['max_tokens']} tokens; nats: "
        f"mean log-likelihood under {data['base']}. {_machine(data)}"
    )
    specs = list(dict.fromkeys(spec for per in sets.values() for spec in per))
    for name, own in _grouped(specs).items():
        shown = own if name == "plain" else [*own, "plain"]
        rows = [[f"`{spec}`", *(text for per in sets.values() for text in _filling(per.get(spec)))] for spec in shown]
        yield name, Table("Filling holes", file, where, heads, rows)


def _filling(cell: dict[str, Any] | None) -> tuple[str, str]:
    return ("–", "–") if cell is None else (f"{cell['tokens_per_forward']:.2f}", f"{cell['nats']:.3f}")


def _looked(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/canvas.py: what a look costs on a GPU."""
    methods = data.get("methods", {})
    if "look_ms" not in data:
        return
    where = f"{data['model']}, up to {data['max_tokens']} tokens. {_machine(data)}"
    for name, specs in _grouped([spec for spec in methods if spec != "eager"]).items():
        shown = specs if name == "plain" else [*specs, "plain"]
        rows = [
            [f"`{s}`", f"{methods[s]['tokens_per_forward']:.2f}", f"{methods[s]['tokens_per_second']:,.0f}"]
            for s in shown
        ]
        plain = methods["plain"]["tokens_per_second"]
        over = {s: methods[s]["tokens_per_second"] / plain for s in specs}
        behind = [f"`{s}` ({ratio:.2f}×)" for s, ratio in over.items() if ratio < EVEN]
        slower = (f"{data['model']} on {_short(data)}: {', '.join(behind)}",) if behind else ()
        heads = ["", "tokens per forward", "tokens per second"]
        yield name, Table("One canvas on a GPU", file, where, heads, rows, True, slower)


def _listed(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/parallel.py: list tasks whose best possible score is known."""
    cells = {(r["method"], r["model"], r["task"]): r for r in data.get("rows", ()) if "accuracy" in r}
    if not cells:
        return
    size = next(iter(cells.values()))["n"]
    where = f"Right answers at tokens per forward. {_machine(data)}"
    for name, specs in _grouped(list(dict.fromkeys(spec for spec, _, _ in cells))).items():
        columns = [
            (s, model) for s in specs for model in ("oracle", "pupil") if any(c[:2] == (s, model) for c in cells)
        ]
        tasks = [task for task in TASKS if any((*column, task) in cells for column in columns)]
        rows = [[f"`{task}`", *(_right(cells.get((*column, task))) for column in columns)] for task in tasks]
        heads = ["", *(f"`{s}`, {model}" for s, model in columns)]
        wrong = []
        for s in specs:
            exact = {task: cells[s, "oracle", task] for task in tasks if (s, "oracle", task) in cells}
            lost = [f"{task} ({_right(row)})" for task, row in exact.items() if row["accuracy"] < EVEN]
            wrong += [f"`{s}`, {size} items: {', '.join(lost)}"] if lost else []
        yield name, Table(f"List tasks, {size} items", file, where, heads, rows, wrong=tuple(wrong))


def _right(row: dict[str, Any] | None) -> str:
    return "–" if row is None else f"{row['accuracy']:.0%} at {row['tokens_per_forward']:.2f}"


def _drafted(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/drafts.py: what drafting takes on the host."""
    for name, lengths in data.get("per_round", {}).items():
        heads = ["tokens so far", *(f"{int(n):,}" for n in lengths)]
        rows = [["µs per round", *(f"{cell['mean_us']:.0f}" for cell in lengths.values())]]
        where = f"Mean of {data['rounds']} rounds, no model. {_machine(data)}"
        yield name.partition(" ")[0], Table(f"Host time of {name}", file, where, heads, rows)


def _cells(per: Any) -> list[dict[str, Any]]:
    """The figures of a method by family, where it has that form; else one that has nothing."""
    cells = list(per.values()) if isinstance(per, dict) else []
    return cells if cells and all(isinstance(cell, dict) for cell in cells) else [{}]


def _machine(data: dict[str, Any]) -> str:
    made = data["machine"]
    commit = f"commit {made['commit']}" if made.get("commit") else "commit not recorded"
    threads = f"{made['threads']} thread{'s' * (made['threads'] > 1)}"
    chip = f"{made['gpu']}, {made['cpu']}" if made.get("gpu") else made["cpu"]
    return f"{chip} ({made['cores']} cores, {threads}), torch {made['torch']}, {commit}"


def _short(data: dict[str, Any]) -> str:
    made = data["machine"]
    return str(made.get("gpu") or f"{made['cores']} cores of an {made['cpu']}")


def _word(family: str) -> str:
    return {"math_reasoning": "maths", "qa": "QA", "rag": "RAG", "summarization": "summaries"}.get(family, family)
