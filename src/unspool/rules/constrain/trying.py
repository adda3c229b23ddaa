"""The loop of samplers that learn from try to try: walk down a trie, remember the way, begin anew if need be."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field

from torch import Tensor

from ...core.asks import Decoding
from ...core.chance import At, Chance, Role
from ...core.claim import Branching, Learning, Method
from ...core.errors import EmptyLaw
from ...core.law import Law
from ...core.option import expect, whole
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ..search.beam_cache import BeamCache
from ..search.search_text import Text, told
from .futures import FutureNode, Futures, Visit
from .parted import meets, parted, timely

RECENT = 64  # beginnings that stay in the model, so that the next try need not read them again


@dataclass(frozen=True)
class Trying(Branching, Learning):
    """Draws whole texts until one meets the request's constraint; what each has seen is learnt when it ends.

    A text that a stop string cuts off is not whole: it meets no constraint, and another is drawn.
    """

    futures: Futures = field(default_factory=Futures)
    tries: int = 64
    rows: int = 0

    def __post_init__(self) -> None:
        name = f"{type(self).__name__.lower()}:tries"
        expect(whole(self.tries, 1), name, self.tries, "a whole number of texts from 1 on")

    @property
    def texts(self) -> int:
        return 2  # the prompt and the text being tried

    @abstractmethod
    def shaped(self, law: Law, mask: Tensor, node: FutureNode | None) -> Law:
        """The law to draw from, by the model's, by what is allowed, and by the node that was there before this try."""

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        return self._until_met(text, chance, warp, stop)

    def _until_met(self, prompt: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        warp, constraint = parted(warp)
        grove, begin = BeamCache(self.rows), Text.begin(prompt, warp, stop)
        recent: dict[tuple[int, ...], Text] = {}
        for number in range(self.tries):
            text, state, node = begin, timely(constraint, stop), self.futures.roots.get(prompt)
            path: list[Visit] = []
            met = True
            while met and text.reason is None:
                if not grove.affords([text]):
                    raise EmptyLaw(
                        f"no text met the constraint within {self.rows} rows ({number} tries); allow more rows."
                    )
                recent[text.tokens] = recent.pop(text.tokens, text)  # the last one now
                if len(recent) > RECENT:
                    del recent[next(iter(recent))]
                (raw,) = yield from grove.score([text], [begin, *recent.values()])
                law = text.prefix.shape(raw)
                at = At(len(text.prefix), Role.PICK, number)
                if state is None:
                    text = text.then(law.draw(chance, at).token, raw, law, stop)
                    continue
                mask = state.mask()
                some = law.only(mask.to(law.scores.device))
                allowed = 0.0 if some.is_empty() else math.exp(some.log_z - law.log_z)
                shaped = self.shaped(law, mask, node)
                token = None if shaped.is_empty() else shaped.draw(chance, at).token
                if token is None and not path:
                    raise EmptyLaw(
                        "no text can meet the constraint: every way was tried. Allow more tokens, a higher temperature "
                        "or fewer truncations, leave out stop strings that cut texts off, or loosen the constraint."
                    )
                met = token is not None and bool(mask[token])
                if token is None or not met:
                    path.append(Visit(allowed))
                    break
                path.append(Visit(allowed, token, law[token]))
                text, state = text.then(token, raw, law, stop), state.step(token)
                node = node.kids.get(token, (0.0, None))[1] if node is not None else None
                met = text.reason is None or meets(state, text.reason)
            if path:
                self.futures.learn(prompt, path, met)
            if met:
                return (yield from told([text], grove.forwards))
        raise EmptyLaw(
            f"none of {self.tries} tries met the constraint; allow more tries. What they have seen is kept, so "
            "later ones are more likely to."
        )


def fresh(rule: type[Trying]) -> Method:
    """The rule with nothing learnt yet, so that every branch of a proof begins alike."""
    return lambda text, chance, warp, stop: rule()(text, chance, warp, stop)
