"""Readers of what was measured of every rule alike: on a few prompts, and by enumeration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from docstring import cell, marked
from table import EVEN, Table, machine, short, word

FIGURES: dict[str, tuple[str, Callable[[Any], str]]] = {  # by what they are called in the file
    "tokens": ("tokens written in all", lambda x: f"{x:,}"),
    "tokens_per_forward": ("tokens per forward", lambda x: f"{x:.2f}"),
    "tokens_per_forward_error": ("its standard error over texts", lambda x: f"± {x:.2f}" if x else "–"),
    "mean_acceptance_length": ("tokens per round", lambda x: f"{x:.2f}"),
    "draft_acceptance_rate": ("drafted tokens that stood", lambda x: f"{x:.0%}"),
    "rows_per_token": ("rows of the target per token", lambda x: f"{x:.2f}"),
    "draft_forwards_per_token": ("forwards of other models per token", lambda x: f"{x:.2f}" if x else "–"),
}
PROMISES = ("SEED", "LAW", "ARGMAX")


def ruled(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/rules.py: every rule on the same prompts."""
    for name, row in data.get("rules", {}).items():
        made = {**data, **row["size"], "machine": row["machine"]}
        if "skipped" in row:
            reason = [cell(marked(row["skipped"]))]
            yield name, Table("On prompts", file, machine(made), ["why there are no figures"], [reason])
            continue
        runs = row["runs"]
        heads = ["", *(_head(run) for run in runs)]
        done = [run for run in runs if "error" not in run]
        slower = [f"`{name}` ({_head(run)}) on {short(row)}: {1 / run['seconds']:.2f}×" for run in _behind(done)]
        timed = any("seconds" in run for run in done)
        where = f"{_how(made, done)}. {machine(made)}"
        yield (
            name,
            Table(f"On {_count(made)}", file, where, heads, list(_rows(runs, row["claim"])), timed, tuple(slower)),
        )


def enumerated(file: str, data: dict[str, Any]) -> Iterator[tuple[str, Table]]:
    """bench/proofs.py: the largest distance from what was promised, on tables whose laws are known."""
    for name, proof in data.get("proofs", {}).items():
        gap = f"{proof['tv']:.1e}" if proof["claim"] in PROMISES else f"{proof['tv']:.3f}"
        rows = [
            ["largest total variation", gap if proof["ok"] else f"{gap}: the claim FAILS"],
            ["cases", f"{proof['cases']:,}"],
            ["branches", f"{proof['branches']:,}"],
            ["cases too large to follow", f"{proof['skipped']:,}"],
        ]
        promised = "what it promises" if proof["claim"] in PROMISES else "plain decoding"
        where = (
            f"Whole texts against {promised}, `unspool prove --quick {name}`; models are tables of two or three "
            f"tokens, so that every branch is followed. {machine(proof)}"
        )
        yield name, Table("Enumerated on toys", file, where, ["", f"claim {proof['claim']}"], rows)


def _rows(runs: Sequence[dict[str, Any]], claim: str) -> Iterator[list[str]]:
    """The figures that some run has, a row for each. How likely the texts are that an exact rule drew is luck."""
    telling = [run for run in runs if "nats" in run and (run["heat"] == 0 or claim not in PROMISES)]
    for key, (title, shown) in FIGURES.items():
        if any(run.get(key) for run in runs):
            yield [title, *("–" if run.get(key) is None else shown(run[key]) for run in runs)]
    if any(_comparable(run) for run in runs):
        yield ["same text as plain", *(_same(run) if _comparable(run) else "–" for run in runs)]
        if any(run.get("equal_tokens", 1) < 1 for run in runs if _comparable(run)):
            yield ["tokens equal to plain's", *(f"{r['equal_tokens']:.0%}" if _comparable(r) else "–" for r in runs)]
    if telling:
        shown = [f"{_nats(run, 'nats')} ({_nats(run, 'plain_nats')})" if run in telling else "–" for run in runs]
        yield ["nats per token (plain's)", *shown]
    for asked in dict.fromkeys(run["asked"] for run in runs if "asked" in run):
        shown = [_beside(run, "met", "plain_met", ".0%") if run.get("asked") == asked else "–" for run in runs]
        yield [f"{cell(marked(asked))} (plain's)", *shown]
    if any("seconds" in run for run in runs):
        yield ["speed over plain", *(f"{1 / run['seconds']:.2f}×" if "seconds" in run else "–" for run in runs)]
    if any("error" in run for run in runs):
        yield ["failed", *(cell(marked(" ".join(run["error"].split()))) if "error" in run else "–" for run in runs)]


def _comparable(run: dict[str, Any]) -> bool:
    """Whether it says something that two texts differ: they are greedy, or drawn with the same random numbers."""
    return "same" in run and ("unexplained" in run or run["against"] == 0)


def _same(run: dict[str, Any]) -> str:
    said = f"{run['same']} of {run.get('compared', run['texts'])}"
    ties, odd = run.get("near_ties", 0), len(run.get("unexplained", ()))
    said += f", {ties} near tie{'s' * (ties > 1)}" if ties else ""
    return said + (f", {odd} NOT explained by rounding" if odd else "")


def _beside(run: dict[str, Any], own: str, plain: str, form: str) -> str:
    return f"{run[own]:{form}} ({run[plain]:{form}})" if own in run else "–"


def _nats(run: dict[str, Any], name: str) -> str:
    """A likelihood, of drawn texts with its standard error."""
    error = run.get(f"{name}_error") if run["heat"] else None
    return f"{run[name]:.3f}" + (f" ± {error:.2f}" if error is not None else "")


def _behind(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [run for run in runs if "seconds" in run and 1 / run["seconds"] < EVEN]


def _head(run: dict[str, Any]) -> str:
    heat = "greedy" if run["heat"] == 0 else f"temperature {run['heat']:g}"
    beside = ", beside greedy plain" if run.get("against") == 0 != run["heat"] else ""
    return f"{cell(run['label'])}, {heat}{beside}"


def _count(data: dict[str, Any]) -> str:
    count = data["prompts"]
    return f"{count} prompt{'s' * (count > 1)}{' on a GPU' if data['machine'].get('gpu') else ''}"


def _how(data: dict[str, Any], done: Sequence[dict[str, Any]]) -> str:
    models = "; ".join(data["models"][name] for name in dict.fromkeys(run["models"] for run in done))
    kind = "" if data["dtype"] == "auto" else f", {data['dtype']}"
    batch = "one at a time" if data["times"] else "in one batch, no times taken"
    prompts = ", ".join(map(word, data["families"].split(", ")))
    asked = [question for run in done for question in run.get("questions", ())]
    prompts = f"asked: {' '.join(asked)}" if all("questions" in run for run in done) else f"prompts: {prompts}"
    return (
        f"{models}{kind}; {prompts}, {batch}, up to {data['max_tokens']} tokens; nats: mean log-likelihood "
        "under smollm2 at temperature 1"
    )
