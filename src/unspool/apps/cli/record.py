"""JSON that every reader takes: one value, UTF-8, no NaN or Infinity."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from typing import Any


def dump(data: Any) -> None:
    """Print data as JSON on stdout; numbers that JSON lacks (NaN, ±infinity) become null."""
    # A terminal gets ASCII, so that no control character of a model's text reaches it.
    print(json.dumps(_finite(data), indent=2, ensure_ascii=sys.stdout.isatty(), allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value
