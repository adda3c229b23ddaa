"""The report: journals of benchmarks as one page."""

from .page import page as page
from .runs import Found as Found
from .runs import Run as Run
from .runs import found as found
