"""The loops: generators that ask, and fit on a screen."""

from .denoise import Denoise as Denoise
from .judge import Judge as Judge
from .plain import plain as plain
from .speculate import Speculate as Speculate
from .steps import Steps as Steps
