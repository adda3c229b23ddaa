"""The loop of samplers that learn from try to try: walk down a trie, remember the way, begin anew if need be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

from ...core.asks import Decoding
from ...core.chance import At, Chance, Role
from ...core.errors import EmptyLaw
from ...core.law import Law
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ..search.beam_cache import BeamCache
from ..search.search_text import Text, told
from .futures import FutureNode, Futures, Visit
from .parted import parted, timely

RECENT = 64  # beginnings that stay in the model, so that the next try need not read them again

Draw: TypeAlias = Callable[[Law, Tensor, FutureNode | None], Law]
"""The law to draw from, given the model's, what the constraint allows, and the node that was there before this try."""


def trying(
    draw: Draw, futures: Futures, tries: int, rows: int, prompt: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop
) -> Decoding:
    """Draw whole texts until one meets the request's constraint; what each has seen is learnt when it ends."""
    warp, constraint = parted(warp)
    grove, begin = BeamCache(rows), Text.begin(prompt, warp, stop)
    recent: dict[tuple[int, ...], Text] = {}
    for number in range(tries):
        text, state, node = begin, timely(constraint, stop), futures.roots.get(prompt)
        path: list[Visit] = []
        met = True
        while met and text.reason is None:
            if not grove.affords([text]):
                raise EmptyLaw(f"no text met the constraint within {rows} rows ({number} tries); allow more rows.")
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
            shaped = draw(law, mask, node)
            token = None if shaped.is_empty() else shaped.draw(chance, at).token
            if token is None and not path:
                raise EmptyLaw(
                    "no text can meet the constraint: every way was tried. Allow more tokens, a higher temperature or "
                    "fewer truncations, or loosen the constraint."
                )
            met = token is not None and bool(mask[token])
            if token is None or not met:
                path.append(Visit(allowed))
                break
            path.append(Visit(allowed, token, law[token]))
            text, state = text.then(token, raw, law, stop), state.step(token)
            node = node.kids.get(token, (0.0, None))[1] if node is not None else None
            met = text.reason is None or state.complete()
        if path:
            futures.learn(prompt, path, met)
        if met:
            return (yield from told([text], grove.forwards))
    raise EmptyLaw(
        f"none of {tries} tries met the constraint; allow more tries. What they have seen is kept, so later ones are "
        "more likely to."
    )
