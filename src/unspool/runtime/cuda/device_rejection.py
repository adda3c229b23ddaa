"""Rejection on the device: what `verify.rejection` says of chains that a draft model has drawn there."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...core.asks import Check
from ...core.chance import Role
from ...kernels.philox import uniforms
from ...kernels.reject import reject
from ...kernels.verify import Verdicts
from ..cache.logits_row import LogitsAtTemperature
from .graph_bucket import Bucket
from .packing import Packed


def refusable(check: Check, temperature: float) -> bool:
    """True if the device can tell: a chain, drawn from logits at the same temperature as the target's."""
    tree = check.tree
    return tree.parent == tuple(range(-1, len(tree) - 1)) and all(
        isinstance(drawn.law, LogitsAtTemperature) and drawn.law.temperature == temperature for drawn in tree.drawn
    )


def rejected(bucket: Bucket, rows: Sequence[Packed], checks: Sequence[Check], broken: int) -> list[list[int]]:
    """The index of each last accepted token and the token after it, `broken` where scores are, from one small copy."""
    on, wide = bucket.staging.on, bucket.size.tokens
    drafts = torch.empty_like(bucket.logits)
    starts = [0] * bucket.size.rows
    for number, (row, check) in enumerate(zip(rows, checks, strict=True)):
        starts[number] = len(check.prefix)
        for i, drawn in enumerate(check.tree.drawn):
            assert isinstance(drawn.law, LogitsAtTemperature)
            drafts[number * wide + row.root + 1 + i] = drawn.law.logits[drawn.law.number]
    begun = torch.tensor(starts, dtype=torch.int32).to(drafts.device).repeat_interleave(wide)
    seed, stream = (on[name].repeat_interleave(wide) for name in ("seed", "stream"))
    coins = uniforms(seed, stream, on["places"], Role.ACCEPT, round=begun)
    noise = uniforms(seed, stream, on["places"] + 1, Role.RESIDUAL, round=begun)
    found = reject(bucket.logits, drafts, on["tokens"], on["roots"], on["count"], on["temperature"], coins, noise)
    told = Verdicts(found.packed[: len(rows)].cpu())
    verdicts: list[list[int]] = []
    for (node, token, gained), logprobs in zip(told.packed[:, :3].tolist(), told.logprobs, strict=True):
        verdicts.append([node, token if logprobs[:gained].isfinite().all() else broken])
    return verdicts
