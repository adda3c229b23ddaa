"""What `unspool prove` does: which proofs to make, and how to run the branch of a counterexample again."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from ...core.claim import LAW, Claim, Method
from ...core.errors import BadRequest
from ...core.files import SETTINGS, read_text
from ...core.user_objects import loaded
from ...proof import Proof, prove
from ...proof.case import Case
from ...proof.compare_laws import Truth, Witness, replay
from ...proof.plainly import Plainly
from ...proof.prove import prove_entry, truth_of
from ...proof.shaping import WARPS
from ...recipes.methods import described, entries
from ...recipes.names import checked, parts_of
from .terminal import note

_CALL = "a method is called as method(text, chance, warp, stop) and yields asks"


def is_rule(spec: str) -> bool:
    """Whether a name is FILE.py:NAME alone, which may be any method, rather than that of a registered rule."""
    parts = parts_of(spec)
    return len(parts) == 1 and not parts[0].rest and (parts[0].file or spec.endswith(".py"))


def load_rule(spec: str) -> Method:
    """Run the file and take the attribute; the file's folder can be imported from, as if it were run itself."""
    return _method(loaded(spec), spec)


def _method(found: Any, spec: str) -> Method:
    """The object itself if it can be called as a method (or is registered under @claims), else why it cannot."""
    if any(entry.rule is found for entry in entries().values()):
        return found  # type: ignore[no-any-return]
    if inspect.isclass(found):
        raise BadRequest(f"{spec} is a class; give an object of it ({_CALL}).")
    if not callable(found):
        raise BadRequest(f"{spec} is of the type {type(found).__name__}, and cannot be called; {_CALL}.")
    try:
        inspect.signature(found).bind((), None, None, None)
    except TypeError:
        takes = ", ".join(inspect.signature(found).parameters) or "nothing"
        hint = " A verifier becomes one as Speculate(Chain(depth=2), rule)." if takes == "scored, chance" else ""
        raise BadRequest(f"{spec} takes ({takes}), but {_CALL}.{hint}") from None
    return found  # type: ignore[no-any-return]


def witness(file: Path, name: str) -> Witness:
    """The branch that shows the failure of a method, from a file of proofs."""
    try:
        proofs = json.loads(read_text(file, SETTINGS))
        found = next((proof for proof in proofs if proof["method"] == name and "witness" in proof), None)
        if found is None:
            raise BadRequest(f"{file} has no failed proof of {name!r} that can be run again")
        kept: dict[str, Any] = found["witness"]
        case = _usable(Case(**{key: _frozen(value) for key, value in kept["case"].items()}))
        return Witness(case, Claim[kept["claim"]].name, tuple(map(int, kept["branch"])), int(kept["trial"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        told = f"{type(error).__name__}: {error}"
        raise BadRequest(f"{file} cannot be read as what `unspool prove --json` writes ({told})") from error


def _usable(case: Case) -> Case:
    """The same case, if it is one that a proof could have drawn: small, and with numbers where numbers belong."""
    tokens = range(case.vocab) if case.vocab in range(2, 6) else range(0)
    rows = (*case.target, *case.draft)
    checks = {
        "vocab": len(tokens) > 0,
        "target": len(case.target) in range(1, 17),
        "draft": len(case.draft) in range(1, 17),
        "weights": all(len(row) == case.vocab and all(x in range(100) for x in row) and any(row) for row in rows),
        "prompt": len(case.prompt) in range(1, 17) and all(x in tokens for x in case.prompt),
        "warp": case.warp in WARPS,
        "end": case.end is None or case.end in tokens,
        "until": case.until is None or (isinstance(case.until, str) and len(case.until) in range(1, 9)),
        "most": case.most in range(1, 17),
    }
    wrong = [name for name, fits in checks.items() if not fits]
    if wrong:
        raise ValueError(f"no proof has a case with such a {' and '.join(wrong)}")
    return case


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def replayed(methods: tuple[str, ...], file: Path) -> str:
    """What comes of the branch that showed the failure of a method, step by step."""
    if len(methods) != 1:
        raise click.UsageError(
            "--replay runs one branch of one METHOD: name it, as in: unspool prove NAME --replay FILE"
        )
    return _steps(methods[0], witness(file, methods[0]), file)


def told(proof: Proof) -> str:
    """The same of a proof that has just been made."""
    assert proof.witness is not None  # only such proofs are replayed
    return _steps(proof.method, proof.witness, "the proof")


def _steps(name: str, seen: Witness, source: object) -> str:
    truth: Truth = Plainly
    trials: list[Method] = []
    if is_rule(name):
        trials = [load_rule(name)]
    else:
        entry = described(name)
        truth, trials = truth_of(entry), list(entry.trials(entry.rule))
    if seen.trial >= len(trials):
        raise BadRequest(f"{source} is of another version: {name} has no trial number {seen.trial}")
    return replay(trials[seen.trial], seen, truth)


def jobs(methods: tuple[str, ...], quick: bool, claim: str | None) -> list[tuple[str, Callable[[], Proof]]]:
    """What to prove, by name; unknown names are refused before the first proof begins."""
    if claim is not None and not any(map(is_rule, methods)):
        raise click.UsageError("--claim is for FILE.py:NAME; registered methods are held to their own claims")
    found: list[tuple[str, Callable[[], Proof]]] = []
    for name in methods or tuple(entries()):
        rule = load_rule(name) if is_rule(name) else None
        for each in () if rule is not None else checked(name)[1]:
            note(f"note: {each}")
        entry = described(name) if rule is None else next((e for e in entries().values() if e.rule is rule), None)
        if entry is not None and (rule is None or claim is None):
            found.append((entry.name, partial(prove_entry, entry, quick)))
        elif rule is not None:
            held = LAW if claim is None else Claim[claim.upper()]
            found.append((name, partial(prove, rule, held, quick=quick, name=name)))
    return found
