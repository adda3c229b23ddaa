"""The command line: `unspool run`, `chat`, `methods`, `prove`, `compare`, `plan`, `pull`."""

from .root import main as main
