"""The version of unspool, said once."""

VERSION = "0.1.0"
