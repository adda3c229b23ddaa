"""The loops: generators that ask, and fit on a screen."""

from .denoise import Denoise as Denoise
from .plain import plain as plain
from .speculate import Speculate as Speculate
