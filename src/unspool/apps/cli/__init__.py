"""The command line: one module per command, see `root`."""

from .root import main as main
