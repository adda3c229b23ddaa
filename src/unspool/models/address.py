"""What a user may call a model: a name of the catalog, a file, a folder, or the id of a Hub model."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from .. import models
from ..core.errors import FetchFailed
from ..core.files import DELTAS, DRAFTERS, HEADS, required, trained
from .catalog import CATALOG, CatalogEntry, look_up

if TYPE_CHECKING:
    from .fetch import Fetcher

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(:[\w.-]+)?(@[\w./-]+)?")


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


def path(name_or_path: str, fetcher: Fetcher | None = None) -> Path:
    """Return what can be opened; models of the catalog and the Hub are brought first (write ./name for a folder)."""
    catalog = CATALOG if fetcher is None else fetcher.catalog
    if (listing := catalog.get(name_or_path)) is not None:
        delta = listing.delta
        changed = None if delta is None else required(DELTAS, delta, f"the model {name_or_path}")
        here = None if fetcher is not None else _kept(listing)
        file = here or (fetcher or models.fetch.Fetcher()).fetch(name_or_path)
        return changed or file
    if (local := _local(name_or_path)) is not None:
        return local
    if is_hub_id(name_or_path):
        return models.hub.snapshot(name_or_path)
    return Path(look_up(name_or_path, catalog).file)  # not in the catalog: this raises the error that lists what is


def heads_of(name: str, given: str | Path | None = None) -> Path | None:
    """The file of heads that is given, or the one for a model of the catalog, if it has one and it is installed."""
    if given is not None:
        return Path(given).expanduser()
    listing = CATALOG.get(name)
    return None if listing is None or listing.heads is None else trained(HEADS, listing.heads)


def heads_for(name: str, given: str | Path | None, purpose: str) -> Path | None:
    """The same; if the model has heads that are not installed, an error that says so."""
    listing = CATALOG.get(name)
    if given is None and listing is not None and listing.heads is not None:
        return required(HEADS, listing.heads, purpose)
    return heads_of(name, given)


def drafter_of(name: str, said: str) -> Path | None:
    """The folder of a drafter that comes with a model of the catalog, by its name; None if the model has none of it.

    What lies on this disk under the same name goes before it.
    """
    listing = CATALOG.get(name)
    if listing is None or said not in listing.drafters or _local(said) is not None:
        return None
    return required(DRAFTERS, f"{name}-{said}", f"the drafter {said} of {name}")


def _kept(listing: CatalogEntry) -> Path | None:
    """The weights of a model, if they are here; if that cannot be told, whoever fetches them says why."""
    file = model_folder(listing.folder) / listing.file
    try:
        return file if file.stat().st_size == listing.bytes else None
    except OSError:
        return None


def is_hub_id(text: str) -> bool:
    """Tell whether a text has the form of a Hub id, as `hub.snapshot` has it, and is nothing on this disk."""
    weights = text.endswith((".gguf", ".safetensors"))
    upwards = ".." in text  # which would leave the cache folder of the Hub's library
    return bool(_HUB_ID.fullmatch(text)) and not weights and not upwards and _local(text) is None


def _local(text: str) -> Path | None:
    try:
        found = Path(text).expanduser()
        return found if text and found.exists() else None
    except (OSError, RuntimeError, ValueError):
        return None  # a name that no file system takes
