"""What `unspool prove` does: which proofs to make, and how to run the branch of a counterexample again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from ...core.claim import LAW, Claim, Method
from ...core.errors import BadRequest
from ...proof import Proof, prove
from ...proof.compare_laws import Truth, replay
from ...proof.plainly import Plainly
from ...proof.prove import prove_entry, truth_of
from ...recipes.methods import entries, named
from ...recipes.names import parted, renamed
from .replay import witness
from .rule import is_rule, load_rule


def replayed(methods: tuple[str, ...], file: Path) -> str:
    """What comes of the branch that showed the failure of a method, step by step."""
    if len(methods) != 1:
        raise click.UsageError(
            "--replay runs one branch of one METHOD: name it, as in: unspool prove NAME --replay FILE"
        )
    seen = witness(file, methods[0])
    truth: Truth = Plainly
    trials: list[Method] = []
    if is_rule(methods[0]):
        trials = [load_rule(methods[0])]
    else:
        entry = named(methods[0])
        truth, trials = truth_of(entry), list(entry.trials(entry.rule))
    if seen.trial >= len(trials):
        raise BadRequest(f"{file} is of another version: {methods[0]} has no trial number {seen.trial}")
    return replay(trials[seen.trial], seen, truth)


def jobs(methods: tuple[str, ...], quick: bool, claim: str | None) -> list[tuple[str, Callable[[], Proof]]]:
    """What to prove, by name; unknown names are refused before the first proof begins."""
    if claim is not None and not any(map(is_rule, methods)):
        raise click.UsageError("--claim is for FILE.py:NAME; registered methods are held to their own claims")
    found: list[tuple[str, Callable[[], Proof]]] = []
    for name in methods or tuple(entries()):
        rule = load_rule(name) if is_rule(name) else None
        if rule is None and (given := parted(name))[1]:
            raise BadRequest(f"{name!r} has options, and a proof tries its own: write {given[0]!r} alone")
        if note := renamed(name):
            click.echo(f"note: {note}", err=True)
        entry = named(name) if rule is None else next((e for e in entries().values() if e.rule is rule), None)
        if entry is not None and (rule is None or claim is None):
            found.append((entry.name, partial(prove_entry, entry, quick)))
        elif rule is not None:
            held = LAW if claim is None else Claim[claim.upper()]
            found.append((name, partial(prove, rule, held, quick=quick, name=name)))
    return found
