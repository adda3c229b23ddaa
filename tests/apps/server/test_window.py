"""The window: what its records say is what the decoder did, and what its page shows is what the records say."""

from __future__ import annotations

import itertools
import json
import re
from contextlib import contextmanager
from importlib import resources

import pytest
from hostile import HOSTILE, hostile_model
from littlemodel import loaded

import unspool
from unspool.api.origin import DraftWatcher
from unspool.apps.cli.serve import serve
from unspool.core.errors import BadRequest
from unspool.recipes.methods import fitted, runnable
from unspool.runtime.cache.table_model import Table

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx")

from starlette.testclient import TestClient

from unspool.apps.server import Limits, ServerConfig, Worker, application
from unspool.apps.server.window.routes import bundle, choices, names, saved, text

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return hostile_model(tmp_path_factory.mktemp("window") / "little")


@pytest.fixture(scope="module")
def lm(folder):
    with loaded(folder, kv_cache_tokens=20_000) as made:
        yield made


@contextmanager
def client(lm, limits=Limits(tokens=4000), **config):  # noqa: B008
    with TestClient(application(Worker(lm, limits), ServerConfig("little", grace=1, **config))) as made:
        yield made


@pytest.fixture(scope="module")
def http(lm):
    with client(lm) as made:
        yield made


def decoded(http, method="plain", headers=None, **body):
    """What the server tells of one text: how it began, its rounds, how it ended."""
    asked = {
        "prompt": "abcabcabc",
        "temperature": 0,
        "max_tokens": 24,
        "seed": 3,
        "decoding": {"method": method},
        **body,
    }
    answer = http.post("/window/decode", json=asked, headers=headers)
    assert answer.status_code == 200, answer.text
    *lines, last = [line[6:] for line in answer.text.split("\n\n") if line]
    assert last == "[DONE]"
    news = [json.loads(line) for line in lines]
    assert "began" in news[0]
    assert "ended" in news[-1]
    return news[0]["began"], [each["round"] for each in news if "round" in each], news[-1]["ended"]


def text_of(rounds, ended):
    return "".join(token["text"] for each in rounds for token in each["tokens"]) + ended["tail"]


# ---- the records


@pytest.mark.parametrize("method", ["plain", "lookup:ngram=1,least=1", "merge", "jacobi", "auto", "beam:width=2"])
@pytest.mark.parametrize("heat", [0, 0.9])
def test_the_records_add_up_to_the_librarys_text(http, lm, method, heat):
    if method == "beam:width=2" and heat:
        pytest.skip("a search draws nothing")
    began, rounds, ended = decoded(http, method, temperature=heat)
    settings = unspool.Settings(temperature=heat, max_tokens=24, seed=3)
    output = lm.generate("abcabcabc", settings, method, raw=True)
    assert text_of(rounds, ended) == output.text
    tokens = [token for each in rounds for token in each["tokens"]]
    assert [token["id"] for token in tokens] == list(output.tokens)
    assert (began["model"], began["method"], ended["reason"]) == ("little", method, output.reason)
    assert ended["forwards"]["target"] == rounds[-1]["forwards"]["target"] > 0
    for token in tokens:
        assert token["name"] == lm.vocabulary.name(token["id"])
        (own,) = [row for row in token["top"] if row[3]]
        assert own[0] == token["name"]
        assert own[1] == token["p"]
        assert token["top"][0][1] == max(row[1] for row in token["top"])


@pytest.mark.parametrize("method", ["lookup:ngram=1,least=1", "merge", "jacobi"])
def test_the_trees_are_those_that_were_drafted(http, lm, method):
    lm.model.forget()  # drafters read the laws of a prompt, which a cache tells only if it was asked for them before
    _, rounds, _ = decoded(http, method)
    lm.model.forget()
    watch = DraftWatcher()
    output = lm.generate(
        "abcabcabc", unspool.Settings(max_tokens=24), watch.over(fitted(method, lm.vocabulary)), raw=True
    )
    done, drafted, stood = len(lm.encode("abcabcabc")), 0, 0
    for each in rounds:
        tree = watch.trees.get(done)
        nodes = each.get("tree", {"nodes": []})["nodes"]
        kept = [node for node in range(len(tree)) if tree.depth(node) < 24 - (done - 9)] if tree else []
        assert [node["text"] for node in nodes] == [lm.vocabulary.name(tree.drawn[i].token) for i in kept]
        path = [node["text"] for node in nodes if node["accepted"]]
        tip = max((i for i, node in enumerate(nodes) if node["accepted"]), default=-1)
        kids = [node["text"] for node in nodes if node["parent"] == tip]
        last = each["tokens"][-1]
        if last["origin"] == "added":
            assert last.get("instead") == next((kid for kid in kids if kid != last["name"]), None)
        assert path == [token["name"] for token in each["tokens"] if token["origin"] == "drafted"]
        done, drafted, stood = done + len(each["tokens"]), drafted + len(nodes), stood + len(path)
        assert (each["drafted"], each["accepted"]) == (drafted, stood)
    assert (drafted, stood) == (output.trace.drafted, output.trace.accepted_tokens)
    assert stood > 0


def counting(text):
    """A model over 264 tokens that writes a, b or the first hostile one, mostly in turn."""
    weights = [0.0] * (258 + len(HOSTILE))
    for place, token in enumerate((66, 67, 258)):
        weights[token] = 50.0 if len(text) % 3 == place else 1.0
    return weights


def table(lm, drafts=0):
    """The model of that table, with so many draft models behind it."""
    return unspool.LM(
        "table", Table(lm.vocabulary.size, counting), lm.vocabulary, draft=table(lm, drafts - 1) if drafts else None
    )


def test_every_method_that_can_run_is_told_as_the_library_writes_it(lm):
    model, settings = table(lm, 2), unspool.Settings(temperature=1, max_tokens=5, seed=3)
    ran = 0
    with client(model) as http:
        for each in choices(model, ServerConfig("table")):
            if each["missing"]:
                continue
            try:
                output = model.generate("xy", settings, each["spec"])
            except BadRequest:  # a judge needs a chat template, and a canvas of its own a certain model
                continue
            _, rounds, ended = decoded(http, each["spec"], prompt="xy", max_tokens=5, temperature=1)
            assert (each["spec"], text_of(rounds, ended)) == (each["spec"], output.text)
            ran += 1
    assert ran > 80


@pytest.mark.parametrize("method", ["confident:threshold=0.5", "quota:steps=3", "edit:threshold=0.9"])
def test_a_canvas_is_told_by_its_changes(lm, method):
    model = table(lm)
    with client(model) as http:
        _, rounds, ended = decoded(http, method, prompt="xy", max_tokens=6)
    output = model.generate("xy", unspool.Settings(max_tokens=6, seed=3), method)
    assert text_of(rounds, ended) == output.text
    places, looks = {}, {}
    for each in rounds:
        assert each["canvas"]["size"] == 6
        for place, name, look, _ in each["canvas"]["changes"]:
            places[place], looks[place] = name, look
        for token in each["tokens"]:
            assert (places[token["place"]], looks[token["place"]]) == (token["name"], token["look"])
            assert token["origin"] == "unmasked"
    assert [places[i] for i in range(6)] == [lm.vocabulary.name(token) for token in output.tokens]
    assert [event.round for event in output.events] == [looks[i] for i in range(6)]


def test_seconds_only_grow_and_have_four_parts(http):
    _, rounds, ended = decoded(http, "merge")
    sums = [sum(each["seconds"].values()) for each in [*rounds, ended]]
    assert set(ended["seconds"]) == {"draft", "forward", "rule", "other"}
    assert sums[0] > 0
    assert all(one <= other + 1e-4 for one, other in itertools.pairwise(sums))


@pytest.mark.parametrize("method", ["plain", "forced"])
def test_what_a_form_leaves_no_choice_about_is_forced(http, method):
    pytest.importorskip("llguidance")
    form = {"type": "regex", "regex": "ab[cd]xyz"}
    _, rounds, ended = decoded(http, method, response_format=form)
    assert re.fullmatch("ab[cd]xyz", text_of(rounds, ended))
    tokens = [token for each in rounds for token in each["tokens"] if token["text"]]
    assert [token["origin"] == "forced" for token in tokens] == [True, True, False, True, True, True]


def test_a_stop_string_across_records_is_taken_back(http, lm):
    whole = lm.generate("abcabcabc", unspool.Settings(max_tokens=24), raw=True).text
    stop = whole[5:8]
    _, rounds, ended = decoded(http, "merge", stop=[stop])
    assert text_of(rounds, ended) == whole[: whole.index(stop)]
    assert ended["reason"] == "string"
    _, rounds, ended = decoded(http, "merge", stop=[whole[-1] + "…"])  # which might have come, until the end
    assert text_of(rounds, ended) == whole
    assert ended["tail"] == whole[-1]


def test_one_can_say_what_is_refused_and_why(http):
    for body, why in (
        ({"prompt": "a", "n": 2}, "one text"),
        ({"prompt": ["a", "b"]}, "one text"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "temperature": 3}, "temperature"),
        ({"prompt": "a", "decoding": {"method": "<b>"}}, "no method is called '<b>'"),
        ({"prompt": "a", "decoding": {"method": "chain"}}, "draft"),
        ({"prompt": "a", "decoding": {"method": "confident"}}, "fills holes"),
        ({"messages": []}, "messages"),
        ({}, "prompt"),
    ):
        answer = http.post("/window/decode", json=body)
        told = answer.json() if answer.status_code != 200 else json.loads(answer.text.split("\n\n")[-2][6:])
        assert why in told["error"]["message"], told
    assert http.post("/window/decode", content=b"{", headers={"content-type": "application/json"}).status_code == 400
    assert http.post("/window/decode", content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
    assert http.get("/window/decode").status_code == 405


def test_the_page_is_open_and_the_model_is_not(lm):
    with client(lm, keys=("k",), methods=("lookup",)) as http:
        for path in ("/", "/window/window.js", "/window/window.css", "/window/saved.html"):
            answer = http.get(path)
            assert answer.status_code == 200
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
        assert http.get("/window/methods").status_code == http.post("/window/decode", json={}).status_code == 401
        assert http.get("/window/routes.py").status_code == http.get("/window/../files.py").status_code == 401
        own = {"authorization": "Bearer k"}
        told = http.get("/window/methods", headers=own).json()
        assert [each["spec"] for each in told["methods"]] == ["plain", "lookup"]
        assert not told["options"]
        refused = http.post("/window/decode", json={"prompt": "a", "decoding": {"method": "merge"}}, headers=own)
        assert refused.json()["error"]["code"] == "method_not_allowed"
        assert decoded(http, "lookup", headers=own)[1]
    with client(lm, window=False) as http:
        assert {http.get(path).status_code for path in ("/", "/window/methods", "/window/window.js")} == {404}


def test_the_command_can_leave_the_window_out(folder, monkeypatch, capsys):
    configs = []

    def seen(worker, config):
        configs.append(config)
        raise BadRequest("seen")  # before anything listens

    monkeypatch.setattr("unspool.apps.server.app.application", seen)
    for given in ([], ["--no-window"]):
        with pytest.raises(BadRequest, match="seen"):
            serve.main(["--model", str(folder), *given], standalone_mode=False)
    assert [config.window for config in configs] == [True, False]


def test_the_choices_say_what_is_missing(lm):
    known = {each["spec"]: each for each in choices(lm, ServerConfig("little"))}
    assert set(known) == {entry.name for entry in runnable()}
    missing = {spec: each["missing"] for spec, each in known.items()}
    assert missing["plain"] == missing["merge"] == ""
    assert "--draft" in missing["chain"]
    assert "smollm2-diffusion" in missing["confident"]
    assert known["lookup"]["options"] == "ngram=3,least=2,depth=5"
    assert known["lookup"]["claim"] == "SEED"
    assert not any("not from requests" in said for each in known.values() for said in each["ranges"].values())
    assert "reward" not in known["mcts"]["options"]


def test_the_saved_page_has_everything_in_it():
    page = saved()
    assert not re.search(r"(?:src|href)=\"(?!data:,)", page)
    assert "import " not in bundle("saved.js")
    assert "export " not in bundle("saved.js")
    assert page.count('id="trace">null<') == 1
    for name in names():
        code = text(name)
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function", code), name


def test_the_default_model_tells_its_rounds(smollm2):
    chat = {"messages": [{"role": "user", "content": "Say: one two three, one two three."}]}
    with client(smollm2) as http:
        assert http.get("/window/methods").json()["chat"]
        _, rounds, ended = decoded(http, "merge", **chat, prompt=None, max_tokens=8)
    output = smollm2.generate(chat["messages"], unspool.Settings(max_tokens=8), "merge")
    assert text_of(rounds, ended) == output.text
    assert [len(each["tokens"]) for each in rounds] == [
        len(list(group)) for _, group in itertools.groupby(output.events, key=lambda event: event.round)
    ]
    assert ended["forwards"] == dict(output.trace.forwards)


def test_the_page_has_words_for_every_reason_why_a_text_ended():
    page = resources.files("unspool.apps.server.window") / "page" / "pane.js"
    told = set(re.findall(r"(\w+): \"", re.search(r"const REASONS = \{(.*?)\};", page.read_text("utf-8"), re.S)[1]))
    assert {"eos", "token", "string", "length", "time", "rows"} <= told
