"""Greedy verification and sample matching on the device: from scores of drafted trees to what is kept."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .pick import pick
from .pick import reference as pick_reference


@dataclass(frozen=True)
class Verdicts:
    """What a rule says about R drafted trees, as one int32 tensor [R, 3 + 2·T] to be copied to the host at once.

    A row holds the last accepted token's index in its row, the token after it, how many tokens that makes, and then the
    bits of each new token's log-probabilities before and after the temperature. Where the scores after it are such that
    `Law` would refuse them, the token after it is −1; where no token is possible, −2.
    """

    packed: Tensor

    @property
    def nodes(self) -> Tensor:
        """The index in its row of each last accepted token [R]."""
        return self.packed[:, 0]

    @property
    def tokens(self) -> Tensor:
        """The token after each of them [R]."""
        return self.packed[:, 1]

    @property
    def lengths(self) -> Tensor:
        """How many tokens each row gains [R]: those accepted and one more."""
        return self.packed[:, 2]

    @property
    def logprobs(self) -> Tensor:
        """log p of the new tokens, before and after the temperature [R, T, 2]; NaN behind the last of them."""
        number, wide = self.packed.shape
        return self.packed[:, 3:].view(torch.float32).reshape(number, wide // 2 - 1, 2)


@triton.jit
def _follow(
    picks, logprobs, drafted, parents, roots, count, packed, floats, tokens, wide,
    block: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    row = tl.program_id(0)
    j = tl.arange(0, block)
    there = j < tl.load(count + row)
    pick_ = tl.load(picks + row * tokens + j, mask=there, other=-1)
    token_ = tl.load(drafted + row * tokens + j, mask=there, other=-2)
    above = tl.load(parents + row * tokens + j, mask=there, other=-2)
    before = tl.load(logprobs + 2 * (row * tokens + j), mask=there, other=0.0)
    after = tl.load(logprobs + 2 * (row * tokens + j) + 1, mask=there, other=0.0)
    node = tl.load(roots + row)
    depth = tl.full([], 0, tl.int32)
    more = tl.full([], 1, tl.int32)
    token = tl.full([], -1, tl.int32)
    tl.store(floats + row * wide + 3 + j, float("nan"), mask=j < tokens)
    tl.store(floats + row * wide + 3 + tokens + j, float("nan"), mask=j < tokens)
    tl.debug_barrier()
    while more == 1:
        here = j == node
        token = tl.sum(tl.where(here, pick_, 0), 0)
        tl.store(floats + row * wide + 3 + 2 * depth, tl.sum(tl.where(here, before, 0.0), 0))
        tl.store(floats + row * wide + 4 + 2 * depth, tl.sum(tl.where(here, after, 0.0), 0))
        broken = tl.sum(tl.where(here & ((before != before) | (after != after)), 1, 0), 0)
        token = tl.where(broken > 0, -1, token)
        token = tl.where(tl.sum(tl.where(here & (after == float("-inf")), 1, 0), 0) > 0, -2, token)
        kid = tl.min(tl.where((above == node) & (token_ == token), j, block), 0)
        depth += 1
        more = tl.where(kid < block, 1, 0)
        node = tl.where(kid < block, kid, node)
    tl.store(packed + row * wide, node)
    tl.store(packed + row * wide + 1, token)
    tl.store(packed + row * wide + 2, depth)


def verify(
    logits: Tensor,
    tokens: Tensor,
    parents: Tensor,
    roots: Tensor,
    count: Tensor,
    temperature: Tensor,
    uniforms: Tensor,
    bars: Tensor | None = None,
) -> Verdicts:
    """Follow each row's picks down its tree: `verify.greedy` where the temperature is 0, else `verify.sample_match`.

    logits [R·T, vocab] are the scores after every token of a batch. tokens and parents [R·T] are int32, a parent being
    an index in the row; roots [R] is the index of each text's last token, whose parent is never asked for. temperature,
    uniforms, count and bars as `pick` takes them; the numbers of a node are those of PICK at the position after it.
    Cost: logits once; three launches and one small copy, whatever was drafted.
    """
    picks, logprobs = pick(logits, temperature, uniforms, count, bars)
    number = count.shape[0]
    each = logits.shape[0] // number
    packed = torch.empty(number, 3 + 2 * each, dtype=torch.int32, device=logits.device)
    chain = chained()
    _follow[(number,)](
        picks, logprobs, tokens, parents, roots, count, packed, packed.view(torch.float32), each, 3 + 2 * each,
        block=triton.next_power_of_2(each), num_warps=1, chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return Verdicts(packed)


def reference(
    logits: Tensor,
    tokens: Tensor,
    parents: Tensor,
    roots: Tensor,
    count: Tensor,
    temperature: Tensor,
    uniforms: Tensor,
    bars: Tensor | None = None,
) -> Verdicts:
    """The same, node by node."""
    picks, logprobs = pick_reference(logits, temperature, uniforms, count, bars)
    number = count.shape[0]
    each = logits.shape[0] // number
    packed = torch.zeros(number, 3 + 2 * each, dtype=torch.int32)
    found = Verdicts(packed)
    found.logprobs.fill_(float("nan"))
    for row in range(number):
        first, node, depth = row * each, int(roots[row]), 0
        while True:
            token = int(picks[first + node])
            found.logprobs[row, depth] = logprobs[first + node].cpu()
            depth += 1
            kids = (j for j in range(int(count[row])) if int(parents[first + j]) == node)
            kid = next((j for j in kids if int(tokens[first + j]) == token), None)
            if kid is None:
                break
            node = kid
        packed[row, :3] = torch.tensor([node, token, depth])
    return Verdicts(packed.to(logits.device))
