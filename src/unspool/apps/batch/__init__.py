"""Batches: a file of requests in, a file of answers out, one line for one line, whatever happens in between."""

from .journal import Journal as Journal
from .lines import Lines as Lines
from .reading import Reading as Reading
from .scribe import Scribe as Scribe
