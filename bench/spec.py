"""Drafters × families of prompts: tokens per forward and speed-up over plain decoding, on the prompts of Spec-Bench.

    python bench/spec.py [--data FOLDER] [--limit 5] [--max-tokens 128] [--methods lookup recycle:nodes=8] [--json FILE]

The prompts (question.jsonl of hemingkx/Spec-Bench) are not part of this repository; --data says where they are. Greedy,
one text at a time, the first turn of each question, from a cold cache; every method reads a prompt before the next
prompt comes, so that slow drifts of the machine hit all alike. Seconds are wall time with the prompt in it, as in
Spec-Bench. `transformers` is plain `generate` with the same weights, and `prompt lookup` its own.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
import transformers
from record import save
from step import mirror

from unspool.claim import Method
from unspool.decode import Speculate
from unspool.draft import Merge, Recycle, Suffix
from unspool.errors import BadRequest
from unspool.lm import LM
from unspool.loader import device_of, dtype_of, load
from unspool.methods import method, runnable
from unspool.models.address import path
from unspool.models.weights import open_checkpoint
from unspool.run.cost import measure
from unspool.settings import Settings

DATA = Path(__file__).parents[2] / "shared" / "data" / "spec_bench"
FAMILIES = ("translation", "summarization", "qa", "math_reasoning", "rag")  # all others are MT-bench's
CHAT = "chat"
BY_COST = "merge, by cost"  # `merge` with as many nodes as pay by this machine's measured forwards
PLAIN, THEIRS, THEIR_LOOKUP = "plain", "transformers", "prompt lookup"
LOOKUP_TOKENS = 10  # what transformers' documentation suggests


@dataclass
class Cell:
    """One method on one family."""

    tokens: int = 0
    forwards: int = 0
    seconds: float = 0.0
    same: int = 0
    prompts: int = 0

    def add(self, tokens: list[int], forwards: int, seconds: float, plain: list[int]) -> None:
        self.tokens += len(tokens)
        self.forwards += forwards
        self.seconds += seconds
        self.same += tokens == plain
        self.prompts += 1

    def record(self, plain: Cell) -> dict[str, float]:
        return {
            "tokens": self.tokens,
            "forwards": self.forwards,
            "seconds": round(self.seconds, 3),
            "tokens_per_forward": round(self.tokens / self.forwards, 3),
            "speed_up": round(self.tokens / self.seconds / (plain.tokens / plain.seconds), 3),
            "same_text": self.same,
            "prompts": self.prompts,
        }


Writes = Callable[[tuple[int, ...]], tuple[list[int], int, float]]  # prompt -> tokens, forwards, seconds


def ours(lm: LM, chosen: Method, settings: Settings) -> Writes:
    def write(prompt: tuple[int, ...]) -> tuple[list[int], int, float]:
        lm.model.forget()
        output = lm.generate(prompt, settings, chosen)
        return list(output.tokens), output.trace.forwards["target"], output.trace.seconds_total

    return write


def theirs(model: transformers.PreTrainedModel, most: int, lookup: int | None = None) -> Writes:
    counted = 0

    def count(*_: object) -> None:
        nonlocal counted
        counted += 1

    def write(prompt: tuple[int, ...]) -> tuple[list[int], int, float]:
        nonlocal counted
        counted, text = 0, torch.tensor([prompt], device=model.device)
        hook = model.register_forward_hook(count)
        began = perf_counter()
        with torch.inference_mode():
            whole = model.generate(
                text,
                attention_mask=torch.ones_like(text),
                do_sample=False,
                max_new_tokens=most,
                prompt_lookup_num_tokens=lookup,
            )
        spent = perf_counter() - began
        hook.remove()
        return whole[0, len(prompt) :].tolist(), counted, spent

    return write


def questions(folder: Path, limit: int) -> dict[str, list[str]]:
    """The first `limit` questions of each family."""
    file = folder / "question.jsonl"
    if not file.is_file():
        raise SystemExit(
            f"{file} is not there. Get data/spec_bench/question.jsonl of github.com/hemingkx/Spec-Bench, and say where "
            "it is with --data FOLDER."
        )
    found: defaultdict[str, list[str]] = defaultdict(list)
    for line in file.read_text(encoding="utf-8").splitlines():
        question = json.loads(line)
        family = question["category"] if question["category"] in FAMILIES else CHAT
        if len(found[family]) < limit:
            found[family].append(question["turns"][0])
    return dict(found)


def drafters(names: list[str] | None) -> dict[str, Method]:
    """The methods with these names, or every drafter that runs without a second model and without a store."""
    if names:
        return {name: method(name) for name in names}
    found: dict[str, Method] = {}
    for entry in runnable():
        if entry.family == "draft" and not entry.needs:
            try:
                found[entry.name] = method(entry.name)
            except BadRequest as error:
                print(f"without {entry.name}: {error}")
    return found


def show(title: str, table: dict[str, dict[str, dict[str, float]]], figure: str) -> None:
    families = list(next(iter(table.values())))
    width = max(map(len, table)) + 2
    print(f"\n{title}\n{'':{width}}" + "".join(f"{family:>16}" for family in families))
    for name, row in table.items():
        print(f"{name:{width}}" + "".join(f"{row[family][figure]:>16.2f}" for family in families))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder that holds question.jsonl")
    parser.add_argument("--model", default="smollm2", help="a name of the catalogue, a .gguf file or a folder")
    parser.add_argument("--limit", type=int, default=5, help="prompts per family")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--methods", nargs="+", help="as for unspool; left out, every drafter that needs nothing else")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    asked = questions(args.data, args.limit)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()

    lm = load(args.model, dtype=args.dtype, device=args.device)
    settings = Settings(max_tokens=args.max_tokens)
    cost = measure(lm.model)
    writers: dict[str, Writes] = {PLAIN: ours(lm, method(PLAIN), settings)}
    writers |= {name: ours(lm, chosen, settings) for name, chosen in drafters(args.methods).items()}
    paying = Speculate(Merge(Suffix(), Recycle(), cost=cost), budget=16)
    writers[BY_COST] = ours(lm, paying, settings)
    device = device_of(args.device)
    model = mirror(open_checkpoint(path(args.model)), dtype_of(args.dtype, device)).to(device)
    model.generation_config.eos_token_id = sorted(lm.vocabulary.eos)
    model.generation_config.pad_token_id = min(lm.vocabulary.eos)
    writers[THEIRS] = theirs(model, args.max_tokens)
    writers[THEIR_LOOKUP] = theirs(model, args.max_tokens, LOOKUP_TOKENS)

    cells: dict[str, dict[str, Cell]] = {name: {family: Cell() for family in asked} for name in writers}
    for write in writers.values():
        write(lm.encode("Once upon a time"))  # the first forward pays for set-up
    for family, texts in asked.items():
        for number, text in enumerate(texts, 1):
            prompt = lm.encode([{"role": "user", "content": text}])
            plain: list[int] = []
            for name, write in writers.items():
                tokens, forwards, seconds = write(prompt)
                plain = tokens if name == PLAIN else plain
                cells[name][family].add(tokens, forwards, seconds, plain)
            print(f"{family} {number} of {len(texts)}: {len(prompt)} tokens read, {len(plain)} written", flush=True)

    table = {n: {f: cell.record(cells[PLAIN][f]) for f, cell in row.items()} for n, row in cells.items()}
    show("tokens per forward", table, "tokens_per_forward")
    show("speed-up over plain decoding", table, "speed_up")
    show("prompts with plain decoding's text", table, "same_text")
    if args.json:
        asked_for = {"limit": args.limit, "max_tokens": args.max_tokens, "dtype": args.dtype, "device": args.device}
        measured = dict(zip(map(str, cost.rows), (round(1e3 * t, 2) for t in cost.times), strict=True))
        save(args.json, {"model": args.model, **asked_for, "forward_ms_by_rows": measured, "methods": table})


if __name__ == "__main__":
    main()
