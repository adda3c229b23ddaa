"""Trained drafters × families of prompts: what each system costs to train, accepts, and brings, in one table.

    python bench/drafters.py --asked FILE --like FILE [--speak 12] [--seconds 3] [--device cuda --dtype bf16]
    python bench/drafters.py --corpus FOLDER --seconds 2 --within 100 --no-graph     # all kinds, quickly
    python bench/drafters.py --drafters FOLDER [FOLDER …] [--data FOLDER] [--limit 2] [--json FILE]

With --corpus or --asked (taught.py) every kind that `unspool train drafter` knows is trained for --seconds, all on the
same hidden states, which the target computes once: so short a training compares kinds and no more. Each kind that was
trained, and each folder given with --drafters, then writes texts: Spec-Bench's prompts (question.jsonl, --data), the
first turn of each question, one text at a time, by drafts from the host. Every method has written the prompts of one
family before, plain decoding all of them. What there is is written down after every kind, and with --within no kind is
begun after so many seconds; --keep goes on with a file: kinds that have their figures there are not trained again.

`draft ms` is per round, `verify ms` per forward of the target. Rates by depth are those of held-out texts, given that
all before was right: `best` decides at temperature 0, `overlap` at 1. `expected` are the tokens per forward of greedy
chains along the very texts that plain decoding writes behind these prompts, by the trainer's own forward: what is
written should come near it, on whatever device. On a GPU, drafters that can draft in the graph are measured there too
(`on_device:nodes=15`, levels by --levels): the columns `graph`. With --json, a Markdown table is written beside it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from leap import Fixed, speculation
from record import save
from spec import DATA, questions
from taught import Made, Texts, read_by_kinds, trained

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool.core.errors import UnspoolError
from unspool.core.trace import Trace
from unspool.models.drafters.opening import is_drafter, open_drafter
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cuda.fused import Fused
from unspool.runtime.cuda.graph_drafter import undraftable
from unspool.runtime.cuda.speculation_gate import Way
from unspool.runtime.drafter.drafter_model import TrainedDrafter, network_of
from unspool.runtime.engine.contracts import LAST, Session
from unspool.runtime.network.llama import Llama
from unspool_train.drafter.kinds import KINDS

PLAIN = "plain"
CHANGED = {"cllm": "jacobi", "ppd": "masks", "hidden-transfer": "masks", "space": "masks"}  # what asks the model itself
METHODS = {0.0: "chain:depth=4", 1.0: "chain:depth=4"}  # a chain of fixed length compares drafters, not trees
ROOM = 32_768  # tokens of the target's cache
HEADS = "system|parameters|trained s|best by depth|overlap by depth|expected|tokens/forward T 0|T 1|draft ms|verify ms"
HEADS += "|speed T 0|T 1|same text|graph T 0|speed|graph T 1|speed"
COLUMNS = HEADS.split("|")
GRAPH = "on_device:nodes=15"
Written = tuple[Texts, Trace, float]
Plainly = Mapping[float, dict[str, Written]]


class Some:
    """The states that a drafter reads, out of all that the target notes for any of them."""

    def __init__(self, model: CachedModel, noted: Sequence[int], wanted: Sequence[int]) -> None:
        self.model, self.noted, self.wanted = model, list(noted), list(wanted)

    def states(self, session: Session | None, number: int, text: Sequence[int], first: int) -> torch.Tensor | None:
        whole = self.model.states(session, number, text, first)
        if whole is None:
            return None
        parts = dict(zip(self.noted, whole.chunk(len(self.noted), -1), strict=True))
        return torch.cat([parts[n] for n in self.wanted], -1)


def written(lm: LM, prompts: Texts, method: str, settings: Settings) -> Written:
    """The texts of a method, all their traces together, and the seconds that they took."""
    texts, traces, began = Texts(), list[Trace](), time.perf_counter()
    for prompt in prompts:
        lm.model.forget()
        output = lm.generate(prompt, settings, method)
        texts.append(tuple(output.tokens))
        traces.append(output.trace)
    return texts, sum(traces[1:], traces[0]), time.perf_counter() - began


def figures(lm: LM, prompts: Texts, method: str, settings: Settings, plain: Written) -> dict[str, Any]:
    """One method on some prompts, beside plain decoding."""
    before, told, plain_wall = plain
    texts, trace, wall = written(lm, prompts, method, settings)
    forwards = max(trace.forwards["target"], 1)
    return {
        "acceptance": [round(rate, 4) for rate in trace.per_position_acceptance_rate],
        "tokens_per_forward": round(trace.tokens_per_forward, 3),
        "draft_ms": round(1e3 * trace.seconds_draft / max(trace.rounds, 1), 3),
        "verify_ms": round(1e3 * trace.seconds_forward / forwards, 3),
        "plain_ms": round(1e3 * plain_wall / max(told.tokens, 1), 3),
        "speed_up": round((trace.tokens / wall) / (told.tokens / plain_wall), 3),
        "same_text": sum(a == b for a, b in zip(texts, before, strict=True)),
        "prompts": len(texts),
    }


def averaged(families: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The mean over families, where each counts alike."""
    rows = list(families.values())
    found = {
        name: round(mean(row[name] for row in rows), 3)
        for name in ("tokens_per_forward", "draft_ms", "verify_ms", "plain_ms", "speed_up")
    }
    deepest = max(len(row["acceptance"]) for row in rows)
    rates = [mean((row["acceptance"] + [0.0] * deepest)[depth] for row in rows) for depth in range(deepest)]
    told = {"same_text": sum(row["same_text"] for row in rows), "prompts": sum(row["prompts"] for row in rows)}
    return {"acceptance": [round(rate, 3) for rate in rates], **found, **told}


class Bench:
    """A target that notes all states that any drafter reads, its prompts, and what plain decoding makes of them."""

    def __init__(self, folders: Sequence[Path], args: argparse.Namespace) -> None:
        self.args, self.lm = args, self.loaded(args.model, args)
        model = self.lm.model
        assert isinstance(model, CachedModel)
        assert isinstance(model.network, Llama)
        self.model, self.network, last = model, model.network, model.network.layers
        files = [open_drafter(at, self.network.shape) for at in folders if at.is_dir() and is_drafter(at)]
        trained = (*read_by_kinds(self.network.shape), last) if args.corpus or args.asked else ()
        self.noted = sorted({n for file in files for n in file.spec.states} | {*trained}) or [last]
        numbers = [LAST if n == last else n for n in self.noted]
        self.network.slots.keep_states(numbers, self.network.ends.embedding)  # before any graph is captured
        asked = questions(args.data, args.skip, args.limit)
        self.prompts: dict[str, Texts] = {
            family: [tuple(self.lm.encode([{"role": "user", "content": text}])) for text in texts]
            for family, texts in asked.items()
        }
        self.plain = {heat: self.plainly(self.lm, heat) for heat in METHODS}

    @staticmethod
    def loaded(name: str | Path, args: argparse.Namespace, draft: bool = False) -> LM:
        fixed = args.batch_invariant and not draft
        return load(name, device=args.device, dtype=args.dtype, batch_invariant=fixed, kv_cache_tokens=ROOM)

    def settings(self, heat: float) -> Settings:
        return Settings(max_tokens=self.args.max_tokens, temperature=heat, seed=1)

    def plainly(self, lm: LM, heat: float) -> dict[str, Written]:
        for texts in self.prompts.values():  # which captures what is missing
            written(lm, texts, PLAIN, self.settings(heat))
        return {family: written(lm, texts, PLAIN, self.settings(heat)) for family, texts in self.prompts.items()}

    def greedy(self) -> dict[str, tuple[Texts, Texts]]:
        """The prompts of every family, and what plain decoding writes behind them greedily."""
        return {family: (prompts, self.plain[0.0][family][0]) for family, prompts in self.prompts.items()}

    def drafted(self, name: str, source: Path) -> tuple[LM, dict[float, str]]:
        """The model with a drafter, and what it is measured with by temperature."""
        if source.suffix == ".safetensors":  # a change of the model itself
            return self.loaded(source, self.args), {0.0: CHANGED[name]}
        if not is_drafter(source):
            return replace(self.lm, draft=self.loaded(source, self.args, draft=True)), METHODS
        network = network_of(open_drafter(source, self.network.shape), self.network.ends, ROOM + 1024)
        states = Some(self.model, self.noted, network.spec.states)
        return replace(self.lm, drafter=TrainedDrafter(network, states)), METHODS

    def graphed(self, source: Path) -> LM | None:
        """The model with a drafter in its graphs, which always drafts; None where it cannot be there."""
        beside = source.suffix == ".safetensors" or not is_drafter(source) or not isinstance(self.network, Fused)
        if beside or self.args.no_graph:
            return None
        network = network_of(open_drafter(source, self.network.shape), self.network.ends, 1)
        if undraftable(network, self.network) is not None:
            return None
        own = {"device": self.args.device, "dtype": self.args.dtype, "batch_invariant": self.args.batch_invariant}
        lm = load(self.args.model, kv_cache_tokens=ROOM, draft=source, **own)
        drafting = speculation(lm)
        drafting.gate, drafting.depth = Fixed(Way.CHAIN), self.args.levels
        return lm

    def measure(self, name: str, source: Path) -> dict[str, Any]:
        """What a drafter brings at every temperature, and by family."""
        lm, methods = self.drafted(name, source)
        found = self.told(lm, methods)
        if (graphed := self.graphed(source)) is not None:
            found["graph"] = self.told(graphed, dict.fromkeys(METHODS, GRAPH), self.plain)
        return found

    def told(self, lm: LM, methods: Mapping[float, str], plain: Plainly | None = None) -> dict[str, Any]:
        """The figures of a model by temperature, over what plain decoding was, or is with this very model."""
        found: dict[str, Any] = {}
        for heat, method in methods.items():
            own = (plain or self.plain)[heat] if plain or lm.model is self.model else self.plainly(lm, heat)
            written(lm, next(iter(self.prompts.values())), method, self.settings(heat))
            cells = {f: figures(lm, p, method, self.settings(heat), own[f]) for f, p in self.prompts.items()}
            found[str(heat)] = {"method": method, **averaged(cells), "families": cells}
        return found


def line_of(one: dict[str, Any]) -> str:
    """The row of a system."""
    if "failed" in one:
        return f"| {one['system']} | failed: {one['failed']} |" + " |" * (len(COLUMNS) - 2)
    held, cold, warm = one.get("held_out", {}), one.get("0.0"), one.get("1.0")
    rates = (
        " ".join(f"{x:.2f}" for x in held.get(sort, {}).get(key, []))
        for sort, key in (("greedy", "best"), ("drawn", "overlap"))
    )
    hot = (f"{warm['tokens_per_forward']:.2f}", f"{warm['speed_up']:.2f}") if warm else ("", "")
    told = [family["length"] for family in one.get("these_texts", {}).values()]
    cells = (one["system"], f"{one['parameters']:,}", str(one.get("seconds", "")), *rates)
    cells += (f"{mean(told):.2f}" if told else "",)
    if cold is None:  # not measured yet
        return f"| {' | '.join(cells)} |" + " |" * (len(COLUMNS) - len(cells))
    cells += (f"{cold['tokens_per_forward']:.2f}", hot[0], f"{cold['draft_ms']:.2f}", f"{cold['verify_ms']:.2f}")
    cells += (f"{cold['speed_up']:.2f}", hot[1], f"{cold['same_text']}/{cold['prompts']}")
    for heat in map(str, METHODS):
        graph = one.get("graph", {}).get(heat)
        cells += (f"{graph['tokens_per_forward']:.2f}", f"{graph['speed_up']:.2f}") if graph else ("", "")
    return f"| {' | '.join(cells)} |"


def stored(args: argparse.Namespace) -> dict[str, Any]:
    """The rows of the file that is gone on with."""
    file = Path(args.json) if args.json and args.keep else None
    return json.loads(file.read_text("utf-8"))["drafters"] if file and file.exists() else {}


def measure(args: argparse.Namespace, folder: Path) -> None:
    """Write texts with every drafter as it comes, and the table."""
    result, bench = stored(args), Bench(args.drafters, args)
    print(f"plain decoding was measured by {time.monotonic() - args.began:.1f} s", flush=True)
    known = [name for name, one in result.items() if "0.0" in one]
    made: Iterable[Made] = ((given.name, given, {}) for given in args.drafters)
    if args.corpus or args.asked:
        made = chain(made, trained(args, folder, bench.greedy, known))
    for name, source, told in made:
        one = {"system": KINDS[name].title if name in KINDS else name, "parameters": 0, **told}
        result[name] = one
        try:
            one |= bench.measure(name, source)
        except (UnspoolError, RuntimeError, AssertionError, TypeError, ValueError) as error:
            one["failed"] = f"{type(error).__name__}: {str(error)[:200]}"
        print(line_of(one), flush=True)
        write_down(result, args)
    print("\n".join(table_of(result)))


def table_of(result: dict[str, Any]) -> list[str]:
    """All rows."""
    return [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS), *map(line_of, result.values())]


def write_down(result: dict[str, Any], args: argparse.Namespace) -> None:
    """Store what there is, as data and as a table."""
    if args.json:
        names = ("model", "batch_invariant", "skip", "limit", "max_tokens", "dtype", "device", "tokens", "batches")
        save(args.json, {**{n: getattr(args, n) for n in names}, "drafters": result})
        Path(args.json).with_suffix(".md").write_text("\n".join(table_of(result)) + "\n", encoding="utf-8")


def pairs(given: Sequence[str]) -> dict[str, float]:
    """NAME=NUMBER, by name."""
    return {name: float(number) for name, number in (each.rsplit("=", 1) for each in given)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drafters", nargs="+", type=Path, default=[], help="folders of drafters that are there")
    parser.add_argument("--corpus", help="documents in the model's own words; every kind is trained on them")
    parser.add_argument("--asked", help="questions that the model answers first, to learn from its answers (speak)")
    parser.add_argument("--like", default="", help="documents whose conversations show how one opens")
    parser.add_argument("--speak", type=float, default=12.0, help="seconds in which it answers")
    parser.add_argument("--question", type=int, default=600, help="tokens of a question that is answered at most")
    parser.add_argument("--kinds", nargs="+", help="those that are trained; else all")
    parser.add_argument("--seconds", type=float, default=12.0, help="of training, each")
    parser.add_argument("--long", nargs="+", default=[], metavar="KIND=SECONDS", help="kinds that are trained longer")
    parser.add_argument("--deep", nargs="+", default=[], metavar="KIND=DEPTH", help="kinds that guess further")
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--levels", type=int, default=3, help="of the tree that a drafter in the graph reads")
    parser.add_argument("--vocabulary", type=int, default=16_384)
    parser.add_argument("--tokens", type=int, default=16_384, help="of a step, padding included")
    parser.add_argument("--batches", type=int, default=160, help="that the target reads")
    parser.add_argument("--exam", type=int, default=48, help="held-out documents of each sort")
    parser.add_argument("--out", type=Path, help="keep what was trained here")
    parser.add_argument("--within", type=float, default=0.0, metavar="SECONDS", help="begin no kind after so long")
    parser.add_argument("--no-graph", action="store_true", help="draft from the host alone")
    parser.add_argument("--no-compile", action="store_true", help="losses as they are: a compiler takes its time")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder that holds question.jsonl")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--batch-invariant", action="store_true", help="texts equal to plain decoding's bit for bit")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first prompts of each family")
    parser.add_argument("--limit", type=int, default=1, help="prompts per family")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--keep", action="store_true", help="go on with the file: what it has is not made again")
    args = parser.parse_args()
    args.began, args.long = time.monotonic(), pairs(args.long)
    args.deep = {name: int(depth) for name, depth in pairs(args.deep).items()}
    with tempfile.TemporaryDirectory() as temporary:
        measure(args, args.out or Path(temporary))


if __name__ == "__main__":
    main()
