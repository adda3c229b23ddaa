"""Which shapes the fused kernels can run; the others stay with PyTorch's own."""

from __future__ import annotations

from ...models.shape import Shape


def unfused(shape: Shape, rounded: bool = False) -> str | None:
    """Why the fused kernels cannot run a shape, its weights `rounded` to few bits or not; None if they can."""
    latent = any(layer.mixer is not None and layer.mixer.kind == "latent" for layer in shape.stack)
    if rounded and (latent or any(layer.mixture for layer in shape.stack)):
        return "its experts or latents are kept in few bits, which the kernels do not know"
    if shape.filling is not None and (odd := shape.oddity()) is not None:
        return f"it fills holes and has {odd}, which the kernels do not know"
    if shape.filling is not None and not shape.filling.reads:
        return "it only fills holes, and the kernels' texts are read from left to right"
    return None
