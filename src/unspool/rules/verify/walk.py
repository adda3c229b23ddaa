"""The walk as a rule of the registry; the function is in the core, since plain decoding is a walk down nothing."""

from __future__ import annotations

from ...core.claim import SEED, claims
from ...core.walk import walk as walk
from .trials import drafted

claims(SEED, trials=drafted, systems=("sampler match (llama.cpp, mlx-lm)",), family="verify")(walk)
