"""A causal model that also fills holes: what is left of the window is its text, what is in the window is scratch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...core.canvas import Field
from ...core.errors import BadRequest
from ...core.law import Law
from ...models.shape import DiffusionSpec
from ..cache.cached_model import CachedModel
from ..cache.forward_request import Executor, ForwardRequest
from ..cache.sequence import CachedSequence, CachedSession
from ..engine.contracts import LookRequest, ScoreRequest, Session
from ..network.network import Network, Stages, unpaused
from .denoise_batch import DenoiseBatch, Denoiser, EagerDenoiser, batch_of, waves


class BlockDiffusionModel(CachedModel):
    """A network that reads text from left to right and fills the window behind it, in the layout it was trained for.

    What a look needs of the text left of its window is computed with it, in the same forward, and stays on the page of
    its session: a finished block costs no forward of its own, and its keys are exactly those of plain reading. The
    texts of the session itself are not changed by a look; both use what the other has computed. In the layout "blocks"
    what stays is whole blocks, and nothing is read from left to right. Nothing that was computed of a window outlives
    the look, so `fresh`, `seen` and `renew` are ignored.

    A look `along` an order is answered by one copy of the window for each of its places, with those from there on
    blank. Where the places simply come next, all is told by one copy: read as text if the read-out is shifted, and in
    the layout "causal" as text with a hole beside each token, which sees what comes before it. A look with trials has a
    copy for each.
    """

    keeps_keys = False

    def __init__(
        self,
        network: Network,
        filling: DiffusionSpec,
        prefix_cache: int = 0,
        executor: Executor | None = None,
        denoiser: Denoiser | None = None,
    ) -> None:
        super().__init__(network, prefix_cache, executor)
        self.filling = filling
        self._denoiser: Denoiser = EagerDenoiser(network, filling) if denoiser is None else denoiser
        self._pages: dict[CachedSession, CachedSequence] = {}

    def look(self, asked: Sequence[LookRequest]) -> list[Field]:
        fields: dict[int, Field] = {}
        for wave in waves(asked):
            batches = {n: self._batch(asked[n]) for n in wave if asked[n].look.places}
            try:
                scores = unpaused(self._computed(list(batches.values())))
            finally:
                for n in batches:
                    self._shared(asked[n], batches[n])
            for (n, batch), lines in zip(batches.items(), scores, strict=True):
                fields[n] = _field(asked[n], lines, batch, self.filling)
        return [fields.get(n) or Field({}) for n in range(len(asked))]

    def looking(self, ask: LookRequest) -> Stages[Field]:
        """Answer one look in stages."""
        if not ask.look.places:
            return Field({})
        batch = self._batch(ask)
        try:
            (lines,) = yield from self._computed([batch])
        finally:
            self._shared(ask, batch)
        return _field(ask, lines, batch, self.filling)

    def _batch(self, ask: LookRequest) -> DenoiseBatch:
        """The batch of a look on the page of its session, with all that is computed of its text already."""
        batch = batch_of(ask.look, self.filling)
        session = ask.session
        assert session is None or isinstance(session, CachedSession)
        page = CachedSequence([])
        if session is not None:
            page = self._pages.setdefault(session, CachedSequence([], owner=session.leaves[0].owner))
        text = list(batch.text)
        if _common(page, text) < len(text):
            self._follow(page, text, [] if session is None else session.leaves)
        known = min(len(page.slots), len(text))
        if not batch.spans:
            known = min(known, batch.start - 1)  # laws are read from the last token before it on
        elif any(batch.at_text(self.filling)) and (len(page.slots) > len(text) or page.law is None):
            known = min(known, len(text) - 1)
        known = self.filling.whole(known)
        if known < len(text):
            self._cut(page, known)
        batch.page, batch.owed = page, text[known:]
        return batch

    def _follow(self, page: CachedSequence, text: list[int], leaves: list[CachedSequence]) -> None:
        """Turn a page to this text, with the longest beginning that it, or another text, has computed."""
        common = self.filling.whole(_common(page, text))
        other = max(leaves, key=lambda leaf: _common(leaf, text), default=None)
        found = [] if other is None else other.slots[: _common(other, text)]
        noted = self._prefixes.longest(text, len(text), page.owner)
        law = None
        if len(noted) > len(found):
            found = noted
        elif other is not None and len(found) == len(other.tokens):
            law = other.law
        found = found[: self.filling.whole(len(found))]
        self._cut(page, common)
        if len(found) > common:
            self.slots.share(found[common:])
            page.slots += found[common:]
            page.tokens, page.law = text[: len(found)], law

    def _cut(self, page: CachedSequence, size: int) -> None:
        if size < len(page.slots):
            self.slots.drop(page.slots[size:])
            del page.slots[size:], page.tokens[size:]
            page.law = None
            self.executor.forget(page, size)

    def _shared(self, ask: LookRequest, batch: DenoiseBatch) -> None:
        """Let the session's texts, or nobody, go on from what is on the page now."""
        if ask.session is None:
            self._cut(batch.page, 0)
            return
        assert isinstance(ask.session, CachedSession)
        for leaf in ask.session.leaves:
            self._adopt(leaf, batch.page)

    def _adopt(self, leaf: CachedSequence, page: CachedSequence) -> None:
        """Let a text use what is computed of it on a page; its last token only together with the law after it."""
        if leaf.drafts or not leaf.owed or not self.filling.reads:
            return
        common, last = _common(page, leaf.tokens), len(leaf.tokens)
        whole = common == last == len(page.tokens) and page.law is not None
        end = common if whole else min(common, last - 1)
        if end > len(leaf.slots):
            self.slots.share(page.slots[len(leaf.slots) : end])
            leaf.slots += page.slots[len(leaf.slots) : end]
            leaf.law, leaf.hidden = (page.law if whole else None), {}

    # ---- the forward

    def _computed(self, batches: list[DenoiseBatch]) -> Stages[list[Tensor]]:
        """The scores that every batch wants, a line for each place."""
        done = False
        try:
            for batch in batches:
                last = batch.page.slots[batch.known - 1] if batch.known else None
                batch.slots = self.take(len(batch), last)
            logits = yield from self._denoiser.stages(batches)
            done = True
        finally:
            for batch in batches:
                self.slots.drop(batch.slots[len(batch.owed) if done else 0 :])
        return [self._told(batch, lines) for batch, lines in zip(batches, logits, strict=True)]

    def _told(self, batch: DenoiseBatch, lines: Tensor) -> Tensor:
        """Turn the page, and give every place its line."""
        page, owed = batch.page, batch.owed
        if owed:
            page.tokens += owed
            page.slots += batch.slots[: len(owed)]
            page.law = Law(lines[0])
            lines = lines[1:]
            if len(owed) > 1:
                self._prefixes.note(page)
        at_text = batch.at_text(self.filling)
        if not any(at_text):
            return lines
        assert page.law is not None
        own = iter(lines)
        return torch.stack([page.law.scores if is_text else next(own) for is_text in at_text])

    def owed(self, session: Session) -> int:
        return super().owed(session) if self.filling.reads else 0

    def requests(self, asked: Sequence[ScoreRequest]) -> list[list[ForwardRequest]]:
        """What a forward has to add, beside what looks have computed of these texts already."""
        if not self.filling.reads:
            raise BadRequest(
                "the method reads left to right, but this model only fills holes; choose one that does too"
            )
        for ask in asked:
            assert isinstance(ask.session, CachedSession)
            page = self._pages.get(ask.session)
            if page is not None:
                for leaf in ask.session.leaves:
                    self._adopt(leaf, page)
        return super().requests(asked)

    def closed(self, session: CachedSession) -> None:
        """Forget a session; the longer of its first text and its page stays in the prefix cache."""
        page = self._pages.pop(session, None)
        if page is not None and len(page.slots) > len(session.leaves[0].slots):
            first, session.leaves[0] = session.leaves[0], page
            self._drop_drafts(first)
            self.release(first)
        elif page is not None:
            self.release(page)
        super().closed(session)


def _field(ask: LookRequest, lines: Tensor, batch: DenoiseBatch, filling: DiffusionSpec) -> Field:
    """The answer to a look; what a trial tells is final for nobody."""
    return Field.of(ask.look.places, lines, len(batch), () if ask.look.trials else batch.final(filling))


def _common(leaf: CachedSequence, text: Sequence[int]) -> int:
    """How many computed tokens of a text are the first of another."""
    most = min(len(leaf.slots), len(text))
    if leaf.tokens[:most] == text[:most]:
        return most
    return next(i for i, (mine, other) in enumerate(zip(leaf.tokens, text, strict=False)) if mine != other)
