"""`unspool auto-tune`: the fastest method for a model, a machine and some prompts, kept as a profile."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from tqdm import tqdm

import unspool_bench as benches
from unspool import api, models
from unspool.apps.cli.compare import prompts_of
from unspool.apps.cli.examples import PROMPTS
from unspool.apps.cli.group import Grouped, known_method, methods_like, options
from unspool.apps.cli.loading import Loading
from unspool.apps.cli.root import starting
from unspool.apps.cli.terminal import dump, note, table, write
from unspool.core.errors import BadRequest

if TYPE_CHECKING:
    from unspool.api.profile import Profile

    from ..tuning import Tuned


@click.command("auto-tune", cls=Grouped, short_help="Find the fastest method for a model, a machine and some prompts.")
@click.option("--prompts", "files", multiple=True, metavar="FILE", help="Prompts: one per line, or .jsonl. Repeatable.")
@click.option(
    "--method",
    "methods",
    callback=known_method,
    shell_complete=methods_like,
    multiple=True,
    metavar="SPEC",
    help="Try these instead of the usual. Repeatable.",
)
@click.option("--max-tokens", default=64, show_default=True, type=click.IntRange(2), help="Per text.")
@click.option("-t", "--temperature", default=0.0, show_default=True, type=click.FloatRange(0.0))
@click.option("-o", "--out", default="unspool.toml", show_default=True, metavar="FILE", help="Where the profile goes.")
@click.option("--json", "as_json", is_flag=True, help="What was measured, as one object.")
@options(Loading, "loading")
def auto_tune(
    files: tuple[str, ...],
    methods: tuple[str, ...],
    max_tokens: int,
    temperature: float,
    out: str,
    as_json: bool,
    loading: Loading,
) -> None:
    """Try methods on PROMPTS (six built-in ones, if none are given), halving the field, and write a profile.

    `unspool run --profile FILE` and the other commands then use it; in Python, `Profile.read(FILE)`. All methods that
    are tried write the text of plain decoding, so only speed is at stake; if none is surely faster, plain stays.
    """
    with starting():
        plain, tuning, own = benches.contender.PLAIN, benches.tuning, benches.contender.Ours
    parent = Path(out).resolve().parent
    if not parent.is_dir():
        raise BadRequest(f"{out} cannot be written: the folder {parent} does not exist")
    texts = [text for file in files for text in prompts_of(file)] or list(PROMPTS)
    beside = (
        *(tuning.HEADED if models.address.heads_of(loading.model, loading.heads) else ()),
        *(tuning.DRAFTED if loading.draft else ()),
    )
    tried = tuple(spec for spec in dict.fromkeys(methods or (*tuning.MODEL_FREE, *beside)) if spec != plain)
    loading.check(tried)
    lm = loading.load()
    loading.prepare(lm, ("auto",))
    contenders = [own(lm, spec) for spec in (plain, *tried)]
    inexact = [each.name for each in contenders if not each.exact]
    if inexact:
        raise BadRequest(f"{inexact[0]} does not write plain decoding's text, so speed alone cannot choose it")
    settings = api.settings.Settings(max_tokens=max_tokens, temperature=temperature, seed=0)
    encoded = [lm.encode(loading.prompt(lm, text)) for text in texts]
    total = tuning.turns(len(contenders), len(encoded))
    with tqdm(total=total, unit="text", leave=False, disable=not sys.stderr.isatty()) as bar:
        found = tuning.tune(contenders, encoded, settings, lm.price(), lambda: bar.update(1))
    measured = {"prompts": len(encoded), "max_tokens": max_tokens, "temperature": temperature}
    _profile(found, loading, measured).write(out, f"Made by `unspool auto-tune`.\n{found.explained()}")
    if as_json:
        dump(_record(found, out))
        return
    arms = [(arm, arm.speed_up(found.plain)) for arm in found.arms]
    cells = [[a.name, f"{s.value:.2f}", f"{a.tokens_per_forward:.2f}", str(len(a.samples))] for a, s in arms]
    write(table(["method", "speed-up", "tokens/forward", "prompts"], cells, "speed-up,tokens/forward,prompts") + "\n")
    write(found.explained() + "\n")
    note(f"written to {out}; use it with --profile {out}")


def _profile(found: Tuned, loading: Loading, measured: dict[str, Any]) -> Profile:
    """The best method with the model it was measured on, and how."""
    gain = found.gain
    figures = {
        "speed_up": round(gain.value, 3),
        "interval": [round(gain.low, 3), round(gain.high, 3)] if gain.low == gain.low else None,
        "tokens_per_forward": round(found.best.tokens_per_forward, 3),
    }
    return api.profile.Profile(
        model=loading.model,
        method=found.best.name,
        draft=loading.draft,
        heads=loading.heads,
        adapter=loading.adapter,
        dtype=loading.dtype,
        quantization=loading.quantization,
        device=loading.device,
        notes={"measured": {**figures, **measured}, "machine": benches.machine.machine()},
    )


def _record(found: Tuned, out: str) -> dict[str, Any]:
    speeds = [(arm, arm.speed_up(found.plain)) for arm in found.arms]
    arms = [
        {"method": arm.name, "speed_up": s.value, "low": s.low, "high": s.high, "prompts": len(arm.samples)}
        for arm, s in speeds
    ]
    return {"method": found.best.name, "profile": out, "why": found.explained(), "arms": arms}
