"""Rotary positions: queries and keys turned by an angle that grows with the token's place."""

from __future__ import annotations

import torch
from torch import Tensor

FIRST_ROWS = 2048


class Rotary:
    """cos and sin for every place, kept in a table that grows when a text does.

    Angles are float32 whatever the network's type, as transformers has them: a float64 network is then the same
    function as the float32 one. The first half of the sines is negated, so that one product adds both halves.
    """

    def __init__(self, frequencies: Tensor, scale: float, dtype: torch.dtype) -> None:
        self._frequencies = frequencies.float()
        self._scale = scale
        self._dtype = dtype
        self._cos, self._sin = self._rows(FIRST_ROWS)

    def at(self, places: Tensor, furthest: int) -> tuple[Tensor, Tensor]:
        """Return cos and sin [n, 1, rotary] for these places, of which `furthest` is the largest."""
        if furthest >= self._cos.shape[0]:
            self._cos, self._sin = self._rows(max(furthest + 1, 2 * self._cos.shape[0]))
        return self._cos[places].unsqueeze(1), self._sin[places].unsqueeze(1)

    def table(self, count: int) -> tuple[Tensor, Tensor]:
        """Return cos and sin [count, rotary / 2] in float32, neither doubled nor negated: kernels do both."""
        angles = torch.arange(count, device=self._frequencies.device, dtype=torch.float32)[:, None] * self._frequencies
        return angles.cos() * self._scale, angles.sin() * self._scale

    def _rows(self, count: int) -> tuple[Tensor, Tensor]:
        places = torch.arange(count, device=self._frequencies.device, dtype=torch.float32)
        angles = places[:, None] * self._frequencies
        cos, sin = angles.cos() * self._scale, angles.sin() * self._scale
        return torch.cat((cos, cos), -1).to(self._dtype), torch.cat((-sin, sin), -1).to(self._dtype)


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i + width/2}) of the first `width` numbers of x [n, heads, head_dim], as cos has them."""
    width = cos.shape[-1]
    half, turned = width // 2, x[..., :width]
    swapped = torch.cat((turned[..., half:], turned[..., :half]), -1)
    turned = torch.addcmul(turned * cos, swapped, sin)
    return turned if width == x.shape[-1] else torch.cat((turned, x[..., width:]), -1)
