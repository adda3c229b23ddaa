"""Where trained weights lie: the distribution unspool-weights, which is installed by itself."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from .errors import MissingDistribution

DELTAS, HEADS, DRAFTERS, FILTERS = "deltas", "heads", "drafters", "filters"  # its folders


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
