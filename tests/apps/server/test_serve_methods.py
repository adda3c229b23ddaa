"""What a request may name as its method: nothing that reads or runs a file, and nothing without a bound."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex

import pytest
from littlemodel import chatting_model, loaded

from unspool import Settings
from unspool.api.profile import Profile
from unspool.apps.batch import LineDefaults, LineWriter
from unspool.apps.batch.batch_work import alone
from unspool.apps.cli.root import root
from unspool.core.errors import BadRequest
from unspool.recipes.methods import method, requested
from unspool.rules.draft import Store

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from repository import ROOT
from starlette.testclient import TestClient

from unspool.apps.server import Limits, ServerConfig, Worker, application
from unspool.apps.server.server_request import ServerRequest

ROUTES = ("/v1/completions", "/v1/chat/completions", "/window/decode")
# Each of these stopped a server, or took all its memory, before options had ranges.
ENDLESS = (
    "lookup:ngram=99999999999999999999",
    "lookup:ngram=" + "9" * 5000,
    "trigram:rounds=1000000000000",
    "beam:width=100000",
    "smc:particles=100000",
    "several:count=100000",
    "stand:widths=100+100+100+100+100",
    "stand:widths=" + "+".join(["1"] * 1000),
    "lookahead:window=100000,ngram=100000",
    "jacobi:window=1000000",
    "renoise:steps=1000000000000",
    "mcts:rollouts=1000000000",
    "mcts:rows=0",
    "confident:threshold=nan",
    "confident:size=1000000",
    "credited:weight=inf",
    "template:words=" + "a+" * 2000,
    "sequoia:nodes=512,depth=64",
    "neurologic:width=64,words=" + "a/" * 100 + "a",
    "lookup:depth=100000 + block",
    "lookup + top_beta:beta=100000",
    "lookup + block" * 1000,
)
OWN = ("%s:r", "%s:r:depth=2", "%s:r + block", "lookup + %s:r")
NAMED = (
    "retrieve:store=%s",
    "retrieve:store=%s + block",
    "retrieve:project=%s",
    "filtered:file=%s",
    "specdecpp:head=%s",
    "chain + judged:head=%s",
    "mcts:reward=%s:r",
    "rewarded:partial=%s:r",
)


pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return chatting_model(tmp_path_factory.mktemp("methods") / "little")


@pytest.fixture(scope="module")
def lm(folder):
    with loaded(folder, kv_cache_tokens=20_000) as made:
        yield made


def client(lm, **config):
    return TestClient(application(Worker(lm, Limits()), ServerConfig("little", grace=1, **config)))


@pytest.fixture(scope="module")
def http(lm):
    with client(lm) as made:
        yield made


def body(route, spec, **more):
    asked = {"messages": [{"role": "user", "content": "a"}]} if "chat" in route else {"prompt": "a"}
    return {**asked, "max_tokens": 300, "decoding": {"method": spec}, **more}


def attack(route, spec, marker):
    """A request whose text is a shell command, and whose reward is what runs one."""
    return body(route, spec, response_format={"type": "choices", "choices": [f"touch {marker}"]})


def refused(answer):
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == "decoding.method"
    return error


def shells():
    return [f"{spec}={os.__file__}:system" for spec in ("mcts:rollouts=2,reward", "rewarded:particles=2,reward")]


@pytest.mark.parametrize("spec", shells(), ids=("mcts", "rewarded"))
def test_the_attack_is_one_where_an_operator_gives_it(lm, tmp_path, spec):
    marker = tmp_path / "ran"
    asked = attack("/v1/completions", spec, marker)
    with client(lm, method=spec) as trusting:
        trusting.post("/v1/completions", json={**asked, "decoding": None})
    assert marker.exists()


@pytest.mark.parametrize("spec", shells(), ids=("mcts", "rewarded"))
@pytest.mark.parametrize("route", ROUTES)
def test_no_request_runs_a_file(http, tmp_path, route, spec):
    marker = tmp_path / "ran"
    error = refused(http.post(route, json=attack(route, spec, marker)))
    assert error["code"] == "method_not_allowed"
    assert "reward" in error["message"]
    assert not marker.exists()


@pytest.mark.parametrize("spec", shells(), ids=("mcts", "rewarded"))
def test_nor_with_a_key(lm, tmp_path, spec):
    marker = tmp_path / "ran"
    with client(lm, keys=("secret",)) as guarded:
        for route in ROUTES:
            asked = attack(route, spec, marker)
            refused(guarded.post(route, json=asked, headers={"authorization": "Bearer secret"}))
    assert not marker.exists()


def answers(lm, lines, **reading):
    scribe = LineWriter(lm, LineDefaults("little", **reading), 4)
    try:
        found = {}
        for (index, _), record in alone(scribe, 4, enumerate(json.dumps(line).encode() for line in lines)):
            found[index] = record
        return [found[index] for index in range(len(lines))]
    finally:
        scribe.stop()


def test_no_line_of_a_batch_runs_a_file_and_the_others_are_answered(lm, tmp_path):
    marker = tmp_path / "ran"
    poison = [attack("/v1/completions", spec, marker) for spec in shells()]
    poison += [body("/v1/completions", spec) for spec in ENDLESS]
    fine = {"prompt": "a", "max_tokens": 2}
    found = answers(lm, [fine, *poison, fine])
    assert [record["response"]["status_code"] for record in found] == [200, *[400] * len(poison), 200]
    assert all(record["error"]["message"] for record in found[1:-1])
    assert not marker.exists()


def test_the_command_answers_a_file_with_such_a_line(folder, tmp_path):
    marker, source, out = tmp_path / "ran", tmp_path / "in", tmp_path / "out"
    lines = [attack("/v1/completions", shells()[0], marker), {"prompt": "a", "max_tokens": 1}]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert root.main(["batch", str(source), str(out), "-m", str(folder)], standalone_mode=False) == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [record["response"]["status_code"] for record in found] == [400, 200]
    assert not marker.exists()


@pytest.mark.parametrize("spec", NAMED)
def test_what_is_said_does_not_tell_which_files_exist(http, tmp_path, spec):
    there = tmp_path / "there.py"
    there.write_text("def r(text): return 1.0\n")
    places = (there, tmp_path / "not.py", "/etc/passwd", "/dev/zero", tmp_path)
    told = {json.dumps(refused(http.post("/v1/completions", json=body("", spec % place)))) for place in places}
    assert len(told) == 1


@pytest.mark.parametrize("spec", OWN)
def test_nor_does_what_is_said_of_objects_in_files(http, tmp_path, spec):
    there = tmp_path / "there.py"
    there.write_text("import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\ndef r(scored, chance): ...\n")
    places = (there, tmp_path / "not.py")
    told = {json.dumps(refused(http.post(r, json=body(r, spec % place)))) for place in places for r in ROUTES}
    assert len(told) == 1
    assert "names a file, and only the operator may" in told.pop()
    assert not there.with_suffix(".ran").exists()


@pytest.mark.parametrize("spec", ENDLESS, ids=lambda spec: spec[:40])
def test_what_has_no_bound_is_refused_before_it_is_built(http, spec):
    for route in ROUTES:
        error = refused(http.post(route, json=body(route, spec)))
        assert error["code"] == "invalid_method"
        assert len(error["message"]) < 1000
    with pytest.raises(BadRequest):  # on the command line too
        method(spec)
    assert http.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200


def test_a_request_composes_what_drafts_with_what_verifies(http):
    plain, *others = (
        http.post("/v1/completions", json=body("", spec, temperature=0, max_tokens=8)).json()["choices"][0]["text"]
        for spec in ("plain", "lookup:ngram=1,least=1 + block", "recycle + rejection", "zeroing")
    )
    assert others == [plain] * 3
    error = refused(http.post("/v1/completions", json=body("", "coupled + block")))
    assert "would not be exact" in error["message"]


@pytest.mark.parametrize("option", ["method", "methods"])
def test_an_operator_may_offer_a_method_with_a_file_by_its_exact_name(lm, tmp_path, option):
    store, other = tmp_path / "store.pt", tmp_path / "other.pt"
    for path in (store, other):
        Store([lm.vocabulary.encode("abcabc")]).save(path)
    spec = f"retrieve:store={store}"
    with client(lm, **{option: spec if option == "method" else (spec,)}) as http:
        assert http.post("/v1/completions", json=body("", spec)).status_code == 200
        for wrong in (f"retrieve:store={other}", f"{spec},nodes=4", f"retrieve: store={store}"):
            assert refused(http.post("/v1/completions", json=body("", wrong)))["code"] == "method_not_allowed"
    found = answers(lm, [body("", spec), body("", f"retrieve:store={other}")], method=spec)
    assert [record["response"]["status_code"] for record in found] == [200, 400]


def test_a_file_that_is_gone_is_not_the_clients_business(lm, tmp_path):
    store = tmp_path / "secret-place.pt"
    Store([lm.vocabulary.encode("abcabc")]).save(store)
    spec = f"retrieve:store={store}"
    with client(lm, methods=(spec,)) as http:
        store.unlink()
        answer = http.post("/v1/completions", json=body("", spec))
    assert answer.status_code == 500
    assert "Errno" not in answer.text


def test_a_profile_from_elsewhere_names_no_file(tmp_path):
    file = tmp_path / "tuned.toml"
    for spec in (*shells(), "retrieve:store=x", "mine.py:method"):
        file.write_text(f"method = {json.dumps(spec)}\n")
        with pytest.raises(BadRequest, match=r"tuned\.toml"):
            Profile.read(file)


def test_nor_do_the_options_of_a_template_of_llm(tmp_path):
    pytest.importorskip("llm")
    from unspool.apps.integrations.plugin import PluginModel, PluginOptions

    class Asked:
        options = PluginOptions(method=shells()[0], model="none")
        messages = ()
        schema = None

    import llm

    model = PluginModel("unspool", None)
    model.load = lambda chosen: pytest.fail("a model was loaded")
    with pytest.raises(llm.ModelError, match="reward"):
        list(model.execute(Asked(), False, None, None))


def test_an_errand_takes_no_name(lm):
    with pytest.raises(TypeError, match="requested"):
        ServerRequest(["a"], Settings(), "plain", lambda news: None)


def shipped():
    """The commands that the files of deploy/ start a server with, as lists of words."""
    deploy = ROOT / "deploy"
    (unit,) = re.findall(r"^ExecStart=((?:.*\\\n)*.*)$", (deploy / "unspool.service").read_text(), re.MULTILINE)
    (entry,) = re.findall(r"^ENTRYPOINT (\[(?:.*\\\n)*.*\])$", (deploy / "Containerfile").read_text(), re.MULTILINE)
    return [shlex.split(unit.replace("\\\n", " ")), json.loads(entry.replace("\\\n", " "))]


@pytest.mark.parametrize("command", shipped(), ids=("systemd", "container"))
def test_what_is_shipped_lets_requests_choose_among_a_few_methods_without_files(command):
    from unspool.apps.cli.serve import serve

    at = command.index("serve")
    given = serve.make_context("serve", command[at + 1 :]).params
    assert {"plain", "auto", "suffix", "lookup"} == {given["method"], *given["methods"]}
    for spec in given["methods"]:
        requested(spec)


# ---- no entrance can forget


TRUSTING = {"method", "fitted"}  # of unspool.recipes.methods: what names files if it is told to
READING = {"user_objects", "reward_of", "loaded"}  # what runs them
RECIPES = {"methods", "names", "prediction"}  # of unspool.recipes: the others make methods of unchecked values
WRITING = {"writers", "generate", "stream", "batch", "trace"}  # of a model: they take a spec as the operator's own


def sources():
    root = ROOT / "src" / "unspool"
    return sorted([*(root / "apps" / "server").rglob("*.py"), *(root / "apps" / "batch").rglob("*.py")])


@pytest.mark.parametrize("path", sources(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_server_and_batches_make_methods_of_strangers_in_one_way_only(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("methods"):
            assert not TRUSTING & {name.name for name in node.names}, f"{path}:{node.lineno}"
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            named = {part for name in node.names for part in name.name.split(".")}
            assert not READING & {*named, *(getattr(node, "module", None) or "").split(".")}, f"{path}:{node.lineno}"
            assert "methods" not in named, f"{path}:{node.lineno}: import names, so that this test sees which"
            inside = (getattr(node, "module", None) or "").partition("recipes.")[2]
            assert inside in {"", *RECIPES}, f"{path}:{node.lineno}"
            assert inside != "prediction" or named == {"predicted"}, f"{path}:{node.lineno}: the rest reads files"
            assert "recipes" not in named, f"{path}:{node.lineno}"
        if isinstance(node, ast.Attribute) and node.attr in WRITING and path.stem != "server_request":
            owner = ast.unparse(node.value)
            assert not owner.endswith("lm"), f"{path}:{node.lineno}: only a request has texts written"


def test_that_test_can_fail(tmp_path):
    assert {"server", "window", "batch"} <= {path.parent.name for path in sources()}
    for bad in (
        "from ..methods import method",
        "from .. import methods",
        "from ..core.user_objects import loaded",
        "from ..recipes.search import mcts",
        "from .. import recipes",
        "lm.generate(p)",
    ):
        file = tmp_path / "new.py"
        file.write_text(bad + "\n")
        with pytest.raises(AssertionError):
            test_server_and_batches_make_methods_of_strangers_in_one_way_only(file)


def test_requested_is_the_same_method_where_nothing_is_refused():
    for spec in ("plain", "lookup:ngram=2,depth=8", "stand:widths=3+2", "beam:length=gnmt"):
        assert requested(spec) == method(spec)


def test_what_requests_may_choose_is_prepared_before_anybody_waits():
    """`auto` measures what forwards cost when it is first used: seconds in which nobody else would get a token."""
    assert "auto" in ServerConfig("little").choices
    assert ServerConfig("little", method="lookup", methods=("suffix",)).choices == ("lookup", "suffix")
