"""Running a server: until it is told to end, how it ends in time, and what the process ends with."""

from __future__ import annotations

import _thread
import asyncio
import atexit
import math
import os
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

import uvicorn

from .connection_limits import limited_connections
from .limits import Limits
from .server_log import log, places
from .worker import Worker

JOIN = 2.0  # seconds beyond its grace in which the worker's thread has to end
DONE, FAILED, STUCK, INTERRUPTED = 0, 1, 70, 130
KEPT = 20  # seconds for the next request of a connection; clients that keep theirs for 5 never ask one that just closes
# Seconds after the grace: who still waits is told by the event loop, connections are cut, the process is ended.
TELL, CUT, LAST = 1.0, 2.0, 4.5


@dataclass(frozen=True)
class Shutdown:
    """The worker behind an application, and the seconds that its requests have left when the server shuts down."""

    worker: Worker
    grace: float

    def join(self, grace: float | None = None) -> bool:
        """End the worker and wait for that, but not for ever; whether it has ended."""
        return self.worker.stop(self.grace if grace is None else grace, JOIN)


def configured(app: Any, limits: Limits, grace: float, host: str = "127.0.0.1", port: int = 0) -> uvicorn.Config:
    """How uvicorn is to run an application: with limits of connections, and quiet."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=limited_connections(limits),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # it would believe whoever calls from this machine; see ForwardedClient
        timeout_keep_alive=KEPT,
        timeout_graceful_shutdown=math.ceil(grace + CUT),
    )


def heard() -> list[signal.Signals]:
    """The signals that end a server, without those that it was started with ignored.

    A shell starts a background job with SIGINT ignored, so that Ctrl-C ends what stands in front and nothing else.
    """
    return [kind for kind in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(kind) != signal.SIG_IGN]


class Server(uvicorn.Server):
    """uvicorn's server, which has the worker end before it waits for connections.

    Their requests are then answered or told 503 by whoever writes them, before uvicorn would cut them off. If it
    `owns` the process, that ends even if a thread hangs. Signals that were ignored when it was made stay so.
    """

    owns = False

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.heard = heard()
        self.ended = threading.Event()
        self._watched = self._came_round = False  # whether a thread waits to end the process, and the loop heard of it
        self._thread = 0  # the event loop's

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called for a signal."""
        if sig in self.heard:
            self._watch()
            super().handle_exit(sig, frame)

    def _watch(self) -> None:
        """Have the process ended in time, whatever hangs: not by the event loop, which may be what does.

        A signal comes between any two instructions, so that `threading`'s own locks may be held: this takes none.
        """
        if self.owns and self.ending is not None and not self._watched:
            self._watched = True
            _thread.start_new_thread(self._end_in_time, (self.ending,))

    def _end_in_time(self, ending: Shutdown) -> None:
        if not self.ended.wait(ending.grace + LAST):
            hangs = ending.worker.alive and self._came_round
            _stuck(ending, STUCK) if hangs else _stuck(ending, STUCK, self._thread)

    async def on_tick(self, counter: int) -> bool:
        """Whether it is time to end, which it is too when the worker's thread has died: nobody would be answered."""
        return await super().on_tick(counter) or (self.ending is not None and self.ending.worker.died)

    @property
    def ending(self) -> Shutdown | None:
        """Whom to end, if the application says so."""
        found = getattr(getattr(self.config.app, "state", None), "ending", None)
        return found if isinstance(found, Shutdown) else None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; on a terminal, say so, and where."""
        self._thread = threading.get_ident()
        await super().startup(sockets)
        if self.owns and self.started and sys.stderr.isatty():
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
            routes = getattr(getattr(self.config.app, "router", None), "routes", ())
            window = f"{url}/ (window), " if any(getattr(route, "path", "") == "/" for route in routes) else ""
            print(f"Ready: {window}{url}/v1 (API). Ctrl-C ends it.", file=sys.stderr, flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more requests, let those that are there finish, and end."""
        ending = self.ending
        if ending is not None:
            ending.worker.close(ending.grace)
            asyncio.get_running_loop().call_later(ending.grace + TELL, ending.worker.abandon)
            self._came_round = True
            self._watch()
        await super().shutdown(sockets)


def run(config: uvicorn.Config) -> int:
    """Serve until SIGTERM or Ctrl-C, let requests finish, and return 0; 130 if a second Ctrl-C cut them short.

    It is 1 if the server could not begin, as with an address that is taken; uvicorn has logged why. If the worker's
    thread hangs, the process is ended here and now, with 70 or 130: it could not end by itself under that thread. It is
    70 too if that thread has died.

    uvicorn raises the signals once more when all is done, which would end the process as if nothing had been finished.
    """
    server = Server(config)
    server.owns = True

    def end(*_: object) -> None:
        server.should_exit = True  # heard before uvicorn listens, or said again after it is done

    before = {kind: signal.signal(kind, end) for kind in heard()}
    try:
        server.run()
    except SystemExit:
        return FAILED
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
        server.ended.set()
    code = INTERRUPTED if server.force_exit else DONE
    if server.ending is not None and server.ending.worker.died:
        code = STUCK
    if server.ending is not None and server.ending.worker.alive:
        _stuck(server.ending, code or STUCK)
    return code


def leave(code: int) -> NoReturn:
    """End the process as Python would, but for taking its modules apart, which beside others at work takes seconds.

    Nor is a compiler waited for that is under way.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a pipe that nobody reads any more, or one that was closed
            stream.flush()
    os._exit(code)


def _stuck(ending: Shutdown, code: int, loop: int = 0) -> None:
    """End the process under a thread that does not, and say where it hangs: the worker's, or the event `loop`'s."""
    who, where = "worker's thread", ending.worker.where()
    if loop:
        frame = sys._current_frames().get(loop)
        who, where = "event loop", [] if frame is None else places(traceback.extract_stack(frame))
    message = f"the {who} did not end in time, so the process is ended under it"
    log("stuck", {"message": message, "status": code, "where": where})
    os._exit(code)
