"""A cluster: the machines that Ray has, or this one alone."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass

from ..core.errors import BadRequest
from ..core.extra import brought_by
from ..core.option import numeral

ADDRESS = "RAY_ADDRESS"  # where a cluster is, as Ray itself has it
QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}  # else it reports to its makers what it is used for
ECHO = {"RAY_DEDUP_LOGS": "0", "RAY_COLOR_PREFIX": "0"}  # every line of every worker, as it was written


@dataclass(frozen=True)
class Crew:
    """How many workers there are, and what each has to itself: CPUs, which are its threads, and GPUs."""

    workers: int
    cpus: float = 1.0
    gpus: float = 0.0


@dataclass(frozen=True)
class ReplicaRange:
    """From how many replicas to how many: more as requests come, fewer when they stay away."""

    low: int = 1
    high: int = 1

    @staticmethod
    def of(given: str) -> ReplicaRange:
        """Read `2`, or `1..4`."""
        low, dots, high = given.partition("..")
        if not (numeral(low) and (numeral(high) or not dots)) or not 1 <= int(low) <= int(high or low):
            raise BadRequest(f"--replicas is {given!r}; expected a number from 1 on, or a least and a most, as in 1..4")
        return ReplicaRange(int(low), int(high or low))


@contextmanager
def joined(purpose: str, echo: bool = False) -> Iterator[None]:
    """Be part of the cluster that RAY_ADDRESS names, or else of one that is started here and ends with us.

    With `echo`, what workers write to stderr is written here too.
    """
    for name, value in (QUIET | (ECHO if echo else {})).items():
        os.environ.setdefault(name, value)
    ray = brought_by("ray", "ray", purpose)
    if ray.is_initialized():
        yield
        return
    try:
        ray.init(include_dashboard=False, logging_level=logging.ERROR, log_to_driver=echo)
    except Exception as error:  # it raises that very class where it does not start in time
        if where := os.environ.get(ADDRESS):
            told = f"there is no Ray cluster at {ADDRESS}={where} ({error}); start one, or unset it"
        else:
            told = f"Ray does not start on this machine ({error}); see the logs of its last session"
        raise BadRequest(told) from None
    with redirect_stdout(sys.stderr):  # what Ray has to say is no part of any output
        try:
            yield
        finally:
            ray.shutdown()


def crew(workers: int | None, cpus: float, gpus: float | None, device: str) -> Crew:
    """So many workers with so much each; unless told, as many as the cluster has room for, on GPUs if it has any."""
    have = brought_by("ray", "ray", "A cluster").cluster_resources()
    if gpus is None:
        gpus = 1.0 if device.startswith("cuda") or (device == "auto" and have.get("GPU", 0) >= 1) else 0.0
    fit = int(min(have.get(kind, 0.0) / each for kind, each in (("CPU", cpus), ("GPU", gpus)) if each))
    if workers is None:
        workers = max(1, fit)
    # Clusters that grow by themselves are asked for what they do not have yet.
    if workers > fit and ADDRESS not in os.environ:
        raise BadRequest(
            f"{workers} workers with {cpus:g} CPUs and {gpus:g} GPUs each are asked for, but there are "
            f"{have.get('CPU', 0):g} and {have.get('GPU', 0):g}; ask for fewer workers, or for less of each"
        )
    return Crew(workers, cpus, gpus)
