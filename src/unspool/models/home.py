"""Where unspool keeps what it downloads."""

from __future__ import annotations

import os
from pathlib import Path

from ..core.errors import FetchFailed


def home() -> Path:
    """Return the cache folder: $UNSPOOL_HOME, else $XDG_CACHE_HOME/unspool, else ~/.cache/unspool."""
    if chosen := os.environ.get("UNSPOOL_HOME"):
        return Path(chosen).expanduser()
    if cache := os.environ.get("XDG_CACHE_HOME"):
        return Path(cache).expanduser() / "unspool"
    try:
        return Path.home() / ".cache" / "unspool"
    except RuntimeError as error:
        raise FetchFailed(
            "There is no home folder to keep models in. Set UNSPOOL_HOME to a folder you can write."
        ) from error


def model_folder(name: str) -> Path:
    """Return the folder of one model of the catalog."""
    return home() / "models" / name


def offline() -> bool:
    """Tell whether $UNSPOOL_OFFLINE forbids the network."""
    return os.environ.get("UNSPOOL_OFFLINE", "").lower() not in ("", "0", "false", "no")
