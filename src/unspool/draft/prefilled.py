"""What the target thought while it read the prompt, given to a drafter that remembers such things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol, runtime_checkable

from ..asks import Scores, Tops
from ..chance import Chance
from ..claim import SEED, Method, claims
from ..errors import BadRequest
from ..option import NODES
from ..tree import Tree
from ..warp.warp import Prefix
from .draft import Draft, Proposing, Source
from .recycle import Recycle

WIDTH = 8


@runtime_checkable
class Listener(Protocol):
    """A source that has a use for the target's likeliest tokens at the places of the prompt."""

    def told(self, text: tuple[int, ...], tops: Tops) -> None:
        """Take note of them, after the first round."""
        ...


def build(nodes: Annotated[int, NODES] = 24) -> Method:
    """Token recycling that starts with the prompt's rows, under the walk."""
    from ..decode.speculate import Speculate

    return Speculate(Prefilled(Recycle()), budget=nodes)


@claims(
    SEED,
    trials=lambda _: [build(nodes=2), build(nodes=4)],
    build=build,
    paper="2505.13204",
    systems=("Token Recycling, warm from the prompt",),
)
@dataclass(frozen=True)
class Prefilled:
    """`draft`, told after the first round which tokens the target ranked highest at each place of the prompt.

    The laws are there when a prompt is read; here the best 8 tokens of each are kept and noted by token recycling,
    `recall` or STAND as if they had been scored in a round. Of places that a cache held already nothing is known. The
    idea is a remark of AASD's.

    Claim: that of `draft`. Cost: the output layer over the prompt's last 512 tokens, in the forward that reads them.
    """

    draft: Draft

    def begin(self, prefix: Prefix) -> Source:
        """A source that is still to be told."""
        source = self.draft.begin(prefix)
        if not isinstance(source, Listener):
            raise BadRequest(
                f"{type(self.draft).__name__} has no use for the laws of the prompt; "
                "Prefilled takes Recycle, Recall or Stand, or a drafter whose source has a method told(text, tops)"
            )
        return _Telling(source, source)


class _Telling:
    """A source that listens to the first forward, which reads the prompt, and to no other."""

    def __init__(self, source: Source, listener: Listener) -> None:
        self.source, self.listener = source, listener
        self.want: tuple[str, ...] = (f"prompt:{WIDTH}",)

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        return (yield from self.source.propose(prefix, budget, chance))

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        if self.want:
            self.listener.told(prefix.text, scores.tops)
            self.want = ()
        self.source.learn(prefix, tree, scores)
