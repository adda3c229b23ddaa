"""Plain decoding as a rule of the registry; the loop itself is in `unspool.loops.plain`."""

from __future__ import annotations

from ...core.claim import SEED, claims
from ...loops.plain import plain as plain

claims(SEED, trials=lambda rule: [rule()], systems=("Autoregressive sampling", "Greedy decoding"), family="decode")(
    plain
)
