"""`unspool prove`: enumerate what the rules claim."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click
from tqdm import tqdm

from ..errors import BadRequest
from ..models.home import home
from .record import dump
from .rule import is_rule, load_rule
from .table import table
from .terminal import write

if TYPE_CHECKING:
    from ..claim import Entry
    from ..proof import Proof

_HEADS = ("method", "claim", "tv", "branches", "cases", "skipped", "ok", "seconds")
_CLAIMS = ("SEED", "LAW", "ARGMAX", "HEURISTIC")  # BOUND needs a function, which a command line cannot give


@click.command(short_help="Enumerate what the rules claim.")
@click.argument("method", nargs=-1)
@click.option("--quick", is_flag=True, help="Fewer cases.")
@click.option("--claim", type=click.Choice(_CLAIMS, case_sensitive=False), help="What FILE.py:NAME is held to (LAW).")
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
def prove(method: tuple[str, ...], quick: bool, claim: str | None, as_json: bool) -> int:
    """Enumerate every branch of METHODs on small drawn cases, against what they claim; all of them if none is named.

    tv is the largest total variation between the exact law of whole texts and the promised one; skipped counts cases
    with too many branches to follow even for one token. FILE.py:NAME proves a method of your own: an object called as
    method(text, chance, warp, stop), or a rule under @claims. The exit status is 1 if a claim fails.
    """
    # Hypothesis keeps what it worked out about Unicode; left alone, in the folder that one happens to be in.
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(home() / "hypothesis"))
    proofs = []
    jobs = _jobs(method, quick, claim)
    with tqdm(jobs, unit="method", leave=False, disable=not sys.stderr.isatty()) as bar:
        for name, job in bar:
            bar.set_description(name)
            proofs.append(job())
    if as_json:
        dump([proof.record() for proof in proofs])
    else:
        write(_report(proofs))
    return 0 if all(proof.ok for proof in proofs) else 1


def _jobs(methods: tuple[str, ...], quick: bool, claim: str | None) -> list[tuple[str, Callable[[], Proof]]]:
    """What to prove, by name; unknown names are refused before the first proof begins."""
    from ..claim import LAW, Claim, entries
    from ..proof import prove as proved
    from ..proof.prove import prove_entry

    if claim is not None and not any(map(is_rule, methods)):
        raise click.UsageError("--claim is for FILE.py:NAME; registered methods are held to their own claims")
    jobs: list[tuple[str, Callable[[], Proof]]] = []
    for name in methods or tuple(entries()):
        rule = load_rule(name) if is_rule(name) else None
        entry = _entry(name) if rule is None else next((e for e in entries().values() if e.rule is rule), None)
        if entry is not None and (rule is None or claim is None):
            jobs.append((entry.name, partial(prove_entry, entry, quick)))
        elif rule is not None:
            held = LAW if claim is None else Claim[claim.upper()]
            jobs.append((name, partial(proved, rule, held, quick=quick, name=name)))
    return jobs


def _entry(name: str) -> Entry:
    from ..claim import entries

    known = entries()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise BadRequest(f"no method is called {name!r}.{hint} There are: {', '.join(known)}, or FILE.py:NAME.")


def _report(proofs: list[Proof]) -> str:
    rows = [
        (p.method, p.claim, _tv(p), f"{p.branches:,}", f"{p.cases:,}", f"{p.skipped:,}", _ok(p), f"{p.seconds:.1f}")
        for p in proofs
    ]
    text = table(_HEADS, rows, right="tv, branches, cases, skipped, seconds") + "\n"
    for proof in proofs:
        if not proof.ok:
            text += f"\n{proof.method} does not keep its claim ({proof.claim}). The smallest case found:\n"
            text += f"{proof.counterexample}\n"
    return text


def _tv(proof: Proof) -> str:
    return f"gap {proof.tv:.3f}" if proof.claim in ("BOUND", "HEURISTIC") else f"{proof.tv:.1e}"


def _ok(proof: Proof) -> str:
    return "FAILS" if not proof.ok else "measured" if proof.claim == "HEURISTIC" else "holds"
