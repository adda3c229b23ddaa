"""Every rule on one small set of prompts: what it saves, what it drafts for that, and how far its text is from plain.

    python bench/rules.py [--rules lookup block …] [--limit 6] [--tokens 64] [--device cuda] [--json FILE]
    python bench/rules.py --no-times --json bench/results/rules-cpu.json     # where others use the machine too
    python bench/rules.py --no-times --specs 'chain + block' 'explore:candidates=4' --json FILE     # methods as written

The models are smollm2 and what is made of it: see MODELS in bench/setups.py, which says for every rule how it is run.
Prompts are those of `unspool bench`, one of each family, or with --data the first of each family of Spec-Bench. With
times, every prompt is answered alone, by plain decoding and by the rule in turn, from cold caches; `seconds` is the
ratio of their seconds per token. Without, all prompts are answered in one batch, which changes no other figure. Where
drafts are drawn, --texts of them are for each prompt, for what depends on luck: acceptance and likelihood.

A greedy text that differs from plain decoding's where the rule promises the same is looked at: a near tie, if the
ways to compute the logits differ by as much as the two tokens do, else unexplained. So is a drawn text of a SEED rule:
a near tie, if the same random numbers draw both tokens from the laws that these ways give. `nats` is the mean
log-likelihood per token under smollm2, at temperature 1. What was measured is kept: run the same command again after
an interrupt, an error or a new rule, and it goes on; `--again` measures the chosen rules anew. A row says how much text
it comes from, on which machine and at which commit; a rule that was measured on less than is asked now is measured
again, one that was on more stays, unless it was in a tree with changes and this one has none. Shares of the rules can
be measured side by side, each to a file of its own; `--join FILE …` takes the rows of such files.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from likeness import Text, likelihoods, likeness, verdicts, work
from record import rows, save, stale
from setups import FILLS, MODELS, READS, TEXTS, Setup, Stock, setups, written
from tqdm import tqdm

from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.api.writer import Output
from unspool.core.claim import Entry
from unspool.recipes.methods import claim_of, entries
from unspool_bench.journal import Journal
from unspool_bench.machine import machine
from unspool_bench.suites import Spec
from unspool_bench.unmask_policies import likelihood

SEED = 1
PARTS = ("rules", "specs")  # of a result
FAMILIES = 6  # of prompts
WARMING = 16  # tokens written before the clock runs, for what is set up when a shape comes for the first time


class Bench:
    """The models, the prompts, and plain decoding's answers, each kept once it was written."""

    def __init__(self, stock: Stock, prompts: Sequence[str], tokens: int, texts: int, timed: bool) -> None:
        self.stock, self.tokens, self.texts, self.timed = stock, tokens, texts, timed
        self.prompts = self._encoded(prompts)
        self._plain: dict[tuple[object, ...], list[Text]] = {}
        self._nats: dict[tuple[tuple[int, ...], tuple[int, ...]], float] = {}

    def measured(self, setup: Setup) -> dict[str, Any]:
        """The figures of one way to run a rule."""
        lm, prompts = self.stock[setup.models], self._encoded(setup.questions) or self.prompts
        settings, beside = self._settings(setup, lm)
        count = min(setup.texts, self.texts)
        method = setup.method if isinstance(setup.method, str) else setup.method(self.stock)
        found: dict[str, Any] = {"label": setup.label, "models": setup.models, "heat": setup.heat}
        ours, plain = None, None
        if self.timed:
            ours, plain, found["seconds"] = self._in_turn(lm, prompts, method, settings, beside)
        outputs = ours
        if outputs is None or count > 1:
            _forget(lm)
            outputs = lm.batch(prompts, replace(settings, n=count), method)
        texts = [self._text(prompts[i // count], output) for i, output in enumerate(outputs)]
        firsts = texts[::count] if ours is None else self._texts(prompts, ours)
        others, pool = self._beside(setup, lm, prompts, beside, plain)
        found |= {"against": beside.temperature} | work(outputs) | likeness(firsts, others) | likelihoods(texts, pool)
        if setup.questions:
            found["questions"] = setup.questions
        if setup.exact:
            found |= verdicts(lm, settings, firsts, others)
        if setup.asked is not None:
            met = [sum(map(setup.asked.measure, (t.said for t in of))) / len(of) for of in (texts, pool)]
            found |= {"asked": setup.asked.name, "met": round(met[0], 3), "plain_met": round(met[1], 3)}
        return found

    def _encoded(self, prompts: Sequence[str]) -> list[tuple[int, ...]]:
        return [self.stock[READS].encode([{"role": "user", "content": text}]) for text in prompts]

    def _settings(self, setup: Setup, lm: LM) -> tuple[Settings, Settings]:
        """What the rule is asked for, and what plain decoding beside it is."""
        words = lm.vocabulary
        base = Settings(max_tokens=self.tokens, temperature=setup.heat, seed=SEED)
        own = base if setup.form is None else replace(base, constraint=setup.form(words))
        beside = own if setup.beside is None else replace(base, constraint=setup.beside(words))
        return own, beside if setup.against is None else replace(beside, temperature=setup.against)

    def _in_turn(
        self, lm: LM, prompts: list[tuple[int, ...]], method: Any, settings: Settings, beside: Settings
    ) -> tuple[list[Output], list[Output], float]:
        """One prompt after the other, plain decoding before the rule; and the ratio of their seconds per token."""
        runs: tuple[list[Output], list[Output]] = ([], [])
        spent = [0.0, 0.0]
        ways = ((method, settings), ("plain", beside))
        for way, how in ways:
            lm.generate(prompts[0], replace(how, max_tokens=min(WARMING, self.tokens)), way)
        for prompt in prompts:
            for k in (1, 0):
                _forget(lm)
                began = perf_counter()
                runs[k].append(lm.generate(prompt, ways[k][1], ways[k][0]))
                spent[k] += perf_counter() - began
        each = [seconds / max(1, sum(len(o.tokens) for o in run)) for seconds, run in zip(spent, runs, strict=True)]
        return *runs, round(each[0] / each[1], 3)

    def _beside(
        self, setup: Setup, lm: LM, prompts: list[tuple[int, ...]], settings: Settings, outputs: list[Output] | None
    ) -> tuple[list[Text], list[Text]]:
        """Plain decoding's answers, and where texts are drawn others of its law too; kept for all that ask the same."""
        key = (setup.models == FILLS, settings.temperature, setup.beside or setup.form, setup.questions)
        count = self.texts if settings.temperature else 1
        if key not in self._plain:
            _forget(lm)
            drawn = lm.batch(prompts, replace(settings, n=count))
            self._plain[key] = [self._text(prompts[i // count], output) for i, output in enumerate(drawn)]
        pool = self._plain[key]
        return pool[::count] if outputs is None else self._texts(prompts, outputs), pool

    def _texts(self, prompts: list[tuple[int, ...]], outputs: list[Output]) -> list[Text]:
        return [self._text(prompt, output) for prompt, output in zip(prompts, outputs, strict=True)]

    def _text(self, prompt: tuple[int, ...], output: Output) -> Text:
        """The answer with its likelihood, which is computed once for the many that are the same."""
        key = (prompt, output.tokens)
        if key not in self._nats:
            self._nats[key] = likelihood(self.stock[READS], *key) if output.tokens else 0.0
        return Text(prompt, output.tokens, output.text, self._nats[key])


def _forget(lm: LM) -> None:
    for model in lm.models().values():
        model.forget()


def row(bench: Bench, entry: Entry | str, size: dict[str, Any]) -> dict[str, Any]:
    """All that is to be kept of one rule, or of a method as it is written; what fails is told and ends nothing else."""
    about: dict[str, Any] = {"machine": machine(), "size": size}
    ways: tuple[Setup, ...] | str
    if isinstance(entry, str):
        about["claim"], ways = claim_of(entry).name, written(entry)
    else:
        about |= {"family": entry.family, "claim": entry.claim.name}
        ways = setups(entry, bench.tokens, bench.timed)
    if isinstance(ways, str):
        return about | {"skipped": ways}
    runs: list[dict[str, Any]] = []
    for setup in ways:
        try:
            runs.append(bench.measured(setup))
        except Exception as error:  # the other rules are not to be lost with this one
            runs.append({"label": setup.label, "heat": setup.heat, "error": f"{type(error).__name__}: {error}"[:400]})
    return about | {"runs": runs}


def failed(known: dict[str, Any]) -> bool:
    """Whether some run of a rule ended in an error, so that it is worth another try."""
    return any("error" in run for run in known.get("runs", ()))


def smaller(known: dict[str, Any], size: dict[str, Any]) -> bool:
    """Whether a rule was measured on fewer prompts, tokens or texts than these."""
    had = known["size"]
    return any(had[name] < size[name] for name in ("prompts", "max_tokens", "texts"))


def poor(known: dict[str, Any], size: dict[str, Any]) -> bool:
    """Whether a rule that was measured is to be measured again."""
    return failed(known) or smaller(known, size) or stale(known)


def better(found: dict[str, Any], known: dict[str, Any]) -> bool:
    """Whether a row of another run is to stand in place of the one that is known."""
    return not failed(found) and not smaller(found, known["size"])


def opened(file: Path | None, asked: dict[str, Any]) -> Journal:
    """The journal beside a result, begun with what the result has; other settings are refused."""
    beside = None if file is None else file.with_suffix(".jsonl")
    fresh = beside is None or not beside.exists()
    had = rows(file, PARTS, asked) if fresh and file is not None and file.exists() else {}
    journal = Journal(beside, asked)
    for name, found in had.items():
        journal.add((name,), found)
    return journal


def told(name: str, found: dict[str, Any]) -> str:
    """A rule in a line per run."""
    if "skipped" in found:
        return f"{name}: {found['skipped']}"
    lines = []
    for run in found["runs"]:
        if "error" in run:
            lines.append(f"{name} ({run['label']}, {run['heat']:g}): {run['error']}")
            continue
        rate = "" if run["draft_acceptance_rate"] is None else f", {run['draft_acceptance_rate']:.0%} of drafts stood"
        odd = f", UNEXPLAINED {run['unexplained']}" if run.get("unexplained") else ""
        lines.append(
            f"{name} ({run['label']}, {run['heat']:g}): {run['tokens_per_forward']:.2f} tokens per forward{rate}, "
            f"{run['same']} of {run['compared']} the same, nats {run['nats']:.3f} (plain {run['plain_nats']:.3f}){odd}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", nargs="+", metavar="NAME", help="only these")
    parser.add_argument("--specs", nargs="+", metavar="METHOD", default=[], help="and these, as they are written")
    parser.add_argument("--again", action="store_true", help="measure them even if they were measured")
    parser.add_argument("--data", type=Path, help="a folder with question.jsonl of Spec-Bench, instead of our prompts")
    parser.add_argument("--limit", type=int, default=6, help="prompts, each of another family")
    parser.add_argument("--tokens", type=int, default=64, help="the most that an answer may have")
    parser.add_argument("--texts", type=int, default=TEXTS, help="the most that are drawn for each prompt")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--batch-invariant", action="store_true", help="promised texts must be the same")
    parser.add_argument("--no-times", action="store_true", help="leave times out, and answer all prompts in one batch")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no rule after so many")
    parser.add_argument("--join", nargs="+", type=Path, default=[], metavar="FILE", help="take what these hold first")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    every = Spec(args.data, -(-args.limit // FAMILIES), args.tokens).cases()
    count = max(1, min(args.limit, len(every)))
    cases = [every[i * len(every) // count] for i in range(count)]
    known = entries()
    unknown = [name for name in args.rules or () if name not in known]
    if unknown:
        parser.error(f"no rule is called {', '.join(unknown)}; there are: {', '.join(known)}")
    families = ", ".join(dict.fromkeys(case.family for case in cases))
    size = {"prompts": len(cases), "families": families, "max_tokens": args.tokens, "texts": args.texts}
    asked = {
        "models": MODELS,
        "source": Spec(args.data, 1, args.tokens).source,
        "device": args.device,
        "dtype": args.dtype,
        "times": None if args.no_times else machine()["gpu"] or machine()["cpu"],
        **({"shapes": "fixed"} if args.batch_invariant else {}),
    }
    journal, began = opened(args.json, asked), perf_counter()
    for name, found in (each for file in args.join for each in rows(file, PARTS, asked).items()):
        if (name,) not in journal or better(found, journal[name,]):
            journal.add((name,), found)
    chosen = args.rules if args.rules or args.specs or args.join else known
    wanted: dict[str, Entry | str] = {name: known[name] for name in chosen or ()} | {spec: spec for spec in args.specs}
    had = {name: found for (name,), found in journal.items()}
    due = [name for name in wanted if args.again or name not in had or poor(had[name], size)]
    stock = Stock(args.device, args.dtype, args.batch_invariant)
    bench = Bench(stock, [c.prompts[0] for c in cases], args.tokens, args.texts, not args.no_times)
    with tqdm(due, unit="rule", disable=not sys.stderr.isatty()) as bar:
        for name in bar:
            if perf_counter() - began > args.seconds:
                bar.write(f"{args.seconds:g} seconds are over: run the same command again for the rest")
                break
            bar.set_description(name)
            found = row(bench, wanted[name], size)
            journal.add((name,), found)
            tqdm.write(told(name, found), file=sys.stdout)
            sys.stdout.flush()
    if args.json:
        kept = {name: found for (name,), found in journal.items()}
        rules = {name: kept[name] for name in known if name in kept}
        specs = {name: kept[name] for name in sorted(kept.keys() - known.keys()) if "family" not in kept[name]}
        save(str(args.json), asked | {"rules": rules, "specs": specs})
        args.json.with_suffix(".jsonl").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
