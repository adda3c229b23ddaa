"""Which shapes the fused kernels can run; the others stay with PyTorch's own."""

from __future__ import annotations

from ...models.layer_shape import AttentionSpec
from ...models.shape import Shape


def unfused(shape: Shape, rounded: bool = False, steady: bool = False) -> str | None:
    """Why the fused kernels cannot run a shape, its weights `rounded` to few bits or not; None if they can.

    If it is to be `steady`, a token's bits are the same in every batch.
    """
    if steady and any(layer.mixer is not None and layer.mixer.kind == "latent" for layer in shape.stack):
        return "it has latent attention, whose kernels do not keep a token's bits in every batch"
    if rounded and any(not isinstance(layer.mixer, AttentionSpec) or layer.mixture for layer in shape.stack):
        return "its experts or latents are kept in few bits, which the kernels do not know"
    if shape.recurrent:
        return "it has recurrent layers, which the kernels do not know"
    if shape.filling is not None and (odd := shape.oddity()) is not None:
        return f"it fills holes and has {odd}, which the kernels do not know"
    if shape.filling is not None and not shape.filling.reads:
        return "it only fills holes, and the kernels' texts are read from left to right"
    return None
