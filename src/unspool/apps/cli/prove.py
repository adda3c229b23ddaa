"""`unspool prove`: enumerate what the rules claim."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from tqdm import tqdm

from ...models.address import home
from .group import methods_like
from .root import starting
from .terminal import dump, table, write

if TYPE_CHECKING:
    from ...proof import Proof

NOW = ""  # what --replay without a file stands for
_HEADS = ("method", "claim", "tv", "branches", "cases", "shorter", "skipped", "refused", "ok", "seconds")
_CLAIMS = ("SEED", "LAW", "ARGMAX", "HEURISTIC")  # BOUND needs a function, which a command line cannot give


@click.command(short_help="Enumerate what the rules claim.")
@click.argument("method", nargs=-1, shell_complete=methods_like)
@click.option("--quick", is_flag=True, help="Fewer cases.")
@click.option("--claim", type=click.Choice(_CLAIMS, case_sensitive=False), help="What FILE.py:NAME is held to (LAW).")
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
@click.option(
    "--replay",
    is_flag=False,
    flag_value=NOW,
    metavar="[FILE]",
    help="Tell the branch that shows a failure step by step, of these proofs or of FILE, which --json wrote.",
)
def prove(method: tuple[str, ...], quick: bool, claim: str | None, as_json: bool, replay: str | None) -> int:
    """Enumerate every branch of METHODs on small drawn cases, against what they claim; all of them if none is named.

    tv is the largest total variation between the exact law of whole texts and the promised one. Of the cases, shorter
    counts those that had too many branches and were followed for fewer tokens; skipped were too large even for one, and
    refused have a constraint that the method says it cannot work under. FILE.py:NAME proves a method of your own: an
    object called as method(text, chance, warp, stop), or a rule under @claims. The exit status is 1 if a claim fails,
    or if nothing could be compared.
    """
    # Hypothesis keeps what it worked out about Unicode; left alone, in the folder that one happens to be in.
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(home() / "hypothesis"))
    with starting():
        # torch and hypothesis come with it, which --help does not wait for; hypothesis reads the environment set above.
        from .proving import jobs, replayed, told

    if replay not in (None, NOW):
        write(replayed(method, Path(replay)) + "\n")
        return 0
    proofs = []
    with tqdm(jobs(method, quick, claim), unit="method", leave=False, disable=not sys.stderr.isatty()) as bar:
        for name, job in bar:
            bar.set_description(name)
            proofs.append(job())
    if as_json:
        dump([proof.record() for proof in proofs])
    else:
        write(_report(proofs))
        for proof in proofs if replay == NOW else ():
            write("" if proof.witness is None else f"\n{proof.method}, the branch step by step:\n{told(proof)}\n")
    return 0 if all(proof.ok for proof in proofs) else 1


def _report(proofs: list[Proof]) -> str:
    rows = [(p.method, p.claim, _tv(p), *(f"{n:,}" for n in _counted(p)), _ok(p), f"{p.seconds:.1f}") for p in proofs]
    text = table(_HEADS, rows, right="tv, branches, cases, shorter, skipped, refused, seconds") + "\n"
    for proof in proofs:
        if not proof.ok:
            text += f"\n{proof.method} does not keep its claim ({proof.claim}). The smallest case found:\n"
            text += f"{proof.counterexample}\n"
    return text


def _counted(proof: Proof) -> tuple[int, ...]:
    return proof.branches, proof.cases, proof.shorter, proof.skipped, proof.refused


def _tv(proof: Proof) -> str:
    return f"gap {proof.tv:.3f}" if proof.claim in ("BOUND", "HEURISTIC") else f"{proof.tv:.1e}"


def _ok(proof: Proof) -> str:
    if proof.ok and 2 * proof.shorter > proof.cases:
        return "holds for shorter texts" if proof.claim != "HEURISTIC" else "measured on shorter texts"
    return "FAILS" if not proof.ok else "measured" if proof.claim == "HEURISTIC" else "holds"
