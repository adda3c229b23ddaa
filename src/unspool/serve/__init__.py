"""The server: OpenAI's HTTP interface over one engine, with any method for any request."""

from .app import application as application
from .house import House as House
from .limits import Limits as Limits
from .worker import Worker as Worker
