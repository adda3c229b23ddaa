"""Addressed randomness on the device: the numbers of `Philox.uniform`, bit for bit, from the same addresses."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..core.chance import At, Philox, Role
from .draft_chain import chained, start, wait

BLOCK = 256  # numbers per program


@triton.jit(do_not_specialize=["word"])
def _uniforms(
    seed, stream, position, rounds, out, n, word,
    rounded: tl.constexpr, block: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    row = tl.program_id(0) * block + tl.arange(0, block)
    inside = row < n
    key = tl.load(seed + row, mask=inside, other=0).to(tl.int64)
    mask = tl.full([block], 0xFFFFFFFF, tl.int64)
    j, k = key & mask, (key >> 32) & mask
    # Words are 32 bits wide but are held, as `philox` does on tensors, in 64: a product wraps round and what is
    # shifted into it is masked away.
    a = tl.load(position + row, mask=inside, other=0).to(tl.int64)
    b = tl.zeros([block], tl.int64)
    if rounded:
        b = tl.load(rounds + row, mask=inside, other=0).to(tl.int64)
    c = tl.zeros([block], tl.int64) + word
    d = tl.load(stream + row, mask=inside, other=0).to(tl.int64) & mask
    for _ in tl.static_range(10):
        x = a * tl.full([block], 0xD2511F53, tl.int64)
        y = c * tl.full([block], 0xCD9E8D57, tl.int64)
        a = ((y >> 32) & mask) ^ b ^ j
        b = y & mask
        c = ((x >> 32) & mask) ^ d ^ k
        d = x & mask
        j = (j + tl.full([block], 0x9E3779B9, tl.int64)) & mask
        k = (k + tl.full([block], 0xBB67AE85, tl.int64)) & mask
    tl.store(out + row, ((a << 21) ^ (b >> 11)).to(tl.float64) * 1.1102230246251565e-16, mask=inside)  # 2⁻⁵³


def uniforms(
    seed: Tensor, stream: Tensor, position: Tensor, role: Role, k: int = 0, round: Tensor | None = None
) -> Tensor:
    """The numbers in [0, 1) at n addresses: Philox(seed, stream).uniform(At(position, role, k, round)), float64 [n].

    seed [n] holds the 64 bits of each seed as int64, so one from 2⁶³ on as a negative number; stream, position and
    round [n] are int64 or int32. Without `round` it is 0, as PICK wants it.
    Claim: equal to `Philox.uniform` in every bit. Cost: one launch.
    """
    out = torch.empty(position.shape[0], dtype=torch.float64, device=position.device)
    chain = chained()
    _uniforms[(triton.cdiv(out.numel(), BLOCK),)](
        seed, stream, position, position if round is None else round, out, out.numel(), int(role) << 24 | k,
        rounded=round is not None, block=BLOCK, num_warps=4, chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return out


def reference(
    seed: Tensor, stream: Tensor, position: Tensor, role: Role, k: int = 0, round: Tensor | None = None
) -> Tensor:
    """The same as `uniforms`, by `Philox` itself."""
    rounds = torch.zeros_like(position) if round is None else round
    found = [
        Philox(key, of).uniform(At(place, role, k, begun))
        for key, of, place, begun in zip(
            seed.tolist(), stream.tolist(), position.tolist(), rounds.tolist(), strict=True
        )
    ]
    return torch.tensor(found, dtype=torch.float64, device=position.device)
