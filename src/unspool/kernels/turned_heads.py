"""Queries, keys and values of tokens, made, turned by place and put in slots; in one launch where tokens are few."""

import torch
from torch import Tensor

from .few_tokens import few_tokens
from .linear import linear
from .rope import RopeTurn, rope
from .tile import cut_for, steady_cut


def heads(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    norm: Tensor | None,
    eps: float,
    turn: RopeTurn,
    head_norm: Tensor | None = None,
    block: int | None = None,
    steady: bool = False,
) -> Tensor:
    """`rope` of `linear`: turned queries [n, heads, width] of tokens x [n, in]; keys and values are put in slots.

    Places and slots were there before the last kernel of PyTorch's own, which waits for all. `block` as in `rope`.
    Cost: one launch where few tokens are multiplied at once and heads are not normed, else two or three.
    """
    n, (kv_heads, _, width) = len(x), turn.keys.shape
    cut = (steady_cut if steady else cut_for)(weight.shape[0], x.shape[1], n, x.dtype, False)
    if head_norm is None and cut.at_once and cut.block > 1 and width % 2 == 0:
        shape = n, weight.shape[0] // width - 2 * kv_heads, width
        queries = torch.empty(shape, dtype=x.dtype, device=x.device)
        return few_tokens(x, weight, bias, None, norm, eps, None, None, queries, cut, turn)
    qkv = linear(x, weight, bias, norm=norm, eps=eps, steady=steady)
    return rope(qkv, head_norm, eps, *turn, block)
