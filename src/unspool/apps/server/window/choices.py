"""Choices: the methods that the window offers, and why some cannot run here."""

from __future__ import annotations

from typing import Any

from ....api.lm import LM
from ....core.claim import Entry
from ....core.errors import UnspoolError
from ....core.option import options, products
from ....recipes.methods import fills, requested, runnable
from ....recipes.names import canonical
from ....runtime.engine.contracts import Infill
from ..config import ServerConfig


def choices(lm: LM, house: ServerConfig) -> list[dict[str, Any]]:
    """Every method that a client may choose, as plain data; `missing` says what it lacks here, "" if nothing."""
    known = {entry.name: entry for entry in runnable()}
    allowed = house.offered if house.methods else (house.method, *known)
    return [_record(spec, known[canonical(spec).partition(":")[0]], lm, house) for spec in dict.fromkeys(allowed)]


def _record(spec: str, entry: Entry, lm: LM, house: ServerConfig) -> dict[str, Any]:
    assert entry.build is not None  # only such entries are runnable
    free = [option for option in options(entry.build).values() if not option.operator]
    return {
        "spec": spec,
        "family": entry.family,
        "claim": entry.claim.name,
        "promise": f"{entry.claim.value} {entry.note}".rstrip(),
        "summary": entry.summary,
        "options": ",".join(option.spelt for option in free),
        "ranges": {option.name: option.expected for option in free},
        "together": [str(product) for product in products(entry.build)],
        "missing": _missing(spec, entry, lm, house),
    }


def _missing(spec: str, entry: Entry, lm: LM, house: ServerConfig) -> str:
    drafts = {"draft": lm.draft, "small": None if lm.draft is None else lm.draft.draft}
    for need in entry.needs:
        if need == "heads" and getattr(lm.model, "heads", None) is None:
            return "asks for heads that look ahead; start the server with --heads FILE"
        if need != "heads" and drafts.get(need) is None:
            return f"asks a {need} model; start the server with --{need} MODEL"
    if fills(entry) and not isinstance(lm.model, Infill):
        return "fills holes; load a model that was trained to, such as smollm2-diffusion"
    try:
        requested(spec, house.offered)
    except UnspoolError as error:
        return str(error)
    return ""
