"""The names of devices."""

from __future__ import annotations

from ..errors import BadRequest


def expect_device(name: str) -> None:
    """Refuse what is no device's name, before a model is read for it."""
    import torch

    try:
        torch.device("cpu" if name == "auto" else name)
    except RuntimeError:
        raise BadRequest(f"the device {name!r} is not known; expected cpu, cuda, cuda:N or auto.") from None
