"""The report: journals of benchmarks as one page."""

from .page import page as page
from .runs import FoundJournals as FoundJournals
from .runs import MeasuredRun as MeasuredRun
from .runs import found as found
