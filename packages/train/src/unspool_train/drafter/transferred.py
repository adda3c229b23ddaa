"""Hidden Transfer (arXiv 2404.12022): masks are handed the state of the token before them, in the middle of the model.

Beside a text every block of places has masks, as in packed_masks.py. The s-th of a block holds, from layer t_s on, what
a matrix of its own makes of the state that enters this layer at the last token before the block; t_s grows with s.
Nothing but these matrices learns, and the model stays as it is. They begin as the identity: masks begin as that token.

The paper computes nothing of a mask below its layer; here the forward that verifies computes all of it, and what stands
below is thrown away. Layers are chosen by a fixed rule, from a quarter of the model on; the paper searches for them.
The file is a delta, and `unspool run -m FILE --method masks` drafts with it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ..teacher import Teacher
from .consistency import Laid
from .packed_masks import PackedMasks


def transfer_layers(layers: int, count: int) -> tuple[int, ...]:
    """The layers at which so many masks are handed states: from a quarter of all on, every second one or every one."""
    first, step = max(layers // 4, 1), 2 if layers >= 4 * count + 4 else 1
    return tuple(min(first + step * number, layers - 1) for number in range(count))


class Transferred(PackedMasks):
    """The target with masks that are handed states: a matrix and a bias for each place of a block learn."""

    def __init__(self, teacher: Teacher, block: int, seed: int) -> None:
        super().__init__(teacher, block, seed, factors=False)
        dim, like = self.frozen.shape.dim, self.frozen.embedding
        self.layers = transfer_layers(self.frozen.shape.layers, block)
        self.mask = self.tensors["mask"].detach()  # which shows through nowhere
        self.tensors = {}
        for number in range(block):
            eye = torch.eye(dim, device=like.device)
            self.tensors[f"transfer.{number}.weight"] = eye.requires_grad_()
            self.tensors[f"transfer.{number}.bias"] = torch.zeros(dim, device=like.device).requires_grad_()

    def embedded(self, tokens: Tensor) -> Tensor:
        words = self.teacher.embedding[tokens.clamp(min=0)]
        return torch.where((tokens < 0)[..., None], self.mask.to(words), words)

    def entering(self, index: int, x: Tensor, laid: Laid) -> Tensor:
        width = x.shape[1] // 2
        for number in (n for n, layer in enumerate(self.layers) if layer == index):
            at = laid.inside[number :: self.block]
            states = x[:, at - 1 - number]  # of the token before the block
            weight, bias = (self.tensors[f"transfer.{number}.{part}"].to(x.dtype) for part in ("weight", "bias"))
            x = x.index_copy(1, width + at, functional.linear(states, weight, bias))
        return x

    def stored(self) -> dict[str, Tensor]:
        found = {f"model.{name}": tensor.detach().to(torch.float16).cpu() for name, tensor in self.tensors.items()}
        return found | {"model.mask": self.mask.to(torch.float16).cpu()}

    def about(self) -> dict[str, str]:
        return super().about() | {"transfers": ",".join(map(str, self.layers))}
