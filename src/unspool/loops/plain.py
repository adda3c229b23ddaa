"""Plain decoding: one token per forward, the measure of everything else."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from ..core.asks import Ask, Decoding, Done, Emit, Write, Written
from ..core.chance import Chance
from ..core.claim import Method
from ..core.stop import Cut, Stop, Tail
from ..core.warp.warp import Prefix, Warp

AHEAD = 32  # tokens that a model on a device may write before it looks up


def write_on(
    prefix: Prefix, chance: Chance, stop: Stop, tail: Tail, most: int = AHEAD, ahead: int = 0
) -> Generator[Ask, Any, tuple[Prefix, Cut]]:
    """Write at most so many tokens, or fewer, and hand them out; the text as it is then, and whether it has ended."""
    written: Written = yield Write(prefix, chance, int(min(most, prefix.left)), ahead, stop.tokens)
    if not written.rounds:
        cut = stop.cut(tail, written.tokens)
        yield Emit(cut.kept, written.before, written.after, rounds=len(cut.kept))
        return prefix.then(cut.kept), cut
    at = 0
    for drafted, gained in written.rounds:
        cut = stop.cut(tail, written.tokens[at : at + gained])
        yield Emit(cut.kept, (), (), drafted=drafted, accepted=min(gained - 1, len(cut.kept)))
        prefix, tail, at = prefix.then(cut.kept), cut.tail, at + gained
        if cut.reason:
            break
    return prefix, cut


@dataclass(frozen=True)
class Plain:
    """Write on until told to stop."""

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        tail = stop.start()
        prefix = Prefix.of(text, warp, stop.left(tail))
        while True:
            prefix, (_, reason, tail, trim) = yield from write_on(prefix, chance, stop, tail)
            if reason:
                return Done(prefix.text[len(text) :], reason, trim)


def plain() -> Method:
    """Draw each token from the target's law after all warps, and go on from there.

    All other methods are held against it: exact ones write its text or keep its law, and every speed-up is over its
    time, measured in the same run.

    Claim: SEED, by definition; `prove` compares it with a reference that shares none of its code.
    Cost: one forward per token.
    """
    return Plain()
