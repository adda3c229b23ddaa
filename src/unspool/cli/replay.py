"""Running the branch of a counterexample again, from what `unspool prove --json` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadRequest

if TYPE_CHECKING:
    from ..proof.compare import Witness

LARGEST = 1 << 24  # bytes: a file of proofs is a few kilobytes


def witness(file: Path, name: str) -> Witness:
    """The branch that shows the failure of a method, from a file of proofs."""
    from ..claim import Claim
    from ..proof.case import Case
    from ..proof.compare import Witness

    try:
        if file.stat().st_size > LARGEST:
            raise BadRequest(f"{file} is too large for what `unspool prove --json` writes")
        proofs = json.loads(file.read_text())
        found = next((proof for proof in proofs if proof["method"] == name and "witness" in proof), None)
        if found is None:
            raise BadRequest(f"{file} has no failed proof of {name!r} that can be run again")
        kept: dict[str, Any] = found["witness"]
        case = Case(**{key: _frozen(value) for key, value in kept["case"].items()})
        return Witness(case, Claim[kept["claim"]].name, tuple(map(int, kept["branch"])), int(kept["trial"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        told = f"{type(error).__name__}: {error}"
        raise BadRequest(f"{file} cannot be read as what `unspool prove --json` writes ({told})") from error


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
