"""Readers of what was measured of texts that must have a form, and of texts that must be the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from table import Table, grouped, machine


def constrained(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/constrained.py: what drafts save under constraints."""
    methods = data.get("summary", {}).get("methods", {}) if isinstance(data.get("summary"), dict) else {}
    heads = ["", "forwards over plain decoding's", "95 %", "texts"]
    for name, specs in grouped([spec for spec in methods if not spec.endswith(" alone")]).items():
        rows = []
        for spec in specs:
            ratio, texts = methods[spec]["forwards_over_plain"], methods[spec]["texts"]
            said = ", ".join(f"{count} {verdict}" for verdict, count in texts.items())
            rows.append([f"`{spec}`", f"{ratio['ratio']:.2f}", f"{ratio['low']:.2f}–{ratio['high']:.2f}", said])
        where = (
            f"{data['model']}, {data['limit']} texts under schemas, expressions, grammars, choices and keywords, half "
            f"of them drawn, up to {data['most']} tokens; texts: against plain decoding's. {machine(data)}"
        )
        yield name, Table("Texts that must have a form", file, where, heads, rows)


def stepped(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/static.py: what a step under a set of items costs."""
    results = data.get("results", [])
    if not results or not all("step_us" in result for result in results):
        return
    ways = ("static", "graph", "trie", "tuned")
    heads = ["items", "vocabulary", "memory", "static", "captured as a graph", "trie on the host", "tuned trie"]
    rows = [
        [
            f"{result['items']:,}",
            f"{result['vocab']:,}",
            f"{result['mb']:,.1f} MB",
            *(f"{us:,.0f} µs" if (us := result["step_us"].get(way)) else "–" for way in ways),
        ]
        for result in results
    ]
    where = f"A step of {results[0]['rows']} rows, on the mean over depths. {machine(data)}"
    yield "static", Table("A step under a set of items", file, where, heads, rows)


def aligned(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/aligned.py: how the law of the next text comes to be the right one."""
    if "kl" not in data:
        return
    counts = list(next(iter(data["kl"].values())))
    heads = ["texts so far", *counts]
    rows = [[f"`{kind}`", *(f"{abs(nats):.3f}" for nats in per.values())] for kind, per in data["kl"].items()]
    where = (
        f"KL of the next text's law to p(text | allowed) in nats, enumerated; texts of {data['depth']} tokens out of "
        f"two, mean of {data['seeds']} models that are tables; 0 texts is local masking. {machine(data)}"
    )
    yield "asap", Table("On a toy: from local masking to the truth", file, where, heads, rows)


def validated(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/canvas_json.py: JSON schemas on a canvas."""
    found = re.search(r"canvas_json\.py .*--method (\S+)", data.get("command", ""))
    if not found or "outcomes" not in data:
        return
    count = sum(data["outcomes"].values())
    left = ", ".join(f"{number} {why}" for why, number in Counter(data["left_out"]).items())
    rows = [
        ["texts that validate", f"{data['outcomes'].get('valid', 0)} of {count}"],
        ["looks per text", f"{data['looks'] / count:.1f}"],
        ["host per look, median", f"{data['host_ms_per_look']['median']:.0f} ms"],
    ]
    where = f"smollm2-diffusion, schemas of JSONSchemaBench; left out: {left}. {machine(data)}"
    yield found[1].partition(":")[0], Table("JSON schemas on a canvas", file, where, ["", f"`{found[1]}`"], rows)


def identical(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/identical.py: texts under fixed shapes, bit for bit plain decoding's."""
    same = data.get("same_text", {})
    for name, specs in grouped(list(same)).items():
        rows = []
        for spec in specs:
            method, _, heat = spec.partition(" at ")
            drawn = "greedy" if float(heat) == 0 else f"temperature {float(heat):g}"
            rows.append([f"`{method}`, {drawn}", f"{same[spec]} of {data['prompts']}"])
        where = f"{data['model']}, {data['dtype']}, up to {data['max_tokens']} tokens. {machine(data)}"
        yield name, Table("Fixed shapes: the same text", file, where, ["", "same text as plain decoding"], rows)
