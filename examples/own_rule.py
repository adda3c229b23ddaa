"""A drafter of your own: proved on small worlds first, then used."""

from dataclasses import dataclass

import unspool
from unspool import Drawn, Law, Memoryless, Speculate, Tree


@dataclass(frozen=True)
class Echo(Memoryless):
    """Draft the last `depth` tokens once more."""

    depth: int = 4

    def propose(self, prefix, budget, chance):
        """The tokens, as point masses: they were chosen, not drawn."""
        yield from ()
        return Tree.chain([Drawn(x, Law.point(x)) for x in prefix.text[-min(self.depth, budget) :]])


proof = unspool.prove(Speculate(Echo(2), budget=2), unspool.SEED, quick=True)
print(f"same seed, same text: {proof.ok}, in {proof.branches:,} branches of {proof.cases} cases")
lm = unspool.load("smollm2")
echoes = " ".join(["echo"] * 8)
print(lm.generate(echoes, method=Speculate(Echo(4)), max_tokens=24, raw=True).trace)
