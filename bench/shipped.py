"""What the drafter that comes with a model brings on a GPU: by family, temperature and number of texts, beside plain.

    python bench/shipped.py [--draft eagle3] [--nodes 7 15] [--limit 2] [--tokens 96] [--data FOLDER] [--json FILE]

Every way writes all prompts twice, `auto` four times, and the last time counts: whole texts, their prompts included.
`always N` drafts in every round, a tree of N nodes with the drafter in the graph; `auto` is what people get, which
decides by the clock. Eight texts at a time are prompts of all families. MT-bench is Spec-Bench's family `chat`, twelve
prompts of its eight sorts, with trees of 60 nodes: in the graph, where copies and remembered laws are among them, and
three of them by `likeliest` from the host, where the drafter is alone. `profile` are milliseconds of steps between CUDA
events, and the tokens per forward that each would have to bring to be --bar times as fast as plain steps by itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from leap import Fixed, Told, speculation, step_times, written
from record import save
from spec import DATA, questions

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.runtime.cuda.speculation_gate import SpeculationGate, Way

Text = tuple[int, ...]
Families = dict[str, list[Text]]
HEATS = (0.0, 1.0)
TREE, DEEP, HOST = 60, 5, "likeliest:width=8,depth=6,nodes=60"


def figures(told: Told, plain: Told) -> dict[str, Any]:
    """What a way brought, over what plain decoding did."""
    same = sum(a == b for a, b in zip(told.texts, plain.texts, strict=True))
    found = {"tokens_per_forward": told.per_forward, "speed": told.per_second / plain.per_second}
    return {**{name: round(x, 3) for name, x in found.items()}, "same": same, "of": len(told.texts)}


class Shipped:
    """A model with its drafter in its graphs."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.lm: LM = load(args.model, dtype="bf16", device="cuda", draft=args.draft)
        self.drafting = speculation(self.lm)
        if self.drafting.drafter is None:
            raise SystemExit("this drafter cannot draft in a graph")
        self.own = self.drafting.gate, self.drafting.few, self.drafting.depth

    def way(self, name: str, texts: list[Text], heat: float, rows: int) -> Told:
        """Texts by `plain`, by `auto`, or by trees of so many nodes in every round."""
        self.drafting.gate, self.drafting.few, self.drafting.depth = self.own
        method = name
        if name.startswith("always"):
            count = int(name.split()[1])
            self.drafting.gate, self.drafting.few = Fixed(Way.CHAIN), count + 1
            if count >= TREE:
                self.drafting.depth = DEEP
            method = f"on_device:nodes={count}"
        return written(self.lm, texts, method, self.args.tokens, heat, rows)

    def alone(self, families: Families, heat: float) -> dict[str, Any]:
        """One text at a time: every way on every family, and the mean of these."""
        names, found = ("plain", *(f"always {n}" for n in self.args.nodes), "auto"), dict[str, Any]()
        self.own = SpeculationGate(), *self.own[1:]  # which has seen no other temperature
        for name in names:
            for _ in range(2 if name == "auto" else 1):  # it may try at last what it has no graph for yet
                told = {family: self.way(name, texts, heat, 1) for family, texts in families.items()}
            if name == "plain":
                plain, milliseconds = told, mean(1000 / each.per_second for each in told.values())
                found[name] = {"ms_per_token": round(milliseconds, 3)}
                continue
            cells = {family: figures(each, plain[family]) for family, each in told.items()}
            both = ("tokens_per_forward", "speed")
            means = {key: round(mean(cell[key] for cell in cells.values()), 3) for key in both}
            found[name] = {**means, "families": cells}
            self.say(f"T {heat:g}, alone, {name}", {**means, "least": min(cell["speed"] for cell in cells.values())})
        return found

    def crowd(self, texts: list[Text], heat: float) -> dict[str, Any]:
        """Eight at a time."""
        plain, found = self.way("plain", texts, heat, 8), dict[str, Any]()
        for name in (f"always {self.args.nodes[0]}", "auto"):
            for _ in range(2 if name == "auto" else 1):
                told = self.way(name, texts, heat, 8)
            found[name] = figures(told, plain)
            self.say(f"T {heat:g}, eight, {name}", found[name])
        return found

    def mt_bench(self, texts: list[Text]) -> dict[str, Any]:
        """Trees of sixty nodes, in the graph and from the host."""
        found: dict[str, Any] = {}
        for name, some in ((f"always {TREE}", texts), (HOST, texts[:3])):
            plain = self.way("plain", some, 0.0, 1)
            found[name] = figures(self.way(name, some, 0.0, 1), plain)
            self.say(f"MT-bench, {name}", found[name])
        return found

    def profile(self) -> dict[str, Any]:
        """Steps by the graph's own clock, and what each would have to bring."""
        times = step_times(self.lm)
        plain = times.get("write 1x1 depth 0", 0.0)
        rows = {name: {"ms": round(t, 3)} for name, t in times.items()}
        for name, row in rows.items():
            if plain and name.startswith("speculate 1x"):
                row["tokens_needed"] = round(self.args.bar * row["ms"] / plain, 2)
            print(name, row, flush=True)
        return rows

    @staticmethod
    def say(name: str, told: dict[str, Any]) -> None:
        print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in told.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--draft", default="eagle3", help="one that comes with the model, or a folder")
    parser.add_argument("--nodes", nargs="+", type=int, default=[7, 15])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder that holds question.jsonl")
    parser.add_argument("--limit", type=int, default=2, help="prompts per family")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--bar", type=float, default=2.8)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    bench = Shipped(args)
    families = {
        family: [bench.lm.encode([{"role": "user", "content": text}]) for text in texts]
        for family, texts in questions(args.data, 0, 80).items()
    }
    first = {family: texts[: args.limit] for family, texts in families.items()}
    mixed = [texts[i] for i in range(4) for texts in families.values()]
    found: dict[str, Any] = {}
    parts: list[tuple[str, Callable[[], dict[str, Any]]]] = []
    parts += [("MT-bench", partial(bench.mt_bench, families["chat"][:: len(families["chat"]) // 12]))]
    parts += [(f"T {heat:g}", partial(bench.alone, first, heat)) for heat in HEATS]
    parts += [(f"T {heat:g}, eight at a time", partial(bench.crowd, mixed, heat)) for heat in HEATS]
    parts += [("profile", bench.profile)]
    for name, part in parts:
        found[name] = part()
        if args.json:
            save(args.json, {**{n: getattr(args, n) for n in ("model", "draft", "limit", "tokens", "bar")}, **found})


if __name__ == "__main__":
    main()
