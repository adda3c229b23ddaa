"""Running the branch of a counterexample again, from what `unspool prove --json` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...core.claim import Claim
from ...core.errors import BadRequest
from ...proof.case import Case
from ...proof.compare_laws import Witness
from ...proof.shaping import WARPS

LARGEST = 1 << 24  # bytes: a file of proofs is a few kilobytes


def witness(file: Path, name: str) -> Witness:
    """The branch that shows the failure of a method, from a file of proofs."""
    try:
        if file.stat().st_size > LARGEST:
            raise BadRequest(f"{file} is too large for what `unspool prove --json` writes")
        proofs = json.loads(file.read_text())
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
