"""Schemas and grammars of strangers: bounded in size, compiled in a process that can be ended, by turns for clients."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import CancelledError
from dataclasses import asdict, fields, replace

import httpx
import pytest
import torch
from letters import Letters
from patience import PATIENCE
from serving import LIMITS, folder, lm, serving, told  # noqa: F401

from unspool.api.settings import Settings
from unspool.apps.server import Limits
from unspool.apps.server import compile_queue as fitting
from unspool.apps.server.breath import REST, SLICE, SearchBreath
from unspool.apps.server.compile_queue import CompileQueue
from unspool.apps.server.grammar_process import Asker, AskerLeft, Trials
from unspool.apps.server.server_request import Busy, ServerRequest
from unspool.core.errors import BadRequest
from unspool.loops.plain import plain
from unspool.rules.constrain import JsonSchema, Regex, json_schema
from unspool.rules.constrain.closing import Closing
from unspool.rules.constrain.form import Form
from unspool.rules.constrain.trial import try_first, under

pytest.importorskip("llguidance")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="trials fork")

SLOW = {"allOf": [{"type": "string", "pattern": f"a{i}|b.*c{i}"} for i in range(26)]}
"""About 1.2 kB that would take hours."""
CRASHING = "start: r0\n" + "".join(f'r{i}: "a{i}" r{(i + 1) % 5000} | "b"\n' for i in range(5000))
"""Rules that lead so deep into each other that compiling them overflows the stack and ends the process."""


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


@pytest.fixture(scope="module")
def served(lm):  # noqa: F811
    with serving(lm, replace(LIMITS, body=1 << 20, form_bytes=300_000, compile_seconds=0.5)) as made:
        yield made


def properties(count):
    return {"type": "object", "properties": {f"p{i}": {} for i in range(count)}}


def nested(depth):
    return {"type": "array", "items": nested(depth - 1)} if depth else {}


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"type": "regex", "regex": "a" * 9000}, "a regular expression of 9000 characters, and 8192 are allowed"),
        ({"type": "choices", "choices": ["a"] * 4001}, "4001 values in enums or choices, and 4000 are allowed"),
        ({"type": "grammar", "grammar": "x" * 300_001}, "bytes, and 300000 are allowed"),
        (schema_format(properties(2001)), "has 2001 properties, and 2000 are allowed"),
        (schema_format({"enum": [*range(4001)]}), "has 4001 values in enums or choices, and 4000 are allowed"),
        (schema_format({"type": "string", "pattern": "b" * 8193}), "a regular expression of 8193 characters"),
        (schema_format({"patternProperties": {"b" * 8193: {}}}), "a regular expression of 8193 characters"),
        (schema_format(nested(120)), "nested deeper than the 100 levels that are allowed"),
    ],
)
def test_what_is_too_large_is_refused_with_both_numbers(served, form, why):
    answer = served.post("/v1/completions", prompt="a", response_format=form, max_tokens=1)
    assert answer.status_code == 400
    assert why in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == "response_format"
    assert answer.json()["error"]["code"] == "form_too_large"


def test_the_tools_of_a_request_are_bounded_together(served):
    tools = [
        {"type": "function", "function": {"name": f"f{i}", "parameters": properties(1001)}} for i in range(2)
    ]  # each of them is small enough
    answer = served.post("/v1/chat/completions", messages=[{"role": "user", "content": "a"}], tools=tools, max_tokens=1)
    assert answer.status_code == 400
    assert "tools has 2002 properties, and 2000 are allowed" in answer.json()["error"]["message"]


def test_every_limit_is_an_option_of_the_server_with_the_same_default():
    from unspool.apps.cli.serve import Lending

    said = {field.name: field.metadata["option"][1].get("default") for field in fields(Lending)}
    assert said.pop("tokens") is None  # as many as the model's context
    assert said == {name: value for name, value in asdict(Limits()).items() if name != "tokens"}


def test_a_small_schema_that_would_compile_for_hours_is_given_up(served):
    answer = served.post("/v1/completions", prompt="a", response_format=schema_format(SLOW), max_tokens=1)
    assert answer.status_code == 400
    assert "more than 0.5 seconds of processor time to compile" in answer.json()["error"]["message"]
    served.until(lambda: len(served.worker.fitting) == 0)


def test_a_grammar_that_crashes_the_compiler_crashes_nothing_else(served):
    answer = served.post(
        "/v1/completions", prompt="a", response_format={"type": "grammar", "grammar": CRASHING}, max_tokens=1
    )
    assert answer.status_code == 400
    assert "nested too deeply" in answer.json()["error"]["message"]
    assert served.text(prompt="a", response_format={"type": "regex", "regex": "yes"}, max_tokens=4) == "yes"


def test_a_function_whose_parameters_compile_for_hours_is_given_up(served):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": SLOW}}}}
    answer = served.post(
        "/v1/chat/completions", messages=[{"role": "user", "content": "a"}], tools=[tool], max_tokens=1
    )
    assert answer.status_code == 400
    assert "processor time to compile" in answer.json()["error"]["message"]


def test_what_a_client_left_behind_is_ended(lm, monkeypatch):  # noqa: F811
    """The limit is an hour, and what ends it is that the client left, not the memory that it may take."""
    with serving(lm, replace(LIMITS, compile_seconds=3600.0)) as served:
        begun, fit = [], served.worker.fit
        monkeypatch.setattr(served.worker, "fit", lambda request: begun.append(fit(request)) or begun[-1])
        body = {"prompt": "a", "response_format": schema_format(SLOW), "max_tokens": 1}
        with pytest.raises(httpx.ReadTimeout):
            served.http.post("/v1/completions", json=body, timeout=0.5)
        served.until(lambda: len(served.worker.fitting) == 0)
        with pytest.raises((AskerLeft, CancelledError)):
            begun[0].result(timeout=60)
        assert served.text(prompt="a", response_format={"type": "regex", "regex": "yes"}, max_tokens=4) == "yes"


# ---- trials


@pytest.fixture
def trials():
    made = Trials(0.3)
    yield made
    made.close()


def grammar_of(form):
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_json_schema(json.dumps(form))


def test_forms_are_tried_wherever_they_are_compiled():
    tried = []
    words = Letters(tuple('{}[]":,abc1'))
    with under(tried.append):
        json_schema({"type": "string", "pattern": "a+"}).fit(words)
        Regex("a|b").fit(words)
    assert len(tried) == 3  # a schema is checked, then compiled
    assert tried[0] == tried[1]
    try_first("outside nobody asks")
    assert len(tried) == 3


def test_a_trial_passes_is_refused_and_is_remembered(trials):
    good = grammar_of({"type": "integer"})
    trials(good, Asker())
    trials.close()
    trials(good, Asker())  # known: nobody is asked
    assert trials._process is None
    with pytest.raises(BadRequest, match=r"0\.3 seconds of processor time"):
        trials(grammar_of(SLOW), Asker())


def test_a_wrong_grammar_passes_a_trial_as_it_does_no_harm(trials):
    trials("no grammar at all", Asker())


def test_one_who_left_gets_no_trial(trials):
    asker = Asker()
    asker.leave()
    with pytest.raises(AskerLeft):
        trials(grammar_of(SLOW), asker)


def test_a_process_that_is_lost_is_told_to_those_who_wait(trials):
    slow = Trials(20.0)  # of which a fork that is left alone makes no more use
    slow.start()
    caught = []

    def ask():
        try:
            slow(grammar_of(SLOW), Asker())
        except Busy as error:
            caught.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while not slow._running:
        pass
    slow._process.kill()
    thread.join(30)
    assert "lost; try again" in str(caught[0])
    slow.close()


# ---- whose turn it is


class Held(Form):
    def fit(self, words):
        raise NotImplementedError


def errand(client):
    return ServerRequest(("a",), Settings(constraint=Held()), plain(), lambda news: None, client=client)


def test_clients_take_turns_and_each_sends_its_smallest_first(monkeypatch):
    """One client fills every place it may have; another's request is begun beside it, and they alternate after that."""
    order, go, began = [], threading.Event(), threading.Semaphore(0)
    made = CompileQueue(100, 1.0)

    def fit(name):
        def work():
            began.release()
            assert go.wait(30)
            order.append(name)

        return work

    def submit(client, name, size):
        return made.submit(errand(client), fit(name), size)

    first = [submit("many", f"m{i}", 1) for i in range(fitting.SHARE)]
    for _ in first:
        assert began.acquire(timeout=30)
    waiting = [submit("many", f"large {i}", 100 + i) for i in range(3)]
    assert not began.acquire(timeout=0.05)  # the last place is not for this one
    other = submit("one", "other", 50)
    assert began.acquire(timeout=30)  # but for this one
    assert len(made) == fitting.SHARE + 4
    small = submit("many", "small", 1)
    monkeypatch.setattr(fitting, "SHARE", 1)  # from here on one after the other
    go.set()
    for done in (*first, *waiting, other, small):
        done.result(30)
    later = [name for name in order if name in ("small", "large 0", "large 1", "large 2")]
    assert later == ["small", "large 0", "large 1", "large 2"]
    made.close()


def test_too_many_forms_are_sent_away_and_those_who_leave_make_room():
    go = threading.Event()
    made = CompileQueue(fitting.FITTERS, 1.0)
    running = [made.submit(errand("a"), lambda: go.wait(30) and None, 1) for _ in range(fitting.SHARE)]
    last = errand("a")
    waiting = made.submit(last, lambda: None, 1)
    with pytest.raises(Busy, match="forms of 3 requests wait to be compiled, 3 of them yours"):
        made.submit(errand("a"), lambda: None, 1)
    made.drop(last)
    with pytest.raises(CancelledError):
        waiting.result(30)
    again = made.submit(errand("a"), lambda: None, 1)
    go.set()
    for done in (*running, again):
        done.result(30)
    made.close()


def test_no_client_fills_the_places_of_others_up_to_twice_as_many():
    go, most = threading.Event(), 8
    made = CompileQueue(most, 1.0)

    def submit(client):
        return made.submit(errand(client), lambda: go.wait(30) and None, 1)

    held = [submit("many") for _ in range(most)]
    with pytest.raises(Busy):
        submit("many")
    held += [submit("one") for _ in range(most // 2)]  # its part beside the other's, who had all
    with pytest.raises(Busy, match="forms of 12 requests wait to be compiled, 4 of them yours"):
        submit("one")
    held += [submit(str(i)) for i in range(2 * most - len(held))]
    with pytest.raises(Busy, match="forms of 16 requests wait to be compiled, 0 of them yours"):
        submit("late")
    go.set()
    for done in held:
        done.result(30)
    made.close()


def test_a_closed_fitting_cancels_who_waits():
    go = threading.Event()
    made = CompileQueue(100, 1.0)
    for i in range(fitting.FITTERS):
        made.submit(errand(str(i)), lambda: go.wait(30) and None, 1)
    waiting = made.submit(errand("late"), lambda: None, 1)
    made.close()
    assert waiting.cancelled()
    go.set()


# ---- searches in Python


class Open:
    """A text that may always go on and never end, so that a search for its end has no end either."""

    def step(self, token):
        return self

    def mask(self):
        return torch.ones(len(WIDE.pieces) + 3, dtype=torch.bool)

    def forced(self):
        return ()

    def complete(self):
        return False


WIDE = Letters(tuple("abcdefgh"))


def searching(begun=None):
    """A search that would go on for days."""
    if begun is not None:
        begun.set()
    return Closing(WIDE.size, WIDE.eos, WIDE.piece).find(Open(), 1 << 30)


def test_a_search_whose_client_has_left_is_ended():
    made, begun = CompileQueue(100, 3600.0), threading.Event()
    request = errand("a")
    done = made.submit(request, lambda: searching(begun), 1)
    assert begun.wait(PATIENCE)
    made.drop(request)
    with pytest.raises(AskerLeft):
        done.result(PATIENCE)
    made.close()


def test_a_search_has_as_much_processor_time_as_a_trial():
    made = CompileQueue(100, 0.05)
    with pytest.raises(BadRequest, match=r"no end of a text of this form was found in 0\.05 seconds of processor time"):
        made.submit(errand("a"), searching, 1).result(PATIENCE)
    made.close()


def test_a_search_rests_between_slices_so_that_others_have_the_interpreter(monkeypatch):
    slept, now = [], [0.0]
    monkeypatch.setattr("unspool.apps.server.breath.sleep", slept.append)
    monkeypatch.setattr("unspool.apps.server.breath.perf_counter", lambda: now[0])
    breath, rounds = SearchBreath(Asker(), 3600.0), 0

    def breathed():
        nonlocal rounds
        rounds += 1
        now[0] += SLICE / 3.5
        breath()

    with under(None, breathed):
        Closing(WIDE.size, WIDE.eos, WIDE.piece).find(Open(), 12)
    assert rounds == 16 + 8 * 12
    assert slept == [REST] * (rounds // 4)


def test_the_worker_prepares_what_the_first_grammar_needs(lm):  # noqa: F811
    from unspool.rules.constrain.matcher import tongue

    tongue.cache_clear()
    with serving(lm) as served:
        served.worker.prepare()
        served.until(lambda: tongue.cache_info().currsize == 1 and served.worker.fitting.trials._process is not None)
    assert isinstance(json_schema({}), JsonSchema)
