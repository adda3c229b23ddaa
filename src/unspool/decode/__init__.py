"""The loops: generators that ask, and fit on a screen."""

from .anyorder import AnyOrder as AnyOrder
from .deliberate import Chunks as Chunks
from .deliberate import Deliberate as Deliberate
from .deliberate import Least as Least
from .deliberate import Scattered as Scattered
from .denoise import Denoise as Denoise
from .fragments import Fragments as Fragments
from .insert import Insert as Insert
from .judge import Judge as Judge
from .plain import plain as plain
from .refill import Given as Given
from .slots import Slots as Slots
from .speculate import Speculate as Speculate
from .steps import Steps as Steps
from .template import Template as Template
