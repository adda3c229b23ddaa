"""The server: OpenAI's HTTP interface over one engine, with any method for any request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from . import app as app, clients as clients, forwarded as forwarded, refusal as refusal, running as running
    from . import server_log as server_log
    from . import server_replicas as server_replicas
    from .app import application as application
    from .server_config import ServerConfig as ServerConfig
    from .item_sets import ItemSets as ItemSets
    from .limits import Limits as Limits
    from .worker import Worker as Worker

__getattr__, __dir__ = lazily(__name__)
