"""What forwards cost here: measured once per model and machine, so that trees can be cut to what pays, and kept."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import torch

from ...core.asks import Check, Write, Written
from ...core.chance import Philox
from ...core.cost import Cost
from ...core.errors import BadRequest, UnspoolError
from ...core.files import SETTINGS, read_text
from ...core.law import chosen
from ...core.tree import NOTHING, ROOT, Tree
from ...core.verifier import sample_match
from ...core.warp.warp import Prefix, Temperature
from ...models.address import home
from .contracts import Causal, PlacedModel, ScoreRequest, Session, SupportsDeviceDecoding, device_of

FILE = "costs.json"
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 32, 33, 48, 64)  # kernels change gear right after powers of two
AHEAD = 16  # tokens of plain decoding that are timed together where they are written together
COARSE = 3  # of so many sizes one is measured first, so that the others can be left out of a slow model's
WIDE = 5  # forwards that take so many times the narrowest are not measured further: no tree pays there


def price(model: Causal, key: str | None) -> Cost:
    """The cost of this model's forwards: what the file knows under `key`, else measured now and written there.

    Without a key nothing is read or kept. A file that cannot be read or written is no reason to fail.
    """
    if key is None:
        return measure(model)
    with suppress(UnspoolError, OSError, ValueError, KeyError, TypeError):
        known = _read(home() / FILE)[key]
        return Cost(tuple(known["rows"]), tuple(known["seconds"]), aside=float(known["aside"]))
    cost = measure(model)
    with suppress(UnspoolError, OSError):
        _write(home() / FILE, key, cost)
    return cost


def _read(path: Path) -> dict[str, Any]:
    known = json.loads(read_text(path, SETTINGS))
    if not isinstance(known, dict):
        raise BadRequest(f"{path} is not a table of costs")
    return known


def _write(path: Path, key: str, cost: Cost) -> None:
    known: dict[str, Any] = {}
    with suppress(UnspoolError, OSError, ValueError):
        known = _read(path)
    known[key] = {"rows": cost.rows, "seconds": cost.times, "aside": cost.aside}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def measure(
    model: Causal, rows: tuple[int, ...] = ROWS, repeats: int = 5, behind: int = 64, seconds: float = 3.0
) -> Cost:
    """t(n) for these numbers of rows, behind a text of `behind` tokens: the least of `repeats`, made to rise with n.

    Every forward computes the last kept token and a drafted chain, so n rows are n − 1 drafted nodes. One turn over
    all sizes is made first, every third of them before the others; its times count only to leave out sizes that are
    hopeless, and those that it has not come to after `seconds`. A slow model is measured less often: no turn begins
    after so long, but for the first one that counts, for which two sizes are kept at least. A model that checks and
    writes on its device is measured doing so: its one row is a token of plain decoding as it really goes there, and
    what a check of one row takes more than that is what checking takes aside.

    Cost: at most (repeats + 1) · len(rows) forwards and one prompt.
    """
    if not rows or min(rows) < 1 or repeats < 1 or behind < 1:
        raise BadRequest(
            f"cannot measure rows {rows} {repeats} times behind {behind} tokens; "
            "expected at least one number of rows, all from 1 on, one repeat and one token"
        )
    sizes = sorted(set(rows))
    if model.context is not None:
        behind = max(1, min(behind, model.context // 2))
        written = (repeats + 1) * (len(sizes) + AHEAD)
        sizes = [n for n in sizes if behind + written + n <= model.context] or sizes[:1]
    times: dict[int, list[float]] = {n: [] for n in sizes}
    checked: list[float] = []
    session = model.open([i % model.vocab for i in range(behind)])
    try:
        model.score([ScoreRequest(session, NOTHING)])
        start = perf_counter()
        for turn in range(repeats + 1):
            if turn > 1 and perf_counter() - start > seconds:
                break
            for n in sizes if turn else sorted(sizes, key=lambda n: (sizes.index(n) % COARSE > 0, n)):
                if turn == 0 and sum(map(bool, times.values())) > 1 and perf_counter() - start > seconds:
                    break
                session.keep(NOTHING, (ROOT,), (turn % model.vocab,))
                times[n].append(_seconds(model, session, [(turn + i) % model.vocab for i in range(n - 1)]))
            if (device := device_of(model)) is not None:
                session.keep(NOTHING, (ROOT,), (turn % model.vocab,))
                checked.append(_checked(model, device, session))
            if turn == 0:
                sizes = [n for n in sizes if times[n] and times[n][0] <= WIDE * times[sizes[0]][0]]
    finally:
        session.close()
        model.forget()
    # Whatever else runs on the machine only adds time, so the least is the truest. A forward over fewer rows is not
    # slower either; where the clock says so it was disturbed.
    least = [min(times[n][1:]) for n in sizes]
    rising = tuple(min(least[i:]) for i in range(len(least)))
    aside = max(0.0, min(checked[1:]) - rising[0]) if checked and sizes[0] == 1 else 0.0
    return Cost(tuple(sizes), rising, aside=aside)


def clock_of(model: Causal) -> Callable[[], float]:
    """The clock that forwards are timed by: that of the processor where one thread of it computes, else the wall's.

    Who else is at work on the machine then makes no row seem dear.
    """
    alone = torch.get_num_threads() == 1 and isinstance(model, PlacedModel) and model.place.type == "cpu"
    return process_time if alone else perf_counter


def _seconds(model: Causal, session: Session, tokens: list[int]) -> float:
    """The time of one forward over the last token and these, until somebody can know what it says."""
    tree, prefix = Tree.chain([chosen(x) for x in tokens]), Prefix.of((0,), Temperature(0.0))
    ask, began = ScoreRequest(session, tree), perf_counter()
    if (device := device_of(model)) is not None:
        written = None if tokens else device.write([ask], [Write(prefix, Philox(0), AHEAD)], AHEAD)
        if written and isinstance(written[0], Written):
            return (perf_counter() - began) / len(written[0].tokens)
        if device.check([ask], [Check(tree, prefix, sample_match, Philox(0))]):
            return perf_counter() - began
    return _scored(model, ask)


def _checked(model: Causal, device: SupportsDeviceDecoding, session: Session) -> float:
    """The time of checking nothing but the next token, which could have been written."""
    ask, prefix, began = ScoreRequest(session, NOTHING), Prefix.of((0,), Temperature(0.0)), perf_counter()
    if device.check([ask], [Check(NOTHING, prefix, sample_match, Philox(0))]):
        return perf_counter() - began
    return _scored(model, ask)


def _scored(model: Causal, ask: ScoreRequest) -> float:
    now = clock_of(model)
    began = now()
    (scores,) = model.score([ask])
    scores.law(len(ask.tree) - 1).best  # noqa: B018  (waits for the device; with no tree, −1 is the root)
    return now() - began
