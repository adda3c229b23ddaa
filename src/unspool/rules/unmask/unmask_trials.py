"""What rules that branch much are put to the test on: texts of a token or two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...core.asks import Decoding
from ...core.chance import Chance, TooManyBranches
from ...core.claim import Method
from ...core.stop import Stop
from ...core.warp.warp import Warp


@dataclass(frozen=True)
class Brief:
    """`make(size)` on a canvas as long as the text, which is at most `most` tokens; longer ones are not followed."""

    make: Callable[[int], Method]
    most: int = 2

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        if stop.most is None or stop.most > self.most:
            raise TooManyBranches(self.most)
        return self.make(stop.most)(text, chance, warp, stop)
