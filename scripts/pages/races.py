"""Readers of what was raced against plain decoding on the families of Spec-Bench, and of what drafting takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from table import EVEN, Table, cells, grouped, machine, short, word


def raced(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/spec.py: families of Spec-Bench, each method against plain decoding in the same run."""
    methods = data.get("methods", {})
    if not all("speed_up" in cell for per in methods.values() for cell in cells(per)) or "plain" not in methods:
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
    for name, specs in grouped(list(methods)).items():
        rows, slower = [], []
        for spec in specs:
            per = methods[spec]
            rows.append([f"`{spec}`, tokens per forward", *(f"{per[f]['tokens_per_forward']:.2f}" for f in families)])
            rows.append([f"`{spec}`, speed over plain", *(f"{per[f]['speed_up']:.2f}×" for f in families)])
            rows.append([f"`{spec}`, same text", *(f"{per[f]['same_text']} of {per[f]['prompts']}" for f in families)])
            behind = [f"{word(f)} ({per[f]['speed_up']:.2f}×)" for f in families if per[f]["speed_up"] < EVEN]
            if behind:
                slower.append(f"`{spec}` with {data['model']}{fixed} on {short(data)}: {', '.join(behind)}")
        heads, where = ["", *map(word, families)], f"{how}. {machine(data)}"
        yield name, Table(titled, file, where, heads, rows, True, tuple(slower))


def on_a_gpu(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/gpu.py: the same families, one text at a time."""
    methods = data.get("families", {}).get("methods", {}) if isinstance(data.get("families"), dict) else {}
    if not all("tokens_per_second" in cell for per in methods.values() for cell in cells(per)):
        return
    for name, per in methods.items():
        families = list(per)
        over = {f: per[f]["tokens_per_second"] / methods["plain"][f]["tokens_per_second"] for f in families}
        rows = [
            ["tokens per forward", *(f"{per[f]['tokens_per_forward']:.2f}" for f in families)],
            ["tokens per second", *(f"{per[f]['tokens_per_second']:,.0f}" for f in families)],
            ["speed over plain", *(f"{over[f]:.2f}×" for f in families)],
        ]
        behind = ", ".join(f"{word(f)} ({over[f]:.2f}×)" for f in families if over[f] < EVEN)
        slower = (f"`{name}` on {short(data)}: {behind}",) if behind else ()
        where = f"SmolLM2-135M, one text at a time, prompts of Spec-Bench. {machine(data)}"
        yield name, Table("Spec-Bench on a GPU", file, where, ["", *map(word, families)], rows, True, slower)


def drafted(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/drafts.py: what drafting takes on the host."""
    for name, lengths in data.get("per_round", {}).items():
        heads = ["tokens so far", *(f"{int(n):,}" for n in lengths)]
        rows = [["µs per round", *(f"{cell['mean_us']:.0f}" for cell in lengths.values())]]
        where = f"Mean of {data['rounds']} rounds, no model. {machine(data)}"
        yield name.partition(" ")[0], Table(f"Host time of {name}", file, where, heads, rows)
