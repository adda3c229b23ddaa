"""Rules that decide how much of a draft stands. Each is a function of the scored tree and chance."""

from .greedy import greedy as greedy
from .rejection import rejection as rejection
from .walk import walk as walk
