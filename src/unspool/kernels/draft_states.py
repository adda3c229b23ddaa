"""What a feature drafter reads: for every token the target's states of the one before it, paired with its embedding."""

from enum import IntEnum

import torch
import triton
import triton.language as tl
from torch import Tensor

from .draft_chain import chained, start, wait
from .norm import scaled, squares


class Keeps(IntEnum):
    """What is kept of states beside their pairs."""

    NOTHING = 0
    GIVEN = 1  # as they are
    NORMED = 2


@triton.jit
def _look_back(
    states, table, lanes, past, slots, parents, places, before, out, tokens, length, number, width, stride,
    block: tl.constexpr, tree: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    at, layer = tl.program_id(0), tl.program_id(1)
    row = at // tokens
    above = tl.full([], -1, tl.int32)
    if tree:
        above = tl.load(parents + at)
        if layer == 0:
            tl.store(before + at, tl.maximum(tl.load(places + at) - 1, 0))
    lane, end = tl.load(lanes + row).to(tl.int64), tl.load(past + row)
    last = tl.load(table + lane * length + end - 1, mask=end > 0, other=0)
    slot = last
    if tree:
        slot = tl.where(above < 0, last, tl.load(slots + row * tokens + above, mask=above >= 0, other=0))
    column = tl.arange(0, block)
    inside = column < width
    source = states + layer.to(tl.int64) * stride + slot.to(tl.int64) * width
    own = tl.load(source + column, mask=inside, other=0.0)
    tl.store(out + (at.to(tl.int64) * number + layer) * width + column, own, mask=inside)


def look_back(
    states: Tensor,
    table: Tensor,
    lanes: Tensor,
    past: Tensor,
    tree: tuple[Tensor, Tensor, Tensor, Tensor] | None = None,
) -> Tensor:
    """The states of the token before each, side by side [n, numbers · width], from where forwards have noted them.

    states [numbers, slots, width]; row r is line lanes[r] of `table`, with past[r] tokens. Without a tree, n is R, and
    the token before is the row's last. With one, its slots, parents and places [R·T] are those of a batch: before a
    node comes its parent, before a root the row's last token; the place before each is written to the last of the four.
    Where no token is before, some state is returned.
    Cost: one launch; reads and writes each state once.
    """
    number, _, width = states.shape
    n = past.shape[0] if tree is None else tree[0].shape[0]
    out = torch.empty(n, number * width, dtype=states.dtype, device=states.device)
    chain, block = chained(), triton.next_power_of_2(width)
    _look_back[(n, number)](
        states, table, lanes, past, *(tree or (past, past, past, past)), out,
        n // past.shape[0], table.shape[1], number, width, states.stride(0),
        block=block, tree=tree is not None, num_warps=max(1, min(8, block // 256)), chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return out


@triton.jit
def _pair(
    tokens, source, embedding, states, word_norm, state_norm, both, kept, each, share, words, width, state_width, eps,
    sourced: tl.constexpr, norms_words: tl.constexpr, norms_states: tl.constexpr, keeps: tl.constexpr,
    words_first: tl.constexpr, word_block: tl.constexpr, state_block: tl.constexpr, chained: tl.constexpr,
):  # fmt: skip
    start(chained)
    wait(chained)
    at = tl.program_id(0).to(tl.int64)
    of = at // share
    token = tl.load(tokens + of * each)
    if sourced:
        of = tl.load(source + at).to(tl.int64)
    token = tl.minimum(tl.maximum(token, 0), words - 1)
    column, state_column = tl.arange(0, word_block), tl.arange(0, state_block)
    inside, state_inside = column < width, state_column < state_width
    word = tl.load(embedding + token.to(tl.int64) * width + column, mask=inside, other=0.0)
    if norms_words:
        factor = tl.load(word_norm + column, mask=inside, other=0.0).to(tl.float32)
        word = scaled(word, tl.sum(squares(word), 0), factor, width, eps)
    state = tl.load(states + of * state_width + state_column, mask=state_inside, other=0.0)
    if keeps == 1:
        tl.store(kept + at * state_width + state_column, state, mask=state_inside)
    if norms_states:
        factor = tl.load(state_norm + state_column, mask=state_inside, other=0.0).to(tl.float32)
        state = scaled(state, tl.sum(squares(state), 0), factor, state_width, eps)
    into = both + at * (width + state_width)
    if words_first:
        tl.store(into + column, word, mask=inside)
        tl.store(into + width + state_column, state, mask=state_inside)
    else:
        tl.store(into + state_column, state, mask=state_inside)
        tl.store(into + state_width + column, word, mask=inside)
    if keeps == 2:
        tl.store(kept + at * state_width + state_column, state, mask=state_inside)


def pair(
    tokens: Tensor,
    states: Tensor,
    embedding: Tensor,
    word_norm: Tensor | None,
    state_norm: Tensor | None,
    eps: float,
    words_first: bool = True,
    keeps: Keeps = Keeps.NOTHING,
    source: Tensor | None = None,
    share: int = 1,
) -> tuple[Tensor, Tensor]:
    """Embeddings and states side by side, each normed where it has a norm [n, width + state width]; the states alone.

    tokens [n], or [n, k] of which the first are meant, are those of `embedding` [words, width]. What is no token counts
    as the first or last one. With `source` [n] the state of pair i is that of this number; with `share` each token and
    its state are in so many pairs, one behind the other. The states alone are only there if it `keeps` them.
    Cost: one launch.
    """
    n, width = (states.shape[0] * share if source is None else source.shape[0]), embedding.shape[1]
    state_width = states.shape[1]
    both = torch.empty(n, width + state_width, dtype=states.dtype, device=states.device)
    kept = torch.empty(n, state_width, dtype=states.dtype, device=states.device) if keeps else states
    chain, block, other = chained(), triton.next_power_of_2(width), triton.next_power_of_2(state_width)
    _pair[(n,)](
        tokens, tokens if source is None else source, embedding, states, embedding if word_norm is None else word_norm,
        states if state_norm is None else state_norm, both, kept, tokens.stride(0), share, embedding.shape[0], width,
        state_width, eps, sourced=source is not None, norms_words=word_norm is not None,
        norms_states=state_norm is not None, keeps=int(keeps), words_first=words_first, word_block=block,
        state_block=other, num_warps=max(1, min(8, block // 256)), chained=chain, launch_pdl=chain,
    )  # fmt: skip
    return both, kept
