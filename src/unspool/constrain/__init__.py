"""Constraints: conditions on texts that hold token by token, in every decoder, tree node, beam, particle and canvas."""

from .constraint import Constrained as Constrained
from .constraint import Constraint as Constraint
from .constraint import State as State
