"""As many stages of a pipeline as the chip at hand has room for: the tables were measured on a large one."""

from collections.abc import Callable, Hashable

from triton.runtime.errors import OutOfResources

_FITS: dict[Hashable, int] = {}


def fitted(launch: Callable[[int], object], stages: int, key: Hashable) -> None:
    """Launch with so many stages, or with the most below that fit; `key` is all that its memory depends on."""
    stages = _FITS.get(key, stages)
    while True:
        try:
            launch(stages)
            return
        except OutOfResources:  # told before anything runs
            if stages == 1:
                raise
            stages -= 1
            _FITS[key] = stages
