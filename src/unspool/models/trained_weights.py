"""Weights that were trained for models of the catalogue; they are a distribution of their own, unspool-weights."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ..core.errors import MissingDistribution

DELTAS, HEADS = "deltas", "heads"  # the two folders


def trained(folder: str, file: str) -> Path | None:
    """A file of that distribution; None where it is not installed."""
    found = find_spec("unspool_weights")
    return None if found is None or found.origin is None else Path(found.origin).parent / folder / file


def required(folder: str, file: str, purpose: str) -> Path:
    """The same file, or an error that says what to install, and what for."""
    found = trained(folder, file)
    if found is None:
        raise MissingDistribution("unspool-weights", "packages/weights", purpose)
    return found
