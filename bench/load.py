"""A server under load: many clients who stream at once, for a while; what they wait, who is starved, and what is left.

    python bench/load.py [--clients 200] [--seconds 60] [--model smollm2] [--json FILE] [-- options of unspool serve]
    python bench/load.py --url http://127.0.0.1:8000 --pid 4711     # a server that runs already; its keys in --api-key
    python bench/load.py --quick --model FOLDER                     # 20 clients, 5 seconds

A client sends a chat of one of three lengths, reads its stream to the end and sends the next; who is told 429 waits as
long as it is told and sends the same again. When the time is up, requests under way may end. Clients are coroutines
over plain sockets, in a process of their own that shares the server's cores. With --json FILE a Markdown page of the
same name is written beside it. The exit status tells whether everything held: no error but 429, an answer for every
client, nothing live, waiting, reserved or leaked at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from callers import Seen, Server, client, rest, watch

PARTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


async def load(server: Server, clients: int, seconds: float) -> dict[str, Any]:
    """All clients for so long, and what came of it."""
    seen = Seen(completed=[0] * clients)
    began = time.perf_counter()
    watching = asyncio.create_task(watch(server, seen))
    await asyncio.gather(*(client(i, server, began + seconds, seen) for i in range(clients)))
    took = time.perf_counter() - began
    watching.cancel()
    return {**summary(seen, took), "left": await rest(server), "samples": seen.samples[::10]}


def summary(seen: Seen, took: float) -> dict[str, Any]:
    """The figures; memory is warm at a third of the time, and grows on until every slot of the cache was used once."""
    sizes = [round(sample["rss"], 1) for sample in seen.samples if sample["rss"] is not None]
    late = sizes[len(sizes) // 3 :]
    return {
        "took_seconds": round(took, 2),
        "requests_completed": sum(seen.completed),
        "requests_per_second": round(sum(seen.completed) / took, 2),
        "tokens_per_second": round(seen.tokens / took, 1),
        "busy": seen.busy,
        "errors": dict(seen.errors),
        "first_token": spread(seen.first),
        "first_token_since_first_try": spread(seen.first_of_all),
        "between_pieces": spread(seen.gaps),
        "per_token": spread(seen.paces),
        "healthz": spread(seen.health),
        "completed_per_client": {
            "min": min(seen.completed),
            "median": statistics.median(seen.completed),
            "max": max(seen.completed),
            "none": seen.completed.count(0),
        },
        "rss_mb": {"start": sizes[0], "warm": late[0], "end": late[-1], "most": max(sizes)} if late else None,
    }


def spread(times: Sequence[float]) -> dict[str, float] | None:
    """Percentiles in milliseconds, by nearest rank."""
    ordered = sorted(times)
    found = {name: round(1e3 * ordered[math.ceil(part * len(ordered)) - 1], 2) for name, part in PARTS.items() if times}
    return found or None


def bars(result: dict[str, Any]) -> dict[str, bool]:
    """What must hold, wherever it runs."""
    return {
        "no error but 429": not result["errors"],
        "an answer for every client": result["completed_per_client"]["none"] == 0,
        "nothing live, waiting, reserved or leaked at the end": not any(result["left"].values()),
    }


def page(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    lines = [f"# {result['clients']} clients for {result['seconds']:g} seconds", "", f"`{result['command']}`", ""]
    lines += ["| Milliseconds | p50 | p90 | p99 | max |", "| --- | --: | --: | --: | --: |"]
    for name in ("first_token", "first_token_since_first_try", "between_pieces", "per_token", "healthz"):
        row = result[name] or {}
        cells = (f"{row.get(part, math.nan):.0f}" for part in PARTS)
        lines.append(f"| {name.replace('_', ' ')} | {' | '.join(cells)} |")
    lines += ["", "| | |", "| --- | --- |"]
    for name in ("requests_completed", "requests_per_second", "tokens_per_second", "busy"):
        lines.append(f"| {name.replace('_', ' ')} | {result[name]} |")
    for name in ("errors", "completed_per_client", "rss_mb", "left"):
        told = ", ".join(f"{key} {value:g}" for key, value in (result[name] or {}).items()) or "none"
        lines.append(f"| {name.replace('_', ' ')} | {told} |")
    lines += [f"| {name} | {'yes' if held else '**no**'} |" for name, held in bars(result).items()]
    return "\n".join(lines) + "\n"


@contextmanager
def started(model: str, options: Sequence[str]) -> Iterator[Server]:
    """A server of its own, until it is not needed any more."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "unspool", "serve", "-m", model, "--port", str(port), *options]
    environment = {name: value for name, value in os.environ.items() if name != "UNSPOOL_API_KEY"}
    with tempfile.TemporaryFile() as told, subprocess.Popen(command, stderr=told, env=environment) as process:
        try:
            server = Server("127.0.0.1", port, process.pid)
            while process.poll() is None:
                with suppress(OSError):
                    if asyncio.run(server.get("/readyz")).startswith("ready"):
                        break
                time.sleep(0.1)
            else:
                told.seek(0)
                sys.exit(f"the server did not start: {told.read().decode()[-2000:]}")
            yield server
        finally:
            process.terminate()
            process.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--quick", action="store_true", help="20 clients for 5 seconds")
    parser.add_argument("--model", default="smollm2", help="as for unspool serve")
    parser.add_argument("--url", help="a server that runs already, instead of one of its own")
    parser.add_argument("--pid", type=int, help="the process of that server, to see its memory")
    parser.add_argument("--api-key", help="for that server")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("options", nargs="*", help="of unspool serve, after --")
    args = parser.parse_args()
    if args.quick:
        args.clients, args.seconds = 20, 5.0
    if args.url:
        where = urlsplit(args.url)
        server = Server(where.hostname or "127.0.0.1", where.port or 80, args.pid, args.api_key)
        result = asyncio.run(load(server, args.clients, args.seconds))
    else:
        with started(args.model, args.options) as server:
            result = asyncio.run(load(server, args.clients, args.seconds))
    command = " ".join(["unspool serve", *(["--model", args.model] if not args.url else []), *args.options])
    result = {"clients": args.clients, "seconds": args.seconds, "command": command, **result}
    print(page(result))
    if args.json:
        from record import save  # with what it asks about the machine, it takes longer to import than to run quickly

        save(args.json, result)
        on = json.loads(Path(args.json).read_text(encoding="utf-8"))["machine"]
        told = ", ".join(f"{name} {on[name]}" for name in ("cpu", "cores", "threads", "python", "torch", "commit"))
        Path(args.json).with_suffix(".md").write_text(f"{page(result)}\n{told}\n", encoding="utf-8")
    sys.exit(0 if all(bars(result).values()) else 1)


if __name__ == "__main__":
    main()
