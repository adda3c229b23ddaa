"""Running a server: until it is told to end, and what the process ends with."""

from __future__ import annotations

import signal

import uvicorn

DONE, FAILED, INTERRUPTED = 0, 1, 130


def run(config: uvicorn.Config) -> int:
    """Serve until SIGTERM or Ctrl-C, let requests finish, and return 0; 130 if a second Ctrl-C cut them short.

    It is 1 if the server could not begin, as with an address that is taken; uvicorn has logged why.

    uvicorn raises the signals once more when all is done, which would end the process as if nothing had been finished.
    """
    server = uvicorn.Server(config)

    def end(*_: object) -> None:
        server.should_exit = True  # heard before uvicorn listens, or said again after it is done

    before = {kind: signal.signal(kind, end) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run()
    except SystemExit:
        return FAILED
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
    return INTERRUPTED if server.force_exit else DONE
