"""Files that torch has saved: stores and memories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from .files import plain_file


def read_tensors(path: str | Path) -> Any:
    """What a plain file holds, read without running any of it; ValueError if torch has not saved it."""
    try:
        return torch.load(plain_file(path), weights_only=True)
    except OSError:
        raise
    except Exception:  # torch's own words are about its options, and ask people to switch this protection off
        raise ValueError("it is damaged, or was written by something else") from None
