"""Models of the Hub: its own library over a stand-in on this machine, with revisions, mirrors and no network."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from huggingface_hub import constants
from littlemodel import chatting_model
from tinygguf import tiny_gguf

import unspool
from unspool.api.settings import Settings
from unspool.apps.cli.batch import _files
from unspool.core.errors import BadModel, FetchFailed
from unspool.models.address import is_hub_id, path
from unspool.models.fingerprint import fingerprint
from unspool.models.hub import snapshot

NAME = "someone/little"


def commit_of(files):
    return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()


class Hub:
    """What the library asks of the Hub: about a model, its files, and each of them; revisions are dicts of files."""

    def __init__(self, revisions):
        self.commits = {name: commit_of(files) for name, files in revisions.items()}
        self.files = {self.commits[name]: files for name, files in revisions.items()}
        self.asked, self.tokens = [], set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self):
                self.answer(False)

            def do_GET(self):
                self.answer(True)

            def answer(self, whole):
                where = urlsplit(self.path).path
                outer.asked.append(where)
                outer.tokens.add(self.headers.get("authorization"))
                status, headers, body = outer.found(where)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if whole:
                    self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http.server_port}"

    def found(self, where):
        if not where.startswith((f"/api/models/{NAME}", f"/{NAME}/resolve/")):
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        about = where.removeprefix(f"/api/models/{NAME}").strip("/").split("/")
        if where.startswith("/api") and about[0] == "tree":
            listed = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for name, data in self.files[about[1]].items()
            ]
            return 200, {"Content-Type": "application/json"}, json.dumps(listed).encode()
        if where.startswith("/api"):
            commit = self.commit(about[1] if about[0] == "revision" else "main")
            if commit is None:
                return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
            files = [{"rfilename": name} for name in self.files[commit]]
            told = {"id": NAME, "modelId": NAME, "sha": commit, "siblings": files, "tags": [], "private": False}
            return 200, {"Content-Type": "application/json"}, json.dumps(told).encode()
        revision, _, name = where.removeprefix(f"/{NAME}/resolve/").partition("/")
        commit = self.commit(revision)
        data = self.files[commit][name]
        return 200, {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": commit}, data

    def commit(self, revision):
        return self.commits.get(revision, revision if revision in self.files else None)

    def close(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return chatting_model(tmp_path_factory.mktemp("hub") / "little")


@pytest.fixture
def hub(folder, tmp_path, monkeypatch):
    files, gguf = {file.name: file.read_bytes() for file in folder.iterdir()}, tiny_gguf(tmp_path / "a").read_bytes()
    others = {"modeling.py": b"x", "onnx/model.onnx": b"x", "consolidated.safetensors": b"x", "a.bin": b"x"}
    first, old = files | {"note.txt": b"the first"}, {"config.json": b"{}", "w.bin": b""}
    bits = {f"Little-{tag}.gguf": tag.encode() for tag in ("Q4_K_M", "Q4_K_S", "Q8_0")}
    bits |= {"mmproj-Q8_0.gguf": b"eyes", "../Q2_K.gguf": b"outside", "README.md": b""}
    bits |= {f"Little-BF16-0000{part}-of-00002.gguf": b"x" for part in (1, 2)}
    bits |= {"iq4_xs/little.gguf": b"in a folder"}
    made = Hub({"main": files | others, "v1": first, "old": old, "bits": bits, "real": {"a.F32.gguf": gguf}})
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, made.url)  # as HF_ENDPOINT would
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", made.url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("UNSPOOL_OFFLINE", raising=False)
    yield made
    made.close()


def test_a_model_comes_with_what_is_needed_and_nothing_else(hub, folder):
    found = path(NAME)
    assert {file.name for file in found.iterdir()} == {file.name for file in folder.iterdir()}
    assert (found / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub):
    assert (snapshot(f"{NAME}@v1") / "note.txt").read_text() == "the first"
    assert snapshot(f"{NAME}@{hub.commits['v1']}") == snapshot(f"{NAME}@v1") != snapshot(NAME)
    with pytest.raises(BadModel, match="no revision 'v9'"):
        snapshot(f"{NAME}@v9")
    assert is_hub_id(f"{NAME}@v1")
    assert is_hub_id(f"{NAME}@refs/pr/1")


def test_older_weights_come_only_where_there_are_no_others(hub):
    assert {file.name for file in snapshot(f"{NAME}@old").iterdir()} == {"config.json", "w.bin"}


def test_our_own_runtime_opens_a_model_of_the_hub(hub, folder):
    ours = unspool.load(NAME, runtime="native", device="cpu", dtype="fp32")
    here = unspool.load(folder, device="cpu", dtype="fp32")
    settings = Settings(max_tokens=8)
    assert ours.generate("Once", settings).text == here.generate("Once", settings).text
    assert ours.name == NAME


def test_what_was_downloaded_is_there_without_a_network(hub, monkeypatch):
    found = snapshot(NAME)
    monkeypatch.setenv("UNSPOOL_OFFLINE", "1")
    hub.asked.clear()
    assert snapshot(NAME) == found
    assert not hub.asked
    with pytest.raises(FetchFailed, match="UNSPOOL_OFFLINE is set"):
        snapshot(f"{NAME}@v1")
    monkeypatch.delenv("UNSPOOL_OFFLINE")
    hub.close()
    assert snapshot(NAME) == found
    with pytest.raises(FetchFailed, match=r"cannot be reached.*HF_ENDPOINT"):
        snapshot("someone/else")


def test_a_model_that_is_not_there_and_the_token_of_the_user(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with pytest.raises(BadModel, match=r"no such model.*hf auth login") as caught:
        snapshot("someone/else")
    assert "Bearer hf_secret" in hub.tokens
    assert "secret" not in str(caught.value)


def test_a_download_that_breaks_off_is_said_to(hub, monkeypatch):
    whole = hub.found
    monkeypatch.setattr(hub, "found", lambda where: (403, {}, b"{}") if "/resolve/" in where else whole(where))
    with pytest.raises(FetchFailed, match=r"broke off.*again"):
        snapshot(NAME)


@pytest.mark.parametrize(("tag", "expected"), [("Q4_K_M", b"Q4_K_M"), ("q8_0", b"Q8_0"), ("IQ4_XS", b"in a folder")])
def test_a_tag_names_a_file_by_a_part_of_its_name(tag, expected, hub, monkeypatch):
    found = path(f"{NAME}:{tag}@bits")
    assert found.read_bytes() == expected
    assert not any("Q4_K_S" in where for where in hub.asked)  # nothing else is brought
    monkeypatch.setenv("UNSPOOL_OFFLINE", "1")
    assert path(f"{NAME}:{tag}@bits") == found
    with pytest.raises(BadModel, match=r"no .gguf file has 'Q4_K_S' in its name"):
        path(f"{NAME}:Q4_K_S@bits")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (f"{NAME}@bits", r"no safetensors.*Name one.*Q4_K_M.gguf"),
        (f"{NAME}:Q4@bits", "no .gguf file has 'Q4' in its name"),
        (f"{NAME}:Little@bits", "6 .gguf files have 'Little'"),
        (f"{NAME}:BF16@bits", "in 2 pieces"),
        (f"{NAME}:Q2_K@bits", "no .gguf file has 'Q2_K'"),
        (f"{NAME}:Q4_K_M", "There are: none"),
    ],
)
def test_a_tag_that_names_no_one_file_is_answered_with_those_there_are(address, words, hub):
    with pytest.raises(BadModel, match=words):
        snapshot(address)


def test_a_tagged_file_runs_natively(hub):
    lm = unspool.load(f"{NAME}:F32@real", device="cpu")
    assert "transformers" not in lm.key
    assert lm.generate("ab", Settings(max_tokens=3), raw=True).text is not None


def test_a_hub_model_is_native_unless_it_cannot_be(hub):
    assert "native" in unspool.load(NAME, device="cpu", dtype="fp32").key


def test_transformers_opens_the_same_files(hub, folder):
    pytest.importorskip("transformers")
    model = unspool.load(NAME, runtime="transformers", device="cpu", dtype="fp32")
    here = unspool.load(folder, runtime="transformers", device="cpu", dtype="fp32")
    settings = Settings(max_tokens=8)
    assert model.generate("Once", settings).text == here.generate("Once", settings).text
    assert hub.asked.count(f"/api/models/{NAME}") == 1  # both the model and its tokenizer come from one folder


def test_a_batch_notices_that_a_model_of_the_hub_was_replaced(hub):
    before = [fingerprint(file) for file in _files(NAME, here=True)]
    assert before == [fingerprint(file) for file in _files(f"{NAME}@{hub.commits['main']}", here=True)]
    hub.commits["main"] = hub.commits["v1"]
    assert before != [fingerprint(file) for file in _files(NAME, here=True)]
    assert _files(NAME, here=False) == []
