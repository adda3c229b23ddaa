"""The server: OpenAI's HTTP interface over one engine, with any method for any request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from . import app as app
    from . import clients as clients
    from . import refusal as refusal
    from . import running as running
    from . import server_log as server_log
    from . import server_replicas as server_replicas
    from .app import application as application
    from .config import ServerConfig as ServerConfig
    from .limits import Limits as Limits
    from .worker import Worker as Worker

__getattr__, __dir__ = lazily(__name__)
