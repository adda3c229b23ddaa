"""What a user may call a model: a name of the catalog, a file, a folder, or the id of a Hub model."""

from __future__ import annotations

import re
from pathlib import Path

from ..core.errors import BadRequest
from .catalog import CATALOG, look_up
from .fetch import Fetcher

DELTAS, HEADS = (Path(__file__).parent / name for name in ("deltas", "heads"))  # what comes with the package

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def path(name_or_path: str, fetcher: Fetcher | None = None) -> Path:
    """Return what can be opened: catalog names are fetched on first use (write ./name for a folder of that name)."""
    fetcher = fetcher or Fetcher()
    if name_or_path in fetcher.catalog:
        file, delta = fetcher.fetch(name_or_path), fetcher.catalog[name_or_path].delta
        return file if delta is None else DELTAS / delta
    if (local := _local(name_or_path)) is not None:
        return local
    if is_hub_id(name_or_path):
        raise BadRequest(
            f"{name_or_path!r} is no file or folder here, so it is a Hub id, which the transformers runtime opens. "
            f"Known names: {', '.join(fetcher.catalog)}."
        )
    # Not in the catalog, so this raises the error that lists what is.
    return fetcher.fetch(look_up(name_or_path, fetcher.catalog).name)


def heads_of(name: str, given: str | Path | None = None) -> Path | None:
    """The file of heads that is given, or the one that comes with the package for a model of the catalog, if any."""
    if given is not None:
        return Path(given).expanduser()
    listing = CATALOG.get(name)
    return None if listing is None or listing.heads is None else HEADS / listing.heads


def is_hub_id(text: str) -> bool:
    """Tell whether a text has the form of a Hub id, org/name, and is nothing on this disk."""
    weights = text.endswith((".gguf", ".safetensors"))
    return bool(_HUB_ID.fullmatch(text)) and not weights and _local(text) is None


def _local(text: str) -> Path | None:
    try:
        found = Path(text).expanduser()
        return found if text and found.exists() else None
    except (OSError, RuntimeError, ValueError):
        return None  # a name that no file system takes
