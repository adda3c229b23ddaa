"""The server: OpenAI's HTTP interface over one engine, with any method for any request."""

from typing import TYPE_CHECKING, Any

from .house import House as House
from .limits import Limits as Limits
from .worker import Worker as Worker

if TYPE_CHECKING:
    from .app import application as application


def __getattr__(name: str) -> Any:
    """The application, imported when it is asked for: all else here works without a web framework."""
    if name != "application":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .app import application

    return application
