"""Warming up: a server has its GPU record what its clients will need before they come, and the rest between them."""

from __future__ import annotations

from time import monotonic

from ..runtime.engine.contracts import DefersCapture, device_of
from .lm import LM
from .settings import Settings

FIRST = [0]  # any text
USUAL = (
    Settings(max_tokens=3),
    Settings(max_tokens=3, temperature=0.7, top_p=0.9),
    Settings(max_tokens=3, repetition_penalty=1.1),
    Settings(max_tokens=3, logprobs=5),
)


def warm_up(lm: LM, texts: int, seconds: float) -> int:
    """Have steps of up to so many texts recorded, for so long at most; how many are left for when nobody waits.

    From then on nobody waits for one: what is not there yet runs in a wider one. Nothing to do on a CPU.
    """
    device, until = device_of(lm.model), monotonic() + seconds
    if not isinstance(device, DefersCapture):
        return 0
    device.defer_capture(texts)
    for settings in USUAL:  # what runs beside the steps is loaded by the first who needs it
        lm.batch([FIRST], settings, "plain")
    left = 1
    while left and monotonic() < until:
        left = device.capture_next()
    return left
