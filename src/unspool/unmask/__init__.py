"""Rules that choose which holes of a canvas to fill next."""

from .confident import Confident as Confident
from .one import one as one
from .select import Select as Select
