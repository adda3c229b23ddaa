"""Rules that fill canvases: which holes come next, in which blocks, by which looks, and what is taken back."""

from .blocks import Blocks as Blocks
from .blocks import Fixed as Fixed
from .confident import Confident as Confident
from .one import one as one
from .remask import Remask as Remask
from .sight import Sight as Sight
from .unmask import Unmask as Unmask
from .view import View as View
