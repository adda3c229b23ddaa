"""What of the catalogue is on this disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...models.address import model_folder
from .terminal import size

if TYPE_CHECKING:
    from ...models.catalog import CatalogEntry


def place(listing: CatalogEntry) -> Path:
    """Where a model's weights are, or will be."""
    return model_folder(listing.folder) / listing.file


def fetched(listing: CatalogEntry) -> bool:
    """Whether they are there, whole."""
    path = place(listing)
    return path.is_file() and path.stat().st_size == listing.bytes


def record(listing: CatalogEntry) -> dict[str, Any]:
    """A model of the catalogue as plain data."""
    return {
        "name": listing.name,
        "title": listing.title,
        "bytes": listing.bytes,
        "download": listing.download,
        "licence": listing.licence,
        "sha256": listing.sha256,
        "fetched": fetched(listing),
        "path": str(place(listing)),
    }


def row(listing: CatalogEntry) -> tuple[str, ...]:
    """The same as cells of a table."""
    here = fetched(listing)
    return (
        listing.name,
        listing.title,
        size(listing.download),
        listing.licence,
        "yes" if here else "no",
        str(place(listing)) if here else "-",
    )
