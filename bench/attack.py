"""What one client can do to another: attacks on a server of its own on this machine, while somebody streams from it.

    python bench/attack.py [--model smollm2] [--diffusion smollm2-diffusion] [--only TEXT] [--json FILE]

The two have keys of their own. Every attack is bounded in number and time, and goes to 127.0.0.1 alone. For each: what
the attacker was told, what /readyz says afterwards, the gaps between pieces of the other client's texts before and
during it, the memory of the server, what is still live or reserved when all have gone, and whether the next short
request is answered; a server that does not answer is replaced before the next attack. At the end SIGTERM with a
request under way: what its client is told and how long the process takes to end. The exit status tells whether
everything held. With --json FILE a Markdown page of the same name is written beside it; what the file has of other
attacks, or of other models, stays there if it is of the same commit, so that a long table can be made in several
sittings.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attackers import ATTACKS, HARM, WAIT, Attack, told
from callers import Server

CALM = 6.0  # seconds of the other client's gaps before an attack
LEAST = 4.0  # and at least during one
SETTLE = 25.0  # seconds after which nothing of an attack may be left
SLOWER = 2.0  # how many times longer others may wait for a piece, on the mean
GRACE = 3.0
OPTIONS = ("--timeout", "10", "--patience", "5", "--grace", f"{GRACE:g}", "--stalled", "8", "--max-tokens", "256")
KEYS = {"reader": "a-key-to-read-with", "attacker": "a-key-to-attack-with"}  # clients, each with its own
LEFT = ("live_requests", "live_texts", "queue_length", "cache_tokens_reserved")
START = 300.0  # seconds for a model to be loaded


class Running:
    """A server in a process of its own."""

    def __init__(self, model: str, options: Sequence[str] = OPTIONS) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "unspool", "serve", "-m", model, "--port", str(port), *options]
        self._told = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the process)
        with tempfile.NamedTemporaryFile("w", suffix=".toml", delete=False) as keys:  # which only its owner can read
            keys.write("".join(f'[{name}]\nkey = "{key}"\n' for name, key in KEYS.items()))
        self._keys = Path(keys.name)
        self.process = subprocess.Popen([*command, "--keys", keys.name], stderr=self._told)
        self.server = Server("127.0.0.1", port, self.process.pid, KEYS["reader"])
        self.attacked = replace(self.server, key=KEYS["attacker"])
        until = time.monotonic() + START
        while asyncio.run(ready(self.server)) != "ready":
            if self.process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"the server did not start: {self.journal()[-1500:]}")
            time.sleep(0.2)

    def journal(self) -> str:
        """All that it has logged."""
        self._told.seek(0)
        return self._told.read().decode("utf-8", "replace")

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait(30)
        self._keys.unlink(missing_ok=True)


@dataclass
class Reader:
    """A well-behaved client, which streams one text after the other; `gaps` are (when it ended, seconds)."""

    gaps: list[tuple[float, float]] = field(default_factory=list)
    last: float = 0.0

    async def stream(self, server: Server) -> None:
        """Read until cancelled; what the server does to it is what is measured."""
        self.last, number = time.monotonic(), 0
        while True:
            number += 1
            said = {"role": "user", "content": f"Count from {number} to one hundred."}
            body = {"messages": [said], "max_tokens": 120, "temperature": 0, "stream": True}
            with suppress(OSError, EOFError, ValueError):
                reader, writer = await server.ask("POST", "/v1/chat/completions", json.dumps(body).encode())
                try:
                    while event := await reader.readuntil(b"\n\n"):
                        if b'"content"' in event:
                            self._came()
                        if b"[DONE]" in event:
                            break
                finally:
                    writer.close()
            await asyncio.sleep(0.02)

    def between(self, low: float, high: float) -> list[float]:
        """The gaps that ended in a time, and the one that had not ended by then."""
        found = [gap for when, gap in self.gaps if low <= when < high]
        before = max((when for when, _ in self.gaps if when < high), default=low)
        return [*found, high - before]

    def _came(self) -> None:
        now = time.monotonic()
        self.gaps.append((now, now - self.last))
        self.last = now


async def ready(server: Server) -> str:
    """What /readyz says, in short."""
    try:
        return (await asyncio.wait_for(server.get("/readyz"), WAIT)).strip()[:160] or "no answer"
    except (OSError, asyncio.TimeoutError):
        return "no answer"


async def left(server: Server) -> dict[str, float] | None:
    """What is still held once all have gone, after some time to settle; None if it cannot be asked."""
    until, found = time.monotonic() + SETTLE, None
    while time.monotonic() < until:
        with suppress(OSError, asyncio.TimeoutError):
            metrics = await asyncio.wait_for(server.metrics(), WAIT)
            found = {name: metrics[name] for name in LEFT if name in metrics}
            if not any(found.values()):
                break
        await asyncio.sleep(0.3)
    return found


async def attacked(server: Server, by: Server, attack: Attack) -> dict[str, Any]:
    """One attack by a client, and what came of it for another."""
    reader, memory = Reader(), server.memory()
    reading = asyncio.create_task(reader.stream(server))
    began = time.monotonic()
    while time.monotonic() - began < CALM or (len(reader.gaps) < 8 and time.monotonic() - began < 4 * CALM):
        await asyncio.sleep(0.1)
    start = time.monotonic()
    answer = await attack.go(by)
    await asyncio.sleep(max(0.0, LEAST - (time.monotonic() - start)))
    end = time.monotonic()
    state = await ready(server)
    reading.cancel()
    with suppress(asyncio.CancelledError):
        await reading
    calm, during = reader.between(began + 1, start), reader.between(start, end)
    slower = statistics.mean(during) / statistics.mean(calm)
    rest = await left(server)
    short = await told(server, {"prompt": "a", "max_tokens": 1})
    return {
        "attack": attack.name,
        "answer": answer,
        "seconds": round(end - start, 1),
        "readyz": state,
        "gap_before": _gaps(calm),
        "gap_during": _gaps(during),
        "rss_mb": [_rounded(memory), _rounded(server.memory())],
        "left": rest,
        "next_request": short,
        "well": (well := short == "200" and rest is not None and not any(rest.values())),
        "slower": round(slower, 2),
        "held": well and not answer.startswith(HARM) and slower <= SLOWER,
    }


def _gaps(gaps: Sequence[float]) -> dict[str, float]:
    found = {"mean": statistics.mean(gaps), "median": statistics.median(gaps), "max": max(gaps)}
    return {name: round(seconds, 4) for name, seconds in found.items()}


def _rounded(size: float | None) -> int | None:
    return None if size is None else round(size)


def ended(running: Running) -> dict[str, Any]:
    """SIGTERM with a long request under way: what its client is told, and how the process ends."""

    async def ask() -> tuple[str, float]:
        body = {"prompt": "Once upon a time", "max_tokens": 256, "n": 16, "temperature": 1}
        asking = asyncio.create_task(told(running.server, body, GRACE + 20))
        await asyncio.sleep(1.0)
        running.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        answer = await asking
        while running.process.poll() is None and time.monotonic() - began < GRACE + 30:
            await asyncio.sleep(0.05)
        return answer, time.monotonic() - began

    answer, seconds = asyncio.run(ask())
    code = running.process.poll()
    running.kill()
    fine = code is not None and seconds <= GRACE + 5
    return {"grace": GRACE, "seconds": round(seconds, 1), "status": code, "answer": answer, "held": fine}


def page(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    lines = ["# One client against another", "", f"`{result['command']}`"]
    for model in dict.fromkeys(row["model"] for row in result["attacks"]):
        lines += ["", f"## {model}", "", *_table([row for row in result["attacks"] if row["model"] == model])]
        if model in result["ends"]:
            lines += ["", _end(result["ends"][model])]
    for name, why in result["skipped"].items():
        lines += ["", f"Not run, {name}: {why}"]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = ["| Attack | Told | /readyz | Gap, mean | Gap, median | Gap, max | RSS, MB | Left | Next request | Held |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        before, during = row["gap_before"], row["gap_during"]
        figures = ((before[x], during[x]) for x in ("mean", "median", "max"))
        gaps = [f"{calm:.3f} → {busy:.3f} s (× {_ratio(busy, calm)})" for calm, busy in figures]
        held = {name: n for name, n in (row["left"] or {"unknown": 1}).items() if n}
        rest = ", ".join(f"{name} {n:g}" for name, n in held.items()) or "nothing"
        memory = " → ".join(map(str, row["rss_mb"]))
        cells = [row["attack"], row["answer"], row["readyz"], *gaps, memory, rest, row["next_request"]]
        lines.append(f"| {' | '.join(cells)} | {'yes' if row['held'] else '**no**'} |")
    return lines


def _end(end: dict[str, Any]) -> str:
    told = f"SIGTERM with a request under way, {end['grace']:g} s of grace: the client was told {end['answer']}, the "
    fine = "" if end["held"] else " **Too late.**"
    return f"{told}process ended with {end['status']} after {end['seconds']:g} s.{fine}"


def _ratio(during: float, before: float) -> str:
    return f"{during / max(before, 1e-3):.1f}"


def sent(model: str, attacks: Sequence[Attack]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All these against a server of this model; a server that does not answer any more is replaced."""
    running, rows = Running(model), list[dict[str, Any]]()
    try:
        for attack in attacks:
            rows.append({"model": model, **asyncio.run(attacked(running.server, running.attacked, attack))})
            print(f"{attack.name}: {rows[-1]['answer']}; held: {rows[-1]['held']}", file=sys.stderr, flush=True)
            if not rows[-1]["well"]:
                running.kill()
                running = Running(model)
        return rows, ended(running)
    finally:
        running.kill()


def _saved(path: Path, result: dict[str, Any]) -> None:
    """Write a result and its page, beside what is there of other attacks from the same commit."""
    from record import save  # with what it asks about the machine, it takes long to import

    there = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    save(str(path), result)
    on = json.loads(path.read_text(encoding="utf-8"))["machine"]
    if there is not None and there["machine"]["commit"] == on["commit"] and there["command"] == result["command"]:
        made = {(row["model"], row["attack"]) for row in result["attacks"]}
        kept = [row for row in there["attacks"] if (row["model"], row["attack"]) not in made]
        result = {**result, "attacks": kept + result["attacks"], "ends": {**there["ends"], **result["ends"]}}
        save(str(path), result)
    about = ", ".join(f"{name} {on[name]}" for name in ("cpu", "cores", "threads", "python", "torch", "commit"))
    path.with_suffix(".md").write_text(f"{page(result)}\n{about}\n", encoding="utf-8")


def _meant(name: str, only: str) -> bool:
    return any(part in name for part in only.split("|"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2", help="as for unspool serve")
    parser.add_argument("--diffusion", default="smollm2-diffusion", help="a model that fills canvases; '' for none")
    parser.add_argument("--only", default="", help="attacks whose names contain this, or one of these: A|B")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    result: dict[str, Any] = {"command": f"unspool serve {' '.join(OPTIONS)}", "attacks": [], "ends": {}, "skipped": {}}
    for model, fills in ((args.model, False), (args.diffusion, True)):
        chosen = [attack for attack in ATTACKS if attack.fills is fills and _meant(attack.name, args.only)]
        if not model or not chosen:
            continue
        try:
            rows, end = sent(model, chosen)
        except RuntimeError as error:
            result["skipped"][model] = str(error)[:300]
            continue
        result["attacks"] += rows
        result["ends"][model] = end
    print(page(result))
    if args.json:
        _saved(Path(args.json), result)
    held = [row["held"] for row in result["attacks"]] + [end["held"] for end in result["ends"].values()]
    sys.exit(0 if held and all(held) else 1)


if __name__ == "__main__":
    main()
