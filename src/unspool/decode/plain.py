"""Plain decoding: one token per forward, the measure of everything else."""

from __future__ import annotations

from dataclasses import dataclass

from ..asks import Decoding, Done, Emit, Write, Written
from ..chance import Chance
from ..claim import SEED, Method, claims
from ..stop import Stop
from ..warp.warp import Prefix, Warp

AHEAD = 32  # tokens that a model on a device may write before it looks up


@dataclass(frozen=True)
class Plain:
    """Write on until told to stop."""

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        """Decode after `text` until `stop`."""
        tail = stop.start()
        prefix = Prefix.of(text, warp, stop.left(tail))
        while True:
            written: Written = yield Write(prefix, chance, most=int(min(AHEAD, prefix.left)))
            kept, reason, tail, trim = stop.cut(tail, written.tokens)
            yield Emit(kept, written.before, written.after, rounds=len(kept))
            prefix = prefix.then(kept)
            if reason:
                return Done(prefix.text[len(text) :], reason, trim)


@claims(
    SEED,
    trials=lambda rule: [rule()],
    systems=("Autoregressive sampling", "Greedy decoding"),
)
def plain() -> Method:
    """Draw each token from the target's law after all warps, and go on from there.

    Claim: SEED, by definition; `prove` compares it with a reference that shares none of its code.
    Cost: one forward per token.
    """
    return Plain()
