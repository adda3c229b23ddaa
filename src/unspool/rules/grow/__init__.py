"""Which nodes enter a tree, and how far to draft: decisions under a node budget and a measured cost."""

from ...core.cost import FREE as FREE
from ...core.cost import Cost as Cost
from .best_first import Below as Below
from .best_first import Twig as Twig
from .best_first import best_first as best_first
from .best_first import planted as planted
from .best_first import worth as worth
from .length import Best as Best
from .length import Confident as Confident
from .length import Ema as Ema
from .length import Fixed as Fixed
from .length import Heuristic as Heuristic
from .length import Length as Length
from .length import Threshold as Threshold
from .length import best_length as best_length
from .length import speed_up as speed_up
from .sequoia import sequoia as sequoia
from .shape import Shape as Shape
