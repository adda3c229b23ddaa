"""Drafters × families of prompts: tokens per forward and speed-up over plain decoding, on the prompts of Spec-Bench.

    python bench/spec.py [--data FOLDER] [--limit 5] [--max-tokens 128] [--methods lookup merge auto] [--json FILE]
    python bench/spec.py --batch-invariant --methods merge suffix --no-peers     # texts must be plain decoding's
    python bench/spec.py --model qwen2.5-coder-1.5b.gguf --draft smollm2 --methods chain auto    # a second model

The prompts (question.jsonl of hemingkx/Spec-Bench) are not part of this repository; --data says where they are. Greedy
unless --temperature, one text at a time, the first turn of each question, from a cold cache; every method reads a
prompt before the next prompt comes, so that slow drifts of the machine hit all alike. Seconds are wall time with the
prompt in it, as in Spec-Bench. `transformers` is plain `generate` with the same weights, `prompt lookup` its own with
10 tokens, and `assisted` its assisted generation with the same draft model, across tokenizers where they differ.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from record import save

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool.core.claim import Method
from unspool.core.cost import Cost
from unspool.core.errors import BadRequest
from unspool.recipes.methods import method, runnable
from unspool_bench.contender import Contender
from unspool_bench.peers import peers as others
from unspool_bench.suites import questions as asked_of

DATA = Path(__file__).parents[2] / "shared" / "data" / "spec_bench"
PLAIN, THEIR_LOOKUP = "plain", "prompt lookup"
PEERS = ("transformers", THEIR_LOOKUP, "assisted")
SINGLE = (
    "lookup",
    "suffix",
    "suffixtree",
    "recycle",
    "bigram_recycling",
    "prefilled",
    "trigram",
    "stand",
    "lookahead",
)  # model-free


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


def theirs(other: Contender, settings: Settings) -> Writes:
    def write(prompt: tuple[int, ...]) -> tuple[list[int], int, float]:
        sample = other.write([prompt], settings)
        return list(sample.tokens[0]), sample.forwards, sample.seconds

    return write


def questions(folder: Path, skip: int, limit: int) -> dict[str, list[str]]:
    """`limit` questions of each family, the first `skip` left out."""
    return {family: list(texts[skip : skip + limit]) for family, texts in asked_of(folder).items()}


def chats(lm: LM, folder: Path, limit: int) -> list[tuple[int, ...]]:
    """The tokens of `limit` questions of each family, each as a user's first message."""
    asked = [text for texts in questions(folder, 0, limit).values() for text in texts]
    return [lm.encode([{"role": "user", "content": text}]) for text in asked]


def drafters(names: list[str] | None, drafted: bool) -> dict[str, Method]:
    """The methods with these names, or every drafter that runs with the models at hand and without a store."""
    if names:
        return {name: method(name) for name in names}
    found: dict[str, Method] = {}
    for entry in runnable():
        if entry.family == "draft" and (not entry.needs or (drafted and entry.needs == ("draft",))):
            try:
                found[entry.name] = method(entry.name)
            except BadRequest as error:
                print(f"without {entry.name}: {error}")
    return found


def peers(args: argparse.Namespace, lm: LM, settings: Settings) -> dict[str, Writes]:
    """What transformers offers, in the same run."""
    found = others(args.model, args.draft, args.dtype, args.device, lm, batches=False, quick=True)
    named = {other.name.removeprefix("transformers, "): other for other in found}
    return {name: theirs(other, settings) for name, other in named.items() if name in PEERS}


def show(title: str, table: dict[str, dict[str, dict[str, float]]], figure: str) -> None:
    families = list(next(iter(table.values())))
    width = max(map(len, table)) + 2
    print(f"\n{title}\n{'':{width}}" + "".join(f"{family:>16}" for family in families))
    for name, row in table.items():
        print(f"{name:{width}}" + "".join(f"{row[family][figure]:>16.2f}" for family in families))


def bars(table: dict[str, dict[str, dict[str, float]]], families: list[str]) -> list[str]:
    """What the table says about the joined source and about auto."""

    def mean(name: str) -> float:
        return sum(table[name][family]["tokens_per_forward"] for family in families) / len(families)

    said = [f"{name}: {mean(name):.3f} tokens per forward on the mean over families" for name in table]
    single = [name for name in table if name.split(":")[0] in SINGLE]
    for joined in (name for name in table if name.startswith("merge")):
        for other in [name for name in table if name.startswith("lookup")] + [THEIR_LOOKUP] * (THEIR_LOOKUP in table):
            said.append(f"{joined} / {other}: {mean(joined) / mean(other):.3f}")
        for family in families if single else []:
            best = max(single, key=lambda name: table[name][family]["tokens_per_forward"])
            here = table[joined][family]["tokens_per_forward"] / table[best][family]["tokens_per_forward"]
            said.append(f"{joined} / best single source on {family} ({best}): {here:.3f}")
    for auto in (name for name in table if name.startswith("auto")):
        worst = min(families, key=lambda family: table[auto][family]["speed_up"])
        said.append(f"{auto}: at worst {table[auto][worst]['speed_up']:.3f} times plain decoding's speed ({worst})")
    return said


def line(cost: Cost) -> str:
    """Tokens per round that rows must bring to pay."""
    return ", ".join(f"{cost.break_even(n):.2f} ({n})" for n in (2, 3, 4, 8, 16, 32))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="the folder that holds question.jsonl")
    parser.add_argument("--model", default="smollm2", help="a name of the catalogue, a .gguf file or a folder")
    parser.add_argument("--draft", help="a second model, for methods that ask one")
    parser.add_argument("--batch-invariant", action="store_true", help="texts equal to plain decoding's bit for bit")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--no-peers", action="store_true", help="without transformers")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first prompts of each family")
    parser.add_argument("--limit", type=int, default=5, help="prompts per family")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--methods", nargs="+", help="as for unspool; left out, every drafter that needs nothing else")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    asked = questions(args.data, args.skip, args.limit)
    warnings.simplefilter("ignore")

    how = {"dtype": args.dtype, "device": args.device}
    second = None if args.draft is None else load(args.draft, **how)
    lm = load(args.model, **how, batch_invariant=args.batch_invariant, draft=second)
    settings = Settings(max_tokens=args.max_tokens, temperature=args.temperature, seed=1)
    cost = lm.price()
    writers: dict[str, Writes] = {PLAIN: ours(lm, method(PLAIN), settings)}
    writers |= {name: ours(lm, chosen, settings) for name, chosen in drafters(args.methods, second is not None).items()}
    writers |= {} if args.no_peers else peers(args, lm, settings)

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
    summary = bars(table, list(asked))
    print("\n" + "\n".join(summary))
    print(f"break-even: a round over n rows must bring {line(cost)} tokens to pay here")
    if args.json:
        names = ("draft", "batch_invariant", "temperature", "skip", "limit", "max_tokens", "dtype", "device")
        asked_for = {name: getattr(args, name) for name in names}
        measured = dict(zip(map(str, cost.rows), (round(1e3 * t, 2) for t in cost.times), strict=True))
        result = {
            "model": args.model,
            **asked_for,
            "forward_ms_by_rows": measured,
            "methods": table,
            "summary": summary,
        }
        save(args.json, result)


if __name__ == "__main__":
    main()
