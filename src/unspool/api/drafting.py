"""A model's draft models in its own tokens, whatever vocabulary they have themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.errors import BadRequest
from ..models.align import Alignment, Kinship, align
from ..runtime.draft_bridge.best_effort import quiet
from ..runtime.draft_bridge.retokenised import RetokenisedDraft
from ..runtime.draft_bridge.shared_vocabulary import SharedVocabularyDraft
from ..runtime.draft_bridge.string_level import StringLevelDraft
from ..runtime.engine.contracts import Causal

if TYPE_CHECKING:
    from ..runtime.drafter.drafter_model import TrainedDrafter
    from .lm import LM


def alignments_of(target: LM) -> dict[str, Alignment]:
    """How the tokens of its draft model, and of that one's own, are related to the target's."""
    found = {}
    for name, lm in _drafts(target).items():
        try:
            found[name] = align(target.vocabulary, lm.vocabulary)
        except BadRequest as error:
            raise BadRequest(f"{lm.name} cannot draft for {target.name}: {error}") from None
    return found


def drafts_of(target: LM) -> dict[str, Causal]:
    """The models that draft, by the names that methods ask for, by its `alignments`."""
    models: dict[str, Causal] = {}
    for name, lm in _drafts(target).items():
        found = target.alignments[name]
        models[name] = quiet(_drafting(lm.model, found))
        if name == "draft":  # for methods that draft text instead of tokens
            models["slem"] = quiet(RetokenisedDraft(lm.model, found))
            models["slrs"] = quiet(StringLevelDraft(lm.model, found))
    return models


def following(drafter: TrainedDrafter) -> Causal:
    """A trained drafter as the model that methods ask for."""
    return quiet(drafter)


def _drafts(target: LM) -> dict[str, LM]:
    small = None if target.draft is None else target.draft.draft
    return {name: lm for name, lm in (("draft", target.draft), ("small", small)) if lm is not None}


def _drafting(model: Causal, found: Alignment) -> Causal:
    """A draft model in the target's tokens, in the way in which the two vocabularies are related."""
    match found.kinship:
        case Kinship.SAME:
            return model
        case Kinship.STRINGS:
            return StringLevelDraft(model, found)
        case _:
            return SharedVocabularyDraft(model, found)
