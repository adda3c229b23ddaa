"""How long a test waits for what must come: so long that only a hang runs into it, however busy the machine."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 200.0  # seconds; less than the time limit of a test, so that what did not come is named

T = TypeVar("T")


def until(condition: Callable[[], T], what: str = "it", seconds: float = PATIENCE) -> T:
    """The first answer of `condition` that is true, asked again and again."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not come to pass in {seconds:.0f} s"
        time.sleep(0.01)
    return found
