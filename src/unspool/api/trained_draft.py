"""Trained drafters for a loaded model: found by their path, read, and attached to the hidden states they read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import BadRequest
from ..core.law import chosen
from ..core.tree import Tree
from ..models.address import drafter_of, path
from ..models.drafters import opening
from ..models.drafters.description import DrafterFile
from ..models.shape import Shape
from ..runtime.cache.cached_model import CachedModel
from ..runtime.drafter.drafter_check import DrafterReport, Fit, examined, fit, readings
from ..runtime.drafter.drafter_model import TrainedDrafter, network_of
from ..runtime.engine.contracts import LAST, ScoreRequest, Session
from ..runtime.network.llama import Llama

if TYPE_CHECKING:
    from .lm import LM

LEAST, LONGEST = 32, 256  # tokens of a text on which a drafter is measured
SAMPLE = """\
A river begins as a small stream in the hills, where rain and melting snow collect between the rocks. As it flows down
to the valley, other streams join it, and it grows wider and slower. People have always lived near rivers, because they
give water to drink, fish to eat, and a way to travel. In the spring the water may rise over the banks and cover the
fields, which leaves rich soil behind. Farmers know this, and they plant their seeds when the flood is over.

def mean(values):
    total = 0
    for value in values:
        total = total + value
    return total / len(values)

Question: How many days are there in a week? Answer: There are seven days in a week: Monday, Tuesday, Wednesday,
Thursday, Friday, Saturday and Sunday. The first five of them are working days for most people."""
READ = 32  # tokens of that text that are scored as one draft
NATIVE = "mtp"  # the name of the module inside the model's own checkpoint
SPARE = 1024  # slots for drafts besides those of texts


def is_trained(name: str | Path) -> bool:
    """Whether what is named as a draft model is a drafter that reads the target's hidden states."""
    if str(name) == NATIVE:
        return True
    here = Path(name).expanduser()
    return here.exists() and opening.is_drafter(here)


def shipped(name: str, draft: str | Path) -> str | Path:
    """What is named as a draft model, or the folder of the drafter of that name that came with the model `name`."""
    found = drafter_of(name, draft) if isinstance(draft, str) else None
    return draft if found is None else found


def trained_for(model: object, name: str, drafter: str | Path) -> TrainedDrafter:
    """The drafter of this path for a loaded model; from now on the model notes the states that it reads."""
    if not isinstance(model, CachedModel) or not isinstance(model.network, Llama) or model.network.shape.filling:
        raise BadRequest(
            f"draft={str(drafter)!r} reads hidden states of {name}, which needs the native runtime, one rank, and a "
            "model that only reads."
        )
    return attached(model, opened(name, drafter, model.network.shape))


def opened(name: str, drafter: str | Path, shape: Shape) -> DrafterFile:
    """The file of a drafter for the model of this name and shape."""
    if str(drafter) == NATIVE:
        return opening.open_native(path(name), shape)
    return opening.open_drafter(Path(drafter).expanduser(), shape)


def attached(model: CachedModel, file: DrafterFile) -> TrainedDrafter:
    """The drafter of a file for a model, which notes what it reads."""
    network = model.network
    assert isinstance(network, Llama)
    model.forget()  # texts that were read before it have no states
    last = network.layers
    numbers = [LAST if number == last else number for number in file.spec.states]
    network.slots.keep_states(numbers, network.ends.embedding)
    drafter = TrainedDrafter(network_of(file, network.ends, network.slots.room + SPARE), model)
    if model.device is not None:
        model.device.draft_with(drafter.network)
    return drafter


def examine(lm: LM, text: str = SAMPLE, thorough: bool = False) -> DrafterReport:
    """How well a model's drafter guesses on a text, and whether it would under another reading of its file.

    The target reads the text once; every reading is then compared with what the target holds likeliest after each of
    its tokens. Where the file as it stands does badly, or if `thorough`, all readings are tried.

    Cost: a few forwards of the target over the text, and some 200 of the drafter for each reading.
    """
    model, drafter = lm.model, lm.drafter
    if drafter is None or not isinstance(model, CachedModel) or not isinstance(model.network, Llama):
        raise BadRequest(f"{lm.name} has no trained drafter to examine; load it with draft=FOLDER.")
    network, file, pool = model.network, drafter.network.file, model.network.slots
    tokens = list(lm.vocabulary.encode(text))[:LONGEST]
    if len(tokens) < LEAST:
        raise BadRequest(f"the text has {len(tokens)} tokens; expected at least {LEAST} to measure a drafter on.")
    on_host = network.ends.device.type == "cpu"  # graphs note what they were captured for
    numbers = sorted({n for _, other in _all_readings(file, network.shape, on_host) for n in other.spec.states})
    noted, last = pool.noted, network.layers
    model.forget()
    if on_host:
        pool.keep_states([LAST if n == last else n for n in numbers], network.ends.embedding)
    session = model.open(tokens[:1])
    try:
        best = _read(model, session, tokens)
        side_by_side = model.states(session, 0, tokens, 0)
    finally:
        session.close()
        model.forget()
        if on_host:
            pool.keep_states(noted, network.ends.embedding)
    assert side_by_side is not None
    kept = numbers if on_host else [last if n == LAST else n for n in noted]
    states = dict(zip(kept, side_by_side.chunk(len(kept), -1), strict=True))

    def measure(words: str, other: DrafterFile) -> Fit:
        if not set(other.spec.states) <= set(states):
            return Fit(words, other, ())
        return fit(words, other, network.ends, tokens, best, states)

    return examined(file, network.shape, measure, thorough)


def _read(model: CachedModel, session: Session, tokens: list[int]) -> list[int]:
    """Have the target read a text of which a session has the first token; its best token after each."""
    best: list[int] = []
    for first in range(1, len(tokens), READ):
        tree = Tree.chain([chosen(token) for token in tokens[first : first + READ]])
        (scores,) = model.score([ScoreRequest(session, tree)])
        best = [*best[: first - 1], scores.leaf[0].best, *(law.best for law in scores.after)]
        session.keep(tree, [len(tree) - 1], [None])
    return best


def fitted(lm: LM, text: str = SAMPLE) -> tuple[LM, list[str]]:
    """The model with its drafter read in the way that fits it best, and what there is to say of it."""
    report, lines = examine(lm, text), [lm.drafter.network.spec.title if lm.drafter else ""]
    best = report.best
    if best is not report.told:
        lines.append(f"{report.told}. It is read with {best} of the time ahead, which fits better")
        assert isinstance(lm.model, CachedModel)
        lm = replace(lm, drafter=attached(lm.model, best.file))
    else:
        lines[0] += f"; its guesses one, two, … tokens ahead are right {best.rates} of the time on a sample text"
    if report.stranger:
        lines.append("warning: its guesses are hardly ever right, so it was probably trained for another model")
    return lm, lines


def _all_readings(file: DrafterFile, shape: Shape, shifted: bool) -> list[tuple[str, DrafterFile]]:
    return [("", file), *(readings(file, shape) if shifted else [])]
