"""The race: sample matching in which tokens race instead of one uniform number, so that like laws choose alike."""

from __future__ import annotations

from ...core.asks import Verdict, Verify
from ...core.chance import Chance
from ...core.claim import LAW, Method, claims
from ...core.race import Racing
from ...core.verifier import sample_match, token_by_token
from ...core.warp.warp import Scored
from ...loops.speculate import Speculate
from .. import draft


def _trials(verify: Verify) -> list[Method]:
    return [Speculate(draft.Lookup(ngram=1, least=1, depth=2), verify), Speculate(draft.Chain(depth=1), verify)]


@claims(LAW, trials=_trials, paper="2408.07978", systems=("Drafter-invariant speculation (verification)",))
@token_by_token
def race(scored: Scored, chance: Chance) -> Verdict:
    """At each node take y = argmin Eᵧ / P(y), with the waiting times E of its position; if y was drafted go there.

    E are independent exponentials that depend on seed and position alone. A drafter that races with the same E (see
    `raced`) is right with probability Σ over x of 1 / Σ over y of max(P(y)/P(x), Q(y)/Q(x)) ≥ (1 − TV)/(1 + TV).

    Claim: LAW. And one seed gives one text with any drafter, none included; plain decoding draws by inversion, though,
    so it is another text than plain decoding's. Cost: an exponential per token of the vocabulary and accepted token.
    """
    return sample_match(scored, Racing(chance))
