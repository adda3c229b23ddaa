"""Which shapes the fused kernels can run; the others stay with PyTorch's own."""

from __future__ import annotations

from ...models.shape import Shape


def unfused(shape: Shape) -> str | None:
    """Why the fused kernels cannot run a shape, None if they can."""
    odd = shape.oddity()
    if odd is not None:
        return f"it has {odd}, which the kernels do not know"
    if shape.head_dim < 16:
        return "its heads have fewer than 16 numbers, and the kernels multiply 16 at a time"
    if shape.filling is not None and not shape.filling.reads:
        return "it only fills holes, and the kernels' texts are read from left to right"
    return None
