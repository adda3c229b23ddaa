"""Sample matching as a rule of the registry; its function is in the core: plain decoding matches an empty tree."""

from __future__ import annotations

from ...core.claim import SEED, claims
from ...core.verifier import sample_match as sample_match
from .verify_trials import drafted

claims(SEED, trials=drafted, systems=("sampler match (llama.cpp, mlx-lm)",), family="verify")(sample_match)
