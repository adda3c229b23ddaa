"""Several machines: batches and servers on Ray, whose workers, drivers and replicas are killed in the middle."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from littlemodel import chatting_model
from patience import PATIENCE

from unspool import Settings, load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra `ray`"),
]

# Ray lives in processes of its own: its warnings are not this suite's errors, and it ends with the holder's stdin.
HOLDER = """
import logging, sys, ray
ray.init(num_cpus=4, object_store_memory=100_000_000, include_dashboard=False, logging_level=logging.ERROR)
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
ray.shutdown()
"""
TWO = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
second = cluster.add_node(num_cpus=2)
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.remove_node(second, allow_graceful=False)
sys.stdin.read()
cluster.shutdown()
"""
TOKEN = secrets.token_hex(32)  # else Ray would put one into the home folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return chatting_model(tmp_path_factory.mktemp("ray") / "little")


@pytest.fixture(scope="module")
def lm(folder):
    return load(folder)


def environment():
    ours = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **ours}


class Cluster:
    def __init__(self, holder: subprocess.Popen) -> None:
        self.pid = holder.pid
        self.environment = {**environment(), "RAY_ADDRESS": holder.stdout.readline().strip()}

    def run(self, *arguments, code=None):
        command = ["-m", "unspool"] if code is None else ["-c", code]
        whole = [sys.executable, *command, *map(str, arguments)]
        return subprocess.Popen(
            whole,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def workers(self, name):
        """The processes of this cluster with a name, such as ray::MapWorker."""
        return [pid for pid in _below(self.pid) if _command(pid).startswith(name)]


def _below(pid):
    """All processes that descend from one."""
    parents = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            with suppress(OSError):  # it may have ended by now
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(path.name))
    found, rest = [], [pid]
    while rest:
        found += (children := parents.get(rest.pop(), []))
        rest += children
    return found


def _command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@contextmanager
def holding(code):
    command = [sys.executable, "-c", code]
    ours = environment()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ours, text=True) as holder:
        yield holder
        holder.stdin.close()
        assert holder.wait(PATIENCE) == 0


@pytest.fixture(scope="module")
def cluster():
    with holding(HOLDER) as holder:
        yield Cluster(holder)


def until(condition, process=None, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)
    return found


def finished(process, code=0):
    out, error = process.communicate(timeout=300)
    assert process.returncode == code, error
    return out


def put(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def answered(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def text(record):
    assert record["error"] is None, record
    return record["response"]["body"]["choices"][0]["text"]


def kept(part):
    """The answers of a journal by the number of their line; a line that is being written is none."""
    lines = part.read_bytes().split(b"\n")[1:-1] if part.exists() else []
    return {entry["line"]: entry["record"] for entry in map(json.loads, lines)}


def test_a_killed_worker_and_a_killed_driver_cost_no_line(cluster, folder, lm, tmp_path):
    asked = [{"custom_id": f"{i}", "prompt": f"{i}", "max_tokens": 300, "logit_bias": {"1": -100}} for i in range(60)]
    source, out, part = put(tmp_path / "in", [*asked, "no body"]), tmp_path / "out", tmp_path / "out.part"
    command = ["batch", source, out, "-m", folder, "--ray", "--workers", 2, "--parallel", 4, "--json"]
    running = cluster.run(*command)
    until(lambda: len(kept(part)) > 4, running)
    victim = cluster.workers("ray::MapWorker")[0]
    os.kill(victim, signal.SIGKILL)
    before = len(kept(part))
    until(lambda: len(kept(part)) > before + 8, running)
    running.kill()
    running.communicate()
    seen = kept(part)
    assert len(seen) < len(asked), "all was done before the driver was killed; make the texts longer"
    assert not out.exists()
    told = json.loads(finished(cluster.run(*command)))
    assert told["before"] >= len(seen)
    found = answered(out)
    assert [record["custom_id"] for record in found] == [*(line["custom_id"] for line in asked), None]
    assert found[-1]["response"]["status_code"] == 400
    assert all(found[number - 1] == record for number, record in seen.items())
    settings = [Settings(temperature=1, seed=i + 1, max_tokens=300, logit_bias={1: -100}) for i in range(60)]
    for i in (0, 31, 59):
        assert text(found[i]) == lm.generate(f"{i}", settings[i], raw=True).text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_a_machine_that_is_lost_costs_no_line(folder, tmp_path):
    asked = [{"custom_id": f"{i}", "prompt": f"{i}", "max_tokens": 300, "logit_bias": {"1": -100}} for i in range(80)]
    source, out, part = put(tmp_path / "in", asked), tmp_path / "out", tmp_path / "out.part"
    with holding(TWO) as holder:
        cluster = Cluster(holder)
        running = cluster.run("batch", source, out, "-m", folder, "--ray", "--workers", 4, "--parallel", 4, "--json")
        until(lambda: len(kept(part)) > 8, running)
        assert len(kept(part)) < len(asked) - 32, "little is left to be lost; make the texts longer"
        print("now", file=holder.stdin, flush=True)
        assert json.loads(finished(running))["failed"] == 0
    assert [record["custom_id"] for record in answered(out)] == [line["custom_id"] for line in asked]


# A model that ends its process when it is asked to read one prompt, as one that runs out of memory does.
POISONED = """
import json, os
from unspool import load
from unspool.apps.batch import LineDefaults
from unspool.apps.batch.fleet import Fleet
from unspool.apps.cluster import Crew, joined

def poisoned():
    lm = load(FOLDER)
    read = lm.encode
    lm.encode = lambda prompt: os._exit(9) if prompt == "poison" else read(prompt)
    return lm

lines = [(i, json.dumps({"prompt": "poison" if i == 5 else "a", "max_tokens": 2}).encode()) for i in range(12)]
with joined("a test"):
    together = Fleet(poisoned, LineDefaults("little"), Crew(1), 4, 8)
    singly = Fleet(poisoned, LineDefaults("little"), Crew(1), 4, 1)
    first = {line[0]: record["response"]["status_code"] for line, record in together(lines)}
    left = [line for line in lines if first[line[0]] >= 500]
    second = {line[0]: (record["response"]["status_code"], record["error"]) for line, record in singly(left)}
print(json.dumps([first, second]))
"""


def test_a_line_that_kills_its_workers_is_given_up_and_no_other(cluster, folder):
    code = f"FOLDER = {str(folder)!r}\n" + POISONED
    first, second = json.loads(finished(cluster.run(code=code)))  # and nothing but that is on stdout
    assert len(first) == 12
    assert first["5"] == 500
    assert second.pop("5")[0] == 500
    assert all(error is None for _, error in second.values())


def test_replicas_answer_like_one_server_and_are_replaced_when_they_die(cluster, folder, lm, tmp_path):
    openai = pytest.importorskip("openai")
    httpx = pytest.importorskip("httpx")
    chat = [{"role": "user", "content": "Hello"}]
    asked = {"model": "little", "messages": chat, "temperature": 0, "max_tokens": 30}
    expected = lm.generate(chat, Settings(max_tokens=30)).text
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--ray", "--replicas", 2, "--cpus", 0.5, "--grace", 5, "--port", port]
    running = cluster.run("serve", "-m", folder, *options)
    try:
        lines = iter(running.stderr.readline, "")
        assert any('"ready"' in line for line in lines), "it ended before it was ready"
        url = f"http://127.0.0.1:{port}"
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client, httpx.Client() as http:
            assert client.chat.completions.create(**asked).choices[0].message.content == expected
            pieces = client.chat.completions.create(**asked, stream=True)
            assert "".join(chunk.choices[0].delta.content or "" for chunk in pieces) == expected

            endless = {"prompt": "Once", "stream": True, "max_tokens": 1000, "logit_bias": {"1": -100}}
            with http.stream("POST", f"{url}/v1/completions", json=endless) as stream:
                next(stream.iter_lines())
            left = 'outcome="left"} 1'  # by one of the two replicas
            assert until(lambda: left in http.get(f"{url}/metrics").text)

            before = cluster.workers("ray::ServeReplica:unspool")
            assert len(before) == 2
            os.kill(before[0], signal.SIGKILL)

            def recovered():
                now = cluster.workers("ray::ServeReplica:unspool")
                return len(now) == 2 and before[0] not in now

            until(recovered, running)
            in_a_row = 0
            while in_a_row < 20:
                try:
                    said = client.chat.completions.create(**asked).choices[0].message.content
                except openai.APIError:
                    in_a_row = 0
                    continue
                assert said == expected
                in_a_row += 1
    finally:
        running.send_signal(signal.SIGTERM)
        error = running.communicate(timeout=PATIENCE)[1]
    assert running.returncode == 0, error
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), 1)


HEALTH = """
from unspool import load
from unspool.apps.server import Limits, ServerConfig
from unspool.apps.server.server_replicas import ServerReplica

replica = ServerReplica(lambda: load(FOLDER), Limits(), ServerConfig("little"))
replica.__serve_build_asgi_app__()
replica._worker.start()
replica.check_health()
replica._worker.stop(0)
try:
    replica.check_health()
except RuntimeError as error:
    print(error)
"""


def test_a_replica_whose_worker_has_ended_is_not_healthy(cluster, folder):
    said = finished(cluster.run(code=f"FOLDER = {str(folder)!r}\n" + HEALTH))
    assert said == "the worker takes no requests: it starts, or shuts down\n"
