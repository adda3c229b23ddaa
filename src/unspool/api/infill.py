"""Texts with something behind them: what `Settings(suffix=…)` means to what fills, and to a model that reads."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..core.canvas import frame_size
from ..core.claim import Infilling, Method
from ..core.errors import BadRequest
from ..core.stop import Stop
from ..core.warp.warp import Warp
from ..loops.guard import parts
from ..models.vocabulary import Vocabulary
from ..rules.constrain.constraint import CanvasConstraint, Constrained
from ..runtime.engine.contracts import FillsBlocks
from .settings import Settings

FILLING = "confident"
# How models that were trained to fill in the middle are told what stands on both sides.
MIDDLE = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, CodeGemma
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder
)


class InfillPlan(NamedTuple):
    """A method that knows what stands behind its text, or signs that tell a model which reads; and how far it writes.

    `most` is how many tokens may be written, given ones between holes among them; `behind` how many more there are.
    """

    method: Method
    warp: Warp
    stop: Stop
    most: int
    behind: int = 0
    signs: tuple[int, ...] = ()  # before the prompt, before the suffix, before the text
    suffix: tuple[int, ...] = ()

    def around(self, prompt: tuple[int, ...]) -> tuple[int, ...]:
        """The prompt as the model is to read it."""
        if not self.signs:
            return prompt
        before, behind, middle = self.signs
        return (before, *prompt, behind, *self.suffix, middle)


def usual(model: object, method: str) -> str:
    """The method for a text with something behind it, if none is named: one that fills, where the model does."""
    return FILLING if isinstance(model, FillsBlocks) else method


def infill(settings: Settings, method: Method, vocabulary: Vocabulary) -> InfillPlan:
    """How a request is carried out that says what stands behind its text, if it does.

    On a canvas every hole has exactly as many tokens as told, so that no token ends the text. A grammar that can be
    asked about holes binds what is written together with all that is given between and behind it.
    """
    warp, stop = settings.warp(vocabulary), settings.stop_rule(vocabulary)
    if not settings.suffix:
        return InfillPlan(method, warp, stop, settings.max_tokens)
    if isinstance(method, Infilling):
        frame = settings.frame(vocabulary)
        bound = settings.constraint is not None
        if settings.min_tokens or (bound and not _asked_about_holes(warp)):
            raise BadRequest(
                "suffix cannot be used with min_tokens or with this constraint on a canvas: between given texts every "
                "hole has as many tokens as told, and only a grammar that can be asked about holes knows what they may "
                "be; say it as one, by --cfg FILE or unspool.rules.constrain.cfg",
                param="suffix",
            )
        last = max(n for n, part in enumerate(frame) if isinstance(part, int))
        most = frame_size(frame[: last + 1])
        endless = replace(stop, tokens=frozenset())
        warp = warp if bound else settings.warp(vocabulary, never=stop.tokens)  # no grammar has a token that ends texts
        return InfillPlan(method.framed(frame), warp, endless, most, frame_size(frame) - most)
    known = [tuple(vocabulary.token(sign) for sign in signs) for signs in MIDDLE]
    signs = next((tuple(t for t in found if t is not None) for found in known if None not in found), ())
    if not signs or len(settings.suffix) > 1 or isinstance(settings.suffix[0], int):
        raise BadRequest(
            "the method reads left to right and cannot see what stands behind the text; leave suffix out, use one that "
            "fills holes, such as confident or anyorder with smollm2-diffusion, or, for one hole, a model that was "
            "trained to fill in the middle, such as Qwen2.5-Coder",
            param="suffix",
        )
    (tokens,) = settings.behind(vocabulary)
    assert isinstance(tokens, tuple)
    return InfillPlan(method, warp, stop, settings.max_tokens, 0, signs, tokens)


def _asked_about_holes(warp: Warp) -> bool:
    """Whether all that binds the text can tell if one with holes can be completed."""
    return all(isinstance(part.constraint, CanvasConstraint) for part in parts(warp) if isinstance(part, Constrained))
