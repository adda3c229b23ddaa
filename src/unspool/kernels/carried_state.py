"""What a token leaves to those that follow it in recurrent layers: states by number, and who goes on from which.

`before[t]` ≥ 0 is the token of the batch that token t follows, and ~c says that it goes on from state c. `into[t]` is
the number of the state that it leaves, −1 if it leaves none; a token leaves one if another follows it that does not
stand right behind it. No number that is written is read in the same launch, unless by a token that follows the one
which has written it, or by the token itself.
"""

from collections.abc import Callable

import triton
import triton.language as tl
from torch import Tensor

from .kernel_rows import Rows


@triton.jit
def entered(carried, states, stride, at, inside, above, token, begins, into):
    """The state [values, keys] that a token goes on from: the one carried, if it follows the token right before it.

    `states` are those of one head, `stride` numbers apart, and `at` the places of its numbers within one.
    """
    if begins | (above != token - 1):
        number = ~above
        if above >= 0:
            number = tl.load(into + above)
        tl.debug_barrier()  # what this program has written for another branch, it reads again
        carried = tl.load(states + number.to(tl.int64) * stride + at, mask=inside, other=0.0)
    return carried


@triton.jit
def left(carried, states, stride, at, inside, token, into):
    """Store the state that a token leaves, if it leaves one."""
    number = tl.load(into + token)
    if number >= 0:
        tl.store(states + number.to(tl.int64) * stride + at, carried, mask=inside)


@triton.jit
def softplus(x):
    """log(1 + exp(x)), small results as exact as large ones."""
    small = tl.exp(-tl.abs(x))
    return tl.maximum(x, 0.0) + tl.where(small < 1e-3, small - 0.5 * small * small, tl.log(1.0 + small))


def real_tokens(rows: Rows) -> list[int]:
    """The numbers of all tokens that are not padding."""
    return [row * rows.tokens + i for row in range(rows.number) for i in range(int(rows.count[row]))]


def walked(rows: Rows, states: Tensor, passed: Callable[[int, Tensor], Tensor]) -> None:
    """For references: every token is passed the state it follows; what it makes of it is stored where it leaves one."""
    found = dict[int, Tensor]()
    assert rows.before is not None
    assert rows.into is not None
    for token in real_tokens(rows):
        above = int(rows.before[token])
        found[token] = passed(token, found[above] if above >= 0 else states[~above])
        if int(rows.into[token]) >= 0:
            states[int(rows.into[token])] = found[token]
