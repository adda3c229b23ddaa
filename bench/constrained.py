"""Texts that must have a form, by the default model: are all valid, what do drafts save, and what does a mask cost?

    python bench/constrained.py [--data FOLDER] [--limit 100] [--most 96] [--batch 8] [--json FILE]
    python bench/constrained.py --batch-invariant …     # drafted texts must be plain decoding's, bit for bit
    python bench/constrained.py --choose FILE        # only choose the forms, for a machine without zstd and the data
    python bench/constrained.py --forms FILE --device cuda --json OUT …
    python bench/constrained.py --validate OUT       # validate what another machine has written

--data holds JSONSchemaBench's *.jsonl.zst. Of its schemas, in an order that has nothing to do with what is in them,
those are taken that can be enforced, are short enough to read and have a text that fits; beside them regular
expressions, grammars, choices and keywords. Every second text is greedy, the others are drawn at 0.8 with a seed of
their own. All texts but those with keywords must end within --most tokens (`form.within`), so that none is cut off.
Every method writes all texts in batches through one engine, mixed as they come; the first --alone also one at a time.
A text that differs from plain decoding's is looked at: a near tie, if rounding explains it, else a BUG.

The cost of a mask is measured on the plain texts, read again token by token with a grammar that was compiled anew:
to read the token, to compute what may follow, and to apply that to a row of scores, as `Constrained` does; `apply` is
the same once more, when what may follow is known, and `mask` the difference.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from canvas_json import DATA
from forms import KEYWORDS, SCHEMA, Item, chosen, opened, saved
from masks import costs
from record import save

from unspool.api.diverge import divergence, passes_of
from unspool.api.lm import LM, SCRATCH
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool.core.chance import At, Philox, Role
from unspool.core.law import Law
from unspool.core.warp.warp import Prefix
from unspool.recipes.methods import method
from unspool.rules.constrain.within import CAREFUL
from unspool.runtime.engine.engine import Engine
from unspool_bench.standing import bootstrapped

PLAIN = "plain"
METHODS = ("forced", "suffix", "merge", "auto")
TEMPERATURES = (0.0, 0.8)
KEPT = ("name", "kind", "reason", "forwards", "verdict")  # of a text, for the record
ALONE = " alone"
Row = dict[str, Any]


def settings_of(item: Item, number: int, most: int) -> Settings:
    """Greedy and drawn in turn, each with a seed of its own."""
    temperature = TEMPERATURES[number % len(TEMPERATURES)]
    return Settings(constraint=item.form(most), temperature=temperature, seed=number, max_tokens=most)


def written(lm: LM, named: list[tuple[int, Item]], spec: str, most: int) -> list[Row]:
    """The texts of some forms, side by side in one engine."""
    engine, jobs = Engine(lm.models(), lm.price), []
    for number, item in named:
        settings = settings_of(item, number, most)
        prompt = lm.encode([{"role": "user", "content": item.prompt}])
        warp, stop = settings.warp(lm.vocabulary), settings.stop_rule(lm.vocabulary)
        stop = replace(stop, spare=SCRATCH)
        room = len(prompt) + most + SCRATCH
        jobs.append(engine.submit(method(spec), prompt, Philox(number), warp, stop, room, laws=False))
    engine.run()
    rows = []
    for (number, item), job in zip(named, jobs, strict=True):
        row: Row = {"item": number, "name": item.name, "kind": item.kind, "tokens": [], "text": ""}
        try:
            done = job.result()
            text = lm.vocabulary.decode(done.tokens)
            row |= {"tokens": list(done.tokens), "text": text, "reason": done.reason}
        except Exception as error:
            row |= {"reason": f"error: {type(error).__name__}: {error}"}
        row |= {"forwards": job.trace.forwards["target"], "seconds_rule": job.trace.seconds_rule}
        rows.append(row)
    return rows


def outcome(item: Item, row: Row) -> str:
    """What became of a text: valid, INVALID, cut off, an error, or not looked at where there is no validator."""
    if row["reason"] != "token":
        return "cut off" if row["reason"] == "length" else row["reason"]
    try:
        return "valid" if item.valid(row["text"]) else "INVALID"
    except ImportError:
        return "not validated here"


# ---- the same text?


def verdict(lm: LM, item: Item, number: int, most: int, ours: Sequence[int], plain: Sequence[int]) -> str:
    """Whether a text is plain decoding's, and if not, whether rounding explains where they part."""
    if list(ours) == list(plain):
        return "same"
    prompt = lm.encode([{"role": "user", "content": item.prompt}])
    settings, passes = settings_of(item, number, most), passes_of(lm.model)
    if settings.temperature == 0:
        parted = divergence(prompt, ours, plain, passes)
        return "near tie" if parted is not None and parted.near_tie else "BUG"
    at = next((i for i, (a, b) in enumerate(zip(ours, plain, strict=False)) if a != b), None)
    if at is None:
        return "BUG"
    prefix = Prefix.of(prompt, settings.warp(lm.vocabulary)).then(ours[:at])
    laws = [prefix.shape(Law(run((*prompt, *ours[:at])).double())) for run in passes]
    drawn = Philox(number).uniform(At(len(prefix), Role.PICK))
    cdfs = torch.stack([law.cdf / law.cdf[-1] for law in laws])
    noise = float((cdfs.amax(0) - cdfs.amin(0)).max())
    # how far the number that was drawn is from the interval of either token
    off = min(max(_outside(cdf, x, drawn) for x in (ours[at], plain[at])) for cdf in cdfs)
    return "near tie" if off <= 2 * noise else "BUG"


def _outside(cdf: torch.Tensor, token: int, drawn: float) -> float:
    low, high = float(cdf[token - 1]) if token else 0.0, float(cdf[token])
    return max(0.0, low - drawn, drawn - high)


# ---- what drafts save


def ratio(pairs: list[tuple[int, int]]) -> dict[str, float]:
    """Σ drafted / Σ plain forwards, with a 95 % interval by drawing the texts again."""
    if not pairs:
        return {}
    found = bootstrapped(pairs, lambda some: sum(a for a, _ in some) / sum(b for _, b in some), 0)
    return {
        "ratio": round(found.value, 3),
        "low": round(found.low, 3),
        "high": round(found.high, 3),
        "texts": len(pairs),
    }


def closed(row: Row, most: int) -> bool:
    """Whether a text was about to run out of tokens when it ended, so that it may have been closed."""
    return row["kind"] != KEYWORDS and len(row["tokens"]) >= most - min(CAREFUL, most // 3)


def summary(rows: dict[str, list[Row]], items: list[Item], most: int) -> dict[str, Any]:
    """What all methods together and each of them have done."""
    everything = [row for texts in rows.values() for row in texts]
    outcomes = Counter(outcome(items[row["item"]], row) for row in everything)
    methods = {}
    for spec, texts in rows.items():
        if spec == PLAIN:
            continue
        plain = {row["item"]: row for row in rows[PLAIN]}
        pairs = [(row, plain[row["item"]]) for row in texts if row["kind"] == SCHEMA]
        whole = [(a["forwards"], b["forwards"]) for a, b in pairs]
        free = [(a["forwards"], b["forwards"]) for a, b in pairs if not closed(b, most)]
        methods[spec] = {
            "forwards_over_plain": ratio(whole),
            "of_texts_that_ended_by_themselves": ratio(free),
            "texts": dict(Counter(row.get("verdict", "?") for row in texts)),
        }
    shut = sum(closed(row, most) for row in rows[PLAIN])
    return {
        "runs": len(everything),
        "outcomes": dict(outcomes),
        "plain_texts_closed_in_time": f"{shut} of {len(rows[PLAIN])}",
        "methods": methods,
    }


def show(found: dict[str, Any], masks: dict[str, dict[str, float]]) -> None:
    """A short table."""
    print(f"\n{found['runs']} constrained texts: " + ", ".join(f"{n} {what}" for what, n in found["outcomes"].items()))
    print(f"plain texts that had to be closed in time: {found['plain_texts_closed_in_time']}\n")
    print(f"{'forwards / plain, schemas':28}{'all':>22}{'ended by themselves':>24}   texts against plain's")
    for spec, row in found["methods"].items():
        cells = []
        for part in (row["forwards_over_plain"], row["of_texts_that_ended_by_themselves"]):
            cells.append(f"{part['ratio']:.2f} [{part['low']:.2f}, {part['high']:.2f}]" if part else "")
        said = ", ".join(f"{n} {what}" for what, n in row["texts"].items())
        print(f"{spec:28}{cells[0]:>22}{cells[1]:>24}   {said}")
    for name, row in masks.items():
        print(f"{name:28}{row['p50']:>8.1f} µs p50 {row['p90']:>8.1f} p90 {row['p99']:>8.1f} p99, {row['steps']} steps")


def validate(path: str) -> None:
    """Look at texts that were written elsewhere."""
    record = json.loads(Path(path).read_text())
    items = [Item(**item) for item in record["items"]]
    found = summary(record["rows"], items, record["most"])
    for texts in record["rows"].values():
        for row in texts:
            if (said := outcome(items[row["item"]], row)) != "valid":
                print(said, row["name"], repr(row["text"][:200]))
    Path(path).write_text(json.dumps({**record, "summary": found}, indent=1) + "\n")
    show(found, record["mask_us"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of JSONSchemaBench's *.jsonl.zst")
    parser.add_argument("--forms", type=Path, help="forms that --choose has written; --data is not needed then")
    parser.add_argument("--choose", type=Path, metavar="FILE", help="write the forms to FILE and do nothing else")
    parser.add_argument("--validate", metavar="FILE", help="validate the texts of a result, and do nothing else")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--batch-invariant", action="store_true")
    parser.add_argument("--limit", type=int, default=100, help="how many forms")
    parser.add_argument("--most", type=int, default=96, help="tokens of a text")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--alone", type=int, default=8, help="how many texts are also written one at a time")
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--json", metavar="FILE", default="constrained.json")
    parser.add_argument("--brief", metavar="FILE", help="the same without the schemas and texts, which are others'")
    args = parser.parse_args()
    if args.validate:
        validate(args.validate)
        return
    lm = load(args.model, device=args.device, dtype=args.dtype, batch_invariant=args.batch_invariant)
    if args.forms:
        items, left_out = opened(args.forms, args.most)
        items = items[: args.limit]
    else:
        items, left_out = chosen(args.data, lm.vocabulary, args.most, args.limit)
    print(f"{len(items)} forms; schemas left out: {left_out}", flush=True)
    if args.choose:
        saved(args.choose, items, left_out, args.most)
        return
    rows = run(lm, items, args)
    masks = costs(lm, items, rows[PLAIN])
    found = summary(rows, items, args.most)
    names = ("model", "device", "dtype", "shapes", "limit", "most", "batch", "alone")
    result = {name: getattr(args, name) for name in names} | {"left_out": left_out, "load": os.getloadavg()[0]}
    record = {"summary": found, "mask_us": masks, "items": [vars(item) for item in items], "rows": rows}
    save(args.json, {**result, **record})
    if args.brief:
        brief = {method: [{name: row[name] for name in KEPT} for row in texts] for method, texts in rows.items()}
        save(args.brief, {**result, "summary": found, "mask_us": masks, "rows": brief})
    show(found, masks)


def run(lm: LM, items: list[Item], args: argparse.Namespace) -> dict[str, list[Row]]:
    """All texts by all methods; each batch is a line of FILE.jsonl as soon as it is done, and is not done again."""
    lines = Path(args.json).with_suffix(".jsonl")
    known = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    done = {(line["method"], line["from"]): line["rows"] for line in known}
    plan = [(spec, args.batch, len(items)) for spec in (PLAIN, *args.methods)]
    plan += [(spec + ALONE, 1, min(args.alone, len(items))) for spec in (PLAIN, *args.methods[:1])]
    rows: dict[str, list[Row]] = {}
    began = perf_counter()
    with lines.open("a") as out:
        for spec, size, count in plan:
            texts = rows.setdefault(spec, [])
            for start in range(0, count, size):
                some = done.get((spec, start))
                if some is None:
                    named = list(enumerate(items))[start : min(start + size, count)]
                    lm.model.forget()
                    some = written(lm, named, spec.removesuffix(ALONE), args.most)
                    for row in some:
                        plain = row if spec == PLAIN else rows[PLAIN][row["item"]]
                        item, number = items[row["item"]], row["item"]
                        parted = row["reason"].startswith("error") or plain["reason"].startswith("error")
                        same = "same" if row["reason"] == plain["reason"] else "BUG"
                        row["verdict"] = (
                            same if parted else verdict(lm, item, number, args.most, row["tokens"], plain["tokens"])
                        )
                    out.write(json.dumps({"method": spec, "from": start, "rows": some}) + "\n")
                    out.flush()
                texts += some
                print(f"{spec}: {len(texts)} of {count}, {perf_counter() - began:.0f} s", flush=True)
    return rows


if __name__ == "__main__":
    main()
