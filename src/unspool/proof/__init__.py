"""Proofs: every claim enumerated, on worlds small enough to visit every branch."""

from .case import Case as Case
from .prove import Proof as Proof
from .prove import prove as prove
from .prove import prove_all as prove_all
