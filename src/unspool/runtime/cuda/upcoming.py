"""Which weights are fetched into the cache while a kernel runs that leaves the memory idle.

Weights of few bits are read so fast that what stands between their products takes as long as they do: turns and
attention, norms, the end of one kernel and the start of the next. In that time the first weights of the product to come
are brought into the cache, no more than it holds beside what is read meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.draft_chain import Ahead
from ..network.attention import Attention
from ..network.experts import Experts
from ..network.layer import Layer
from ..network.linear import DenseLinear, GatedMLP, Linear
from .tiled import TILED

MEBIBYTE = 2**20
LINE = 128  # bytes of a line of the cache
WHILE_ATTENDING = 32 * MEBIBYTE  # of the output's weights and the perceptron's
AT_AN_END = 12 * MEBIBYTE
WHILE_ROUTING = 24 * MEBIBYTE  # of the next layer's first weights
FEW = 32  # tokens up to which reading weights is what takes the time
LEAST = 4 * MEBIBYTE  # a smaller matrix is read in the time that its kernel takes to start


class Upcoming:
    """What to fetch behind each matrix, and while a layer attends."""

    def __init__(self, stack: Sequence[Layer], head: Linear) -> None:
        self._after: dict[int, Ahead] = {}
        self._during: dict[int, tuple[Ahead, ...]] = {}
        before: Linear | None = None  # behind whose product the next layer's weights come
        for index, layer in enumerate(stack):
            mixer, mlp = layer.mixer, layer.mlp
            if not isinstance(mixer, Attention):
                before = None
                continue
            self._note(before, mixer.qkv, AT_AN_END if isinstance(before, TILED) else WHILE_ROUTING)
            found = [first_lines(mixer.out, WHILE_ATTENDING)]
            before = mlp.router if isinstance(mlp, Experts) else None
            if isinstance(mlp, GatedMLP) and isinstance(mlp.gate_up, TILED):
                begun = 0 if found[0] is None else found[0].lines
                found += [first_lines(mlp.gate_up, WHILE_ATTENDING - begun * LINE, gated=True)]
                begun = 0 if found[1] is None else found[1].lines
                self._note(mixer.out, mlp.gate_up, AT_AN_END, gated=True, begun=begun)
                self._note(mlp.gate_up, mlp.down, AT_AN_END)
                before = mlp.down
            self._during[index] = tuple(each for each in found if each is not None)
        if isinstance(before, TILED):
            self._note(before, head, AT_AN_END)

    def _note(self, before: Linear | None, matrix: Linear, most: int, gated: bool = False, begun: int = 0) -> None:
        found = first_lines(matrix, most, gated, begun)
        if before is not None and found is not None:
            self._after[id(before)] = found

    def after(self, matrix: Linear, n: int) -> Ahead | None:
        """What the kernel of its product with n tokens has fetched at its end."""
        return self._after.get(id(matrix)) if n <= FEW else None

    def during(self, index: int, n: int) -> tuple[Ahead, ...]:
        """What is fetched while n tokens of this layer attend."""
        return self._during.get(index, ()) if n <= FEW else ()


def first_lines(matrix: Linear, most: int, gated: bool = False, begun: int = 0) -> Ahead | None:
    """The lines of a matrix that are read first, up to so many bytes, behind those that were `begun` with.

    Both halves of a gated one are read at the same time.
    """
    if not isinstance(matrix, (*TILED, DenseLinear)) or most <= 0:
        return None
    number = matrix.weight.nbytes // LINE
    if number * LINE < LEAST:
        return None
    lines = min(most // LINE, number - begun) // 2 * 2
    if lines <= 0:
        return None
    return Ahead(matrix.weight, begun // 2 if gated else begun, lines, number // 2 if gated else 0)
