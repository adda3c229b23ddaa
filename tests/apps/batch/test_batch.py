"""Batches: one answer a line in the order of the lines, whatever a line holds and wherever a run is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from types import SimpleNamespace

import pytest
from click import UsageError
from hypothesis import given, settings
from hypothesis import strategies as st
from littlemodel import chatting_model, loaded
from patience import PATIENCE, until
from processes import started

from unspool import Settings
from unspool.apps.batch import BatchJournal, LineDefaults, LineFile, LineWriter
from unspool.apps.batch.answer_file import AnswerFile
from unspool.apps.batch.batch_work import alone, work
from unspool.apps.batch.line_writer import written
from unspool.apps.cli.root import root
from unspool.apps.cluster import ADDRESS, ReplicaRange, joined
from unspool.apps.server.grammar_process import AskerLeft
from unspool.core.errors import BadRequest, MissingExtra
from unspool.rules.constrain import JsonSchema

CHAT = [{"role": "user", "content": "Hello"}]
# As if the extra `serve` were not installed: a batch does without.
COMMAND = """import sys
sys.modules.update(fastapi=None, starlette=None, uvicorn=None)
from unspool.apps.cli import main
main()"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return chatting_model(tmp_path_factory.mktemp("batch") / "little")


@pytest.fixture(scope="module")
def lm(folder):
    with loaded(folder) as made:
        yield made


def put(path, lines):
    """A file of these lines, each bytes or a record."""
    path.write_bytes(b"".join((x if isinstance(x, bytes) else json.dumps(x).encode()) + b"\n" for x in lines))
    return path


def answered(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def texts(records):
    return [[c.get("text", c.get("message", {}).get("content")) for c in body_of(r)["choices"]] for r in records]


def body_of(record):
    assert record["error"] is None, record
    return record["response"]["body"]


@pytest.fixture
def unspool(folder, lm, monkeypatch):
    """The command in this process, over a model that is loaded once."""
    monkeypatch.setattr("unspool.apps.cli.loading.Loading.load", lambda self, quiet=False: lm)

    def call(*arguments):
        return root.main(["batch", *map(str, arguments), "-m", str(folder)], standalone_mode=False)

    return call


BAD = {
    "blank": (b"   ", 400, "blank"),
    "not JSON": (b"{'prompt': 1}", 400, "not JSON"),
    "not UTF-8": (b'{"prompt": "\xff"}', 400, "not UTF-8"),
    "deep": (b"[" * 20_000, 400, "nested"),
    "many lists": (b"[[]" + b",[]" * 40_000 + b"]", 400, "lists and objects"),
    "no object": (b"[1]", 400, "not a JSON object"),
    "NaN": (b'{"prompt": "a", "temperature": NaN}', 400, "NaN"),
    "nothing asked": ({"max_tokens": 3}, 400, "neither messages nor a prompt"),
    "both asked": ({"prompt": "a", "messages": CHAT}, 400, "both"),
    "an id that is none": ({"custom_id": 7, "prompt": "a"}, 400, "custom_id"),
    "another url": ({"custom_id": "u", "url": "/v1/embeddings", "body": {"input": "a"}}, 400, "/v1/embeddings"),
    "another verb": ({"custom_id": "g", "method": "GET", "url": "/v1/completions", "body": {}}, 400, "GET"),
    "no body": ({"custom_id": "n", "url": "/v1/completions"}, 400, "body"),
    "a wrong field": ({"custom_id": "w", "prompt": "a", "temperature": 9}, 400, "temperature"),
    "a stream": ({"custom_id": "s", "prompt": "a", "stream": True}, 400, "stream"),
    "too long": ({"custom_id": "l", "prompt": "a" * 5000}, 400, "4096"),
    "too many": ({"custom_id": "m", "prompt": "a", "n": 2**30}, 400, "texts"),
    "another model": ({"custom_id": "o", "prompt": "a", "model": "gpt-4"}, 404, "gpt-4"),
    "another method": ({"custom_id": "d", "prompt": "a", "decoding": {"method": "magic"}}, 400, "magic"),
    "items": ({"prompt": "a", "response_format": {"type": "items", "items": "towns"}}, 400, "no set of items 'towns'"),
    "half a pair": (b'{"custom_id": "\\ud800", "prompt": "a", "stop": "\\ud800"}', 400, "surrogate"),
}


def test_bad_lines_get_an_error_each_and_stop_nobody(unspool, tmp_path, capsys):
    good = {"custom_id": "good", "prompt": "Once", "max_tokens": 4, "temperature": 0}
    lines = [part for line, _, _ in BAD.values() for part in (line, good)]
    assert unspool(put(tmp_path / "in", lines), tmp_path / "out", "--json") == 0
    found = answered(tmp_path / "out")
    assert len(found) == len(lines)
    for (name, (line, status, told)), record in zip(BAD.items(), found[::2], strict=True):
        assert record["response"]["status_code"] == status, name
        assert told in record["error"]["message"] == record["response"]["body"]["error"]["message"], name
        known = isinstance(line, dict) and isinstance(line.get("custom_id"), str)
        assert not known or record["custom_id"] == line["custom_id"], name
    assert found[-2]["custom_id"] == "\ud800"
    assert len({text for (text,) in texts(found[1::2])}) == 1
    tally = json.loads(capsys.readouterr().out)
    assert (tally["lines"], tally["failed"], tally["completion_tokens"]) == (2 * len(BAD), len(BAD), 4 * len(BAD))


def test_a_text_is_the_one_of_the_library_and_of_the_server(lm, unspool, tmp_path):
    bodies = [
        {"messages": CHAT, "temperature": 0, "max_tokens": 30},
        {"prompt": "Once", "temperature": 0},
        {"prompt": ["a", "b"], "temperature": 0.8, "seed": 5, "n": 2, "max_tokens": 12, "logprobs": 1},
        {"messages": CHAT, "temperature": 0, "max_tokens": 30, "decoding": {"method": "lookup:ngram=2"}},
    ]
    urls = ["/v1/chat/completions" if "messages" in body else "/v1/completions" for body in bodies]
    asked = zip("0123", urls, bodies, strict=True)
    whole = [{"custom_id": name, "method": "POST", "url": url, "body": body} for name, url, body in asked]
    unspool(put(tmp_path / "in", [*bodies, *whole]), tmp_path / "out")
    found = answered(tmp_path / "out")
    assert [record["custom_id"] for record in found] == [None] * 4 + ["0", "1", "2", "3"]
    assert texts(found[:4]) == texts(found[4:])
    chat, once, many, drafted = texts(found[:4])
    assert chat == drafted == [lm.generate(CHAT, Settings(max_tokens=30)).text]
    assert once == [lm.generate("Once", Settings(max_tokens=16), raw=True).text]
    same = Settings(temperature=0.8, seed=5, n=2, max_tokens=12)
    assert many == [output.text for output in lm.batch(["a", "b"], same, raw=True)]

    pytest.importorskip("fastapi")
    client = pytest.importorskip("starlette.testclient")
    from unspool.apps.server import Limits, ServerConfig, Worker, application

    with client.TestClient(application(Worker(lm, Limits()), ServerConfig("little"))) as http:
        served = [http.post(url, json=body).json() for url, body in zip(urls, bodies, strict=True)]
    for record, answer in zip(found, served, strict=False):
        ours = body_of(record)
        assert texts([record]) == [[c.get("text", c.get("message", {}).get("content")) for c in answer["choices"]]]
        assert [c["finish_reason"] for c in ours["choices"]] == [c["finish_reason"] for c in answer["choices"]]
        assert ours["usage"]["completion_tokens"] == answer["usage"]["completion_tokens"]


def test_a_seed_comes_from_the_number_of_the_line_unless_the_body_has_one(lm, unspool, tmp_path):
    line = {"prompt": "Once", "max_tokens": 12}
    source = put(tmp_path / "in", [line, line, {**line, "seed": 1}, {**line, "temperature": 0}])
    unspool(source, tmp_path / "a")
    first = [text for (text,) in texts(answered(tmp_path / "a"))]
    assert first[0] == lm.generate("Once", Settings(temperature=1, seed=1, max_tokens=12), raw=True).text
    assert first[0] == first[2] != first[1]
    unspool(source, tmp_path / "b", "--seed", 1, "--parallel", 1)
    assert texts(answered(tmp_path / "b"))[0] == [first[1]]
    unspool(source, tmp_path / "c", "-t", 0, "--max-tokens", 3)  # the body's own fields stand above
    assert [text for (text,) in texts(answered(tmp_path / "c"))] == [first[3]] * 2 + [
        lm.generate("Once", Settings(seed=1, max_tokens=12), raw=True).text
    ] + [first[3]]


def test_files_as_editors_leave_them(unspool, tmp_path):
    line = b'{"prompt": "a", "max_tokens": 1}'
    for content, count in ((b"", 0), (b"\xef\xbb\xbf" + line + b"\r\n" + line, 2), (line + b"\n\n", 2)):
        (tmp_path / "in").write_bytes(content)
        assert unspool(tmp_path / "in", tmp_path / "out", "--overwrite") == 0
        found = answered(tmp_path / "out")
        assert len(found) == count
        assert [record["error"] is None for record in found] == [True, not content.endswith(b"\n\n")][:count]
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["in", "out"]


def told(call, *arguments):
    with pytest.raises(BadRequest) as refused:
        call(*arguments)
    return str(refused.value)


def test_what_cannot_be_done_is_said_before_a_model_is_loaded(unspool, tmp_path, monkeypatch):
    monkeypatch.setattr("unspool.apps.cli.loading.Loading.load", lambda *_: pytest.fail("a model was loaded"))
    source, out = put(tmp_path / "in", [{"prompt": "a"}]), tmp_path / "out"
    assert "no such file" in told(unspool, tmp_path / "none", out)
    assert "no plain file" in told(unspool, tmp_path, out)
    assert "both input and output" in told(unspool, source, source, "--overwrite")
    assert "no folder" in told(unspool, source, tmp_path / "no" / "out")
    assert "temperature" in told(unspool, source, out, "-t", 9)
    out.write_text("precious")
    assert "--overwrite" in told(unspool, source, out)
    assert out.read_text() == "precious"
    with AnswerFile(tmp_path / "other").held():
        assert "another run" in told(unspool, source, tmp_path / "other")


def test_ray_is_an_extra_and_replicas_are_counted(unspool, tmp_path, monkeypatch):
    source = put(tmp_path / "in", [{"prompt": "a"}])
    with pytest.raises(UsageError, match="--ray"):
        unspool(source, tmp_path / "out", "--workers", 2)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"unspool\[ray\]"):
        unspool(source, tmp_path / "out", "--ray")
    assert ReplicaRange.of("3") == ReplicaRange(3, 3)
    assert ReplicaRange.of("1..4") == ReplicaRange(1, 4)
    for wrong in ("0", "4..1", "..4", "1..", "two", "1..2..3"):
        with pytest.raises(BadRequest, match=re.escape(repr(wrong))):
            ReplicaRange.of(wrong)


# ---- going on


def records(lines):
    """Answers without a model: what stands for a text is the line."""
    for index, line in lines:
        yield (index, line), written(None, {"choices": [{"text": line.decode()}]})


@settings(deadline=None, max_examples=60)
@given(data=st.data(), count=st.integers(0, 6))
def test_a_run_killed_at_any_byte_of_its_journal_loses_nothing_and_does_nothing_twice(tmp_path_factory, data, count):
    folder = tmp_path_factory.mktemp("killed")
    lines = LineFile.of(put(folder / "in", [f"line {i}".encode() for i in range(count)]))
    output = AnswerFile(folder / "out")
    order = data.draw(st.permutations(range(count)))
    with BatchJournal(output.part, {}, lines) as whole:
        for line, record in records(lines.read(order)):
            whole.add(*line, record)
    content = output.part.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    output.part.write_bytes(content[:cut])
    kept = content[:cut].count(b"\n") - 1
    journal, asked = BatchJournal(output.part, {}, lines), []

    def answering(given):
        for (index, line), record in records(given):
            asked.append(index)
            yield (index, line), record
            yield (index, line), record  # one that arrives twice is kept once

    list(work(lines, journal, [answering]))
    assert sorted([*order[: max(0, kept)], *asked]) == list(range(count))
    output.finish(journal)
    assert texts(answered(output.path)) == [[f"line {i}"] for i in range(count)]
    assert not output.part.exists()


def test_a_finished_journal_whose_output_is_in_place_is_done(tmp_path):
    """Killed between the last two steps, a run has both."""
    lines = LineFile.of(put(tmp_path / "in", [b"a", b"b"]))
    output = AnswerFile(tmp_path / "out")
    journal = BatchJournal(output.part, {}, lines)
    list(work(lines, journal, [records]))
    content = output.part.read_bytes()
    output.finish(journal)
    output.part.write_bytes(content)
    output.check()
    output.finish(BatchJournal(output.part, {}, lines))
    assert [text for (text,) in texts(answered(output.path))] == ["a", "b"]
    output.part.write_bytes(content)
    output.path.write_text("something else")
    with BatchJournal(output.part, {}, lines) as journal, pytest.raises(BadRequest, match="--overwrite"):
        output.finish(journal)
    assert output.path.read_text() == "something else"
    assert output.part.exists()


def test_what_fails_by_no_fault_of_the_line_is_tried_once_more(tmp_path):
    lines = LineFile.of(put(tmp_path / "in", [b"a", b'{"custom_id": "lost"}', b"c"]))
    tries = []

    def answering(given):
        for (index, line), record in records(given):
            tries.append(index)
            if index == 0:
                record["response"]["status_code"] = 500
            if index != 1:
                yield (index, line), record

    with BatchJournal(tmp_path / "part", {}, lines) as journal:
        assert len(list(work(lines, journal, [answering, answering]))) == 3
        kept = list(journal.records())
    assert tries == [0, 1, 2, 0, 1]
    assert [record["error"] is None for record in kept] == [True, False, True]
    assert kept[1]["custom_id"] == "lost"


def test_other_lines_or_options_than_were_begun_with_are_refused(unspool, tmp_path):
    source, out = tmp_path / "in", tmp_path / "out"
    asked = [{"prompt": "a", "max_tokens": 2}, {"prompt": "b", "max_tokens": 2}]
    put(source, asked)
    part = tmp_path / "out.part"

    class Stop(Exception):
        pass

    def stopping(scribe, ahead, lines):
        for number, answer in enumerate(alone(scribe, ahead, lines)):
            if number == 1:
                raise Stop
            yield answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unspool.apps.batch.batch_work.alone", stopping)
        with pytest.raises(Stop):
            unspool(source, out)
    kept = part.read_bytes()
    assert kept.count(b"\n") == 2
    assert "seed 0, now it is 1" in told(unspool, source, out, "--seed", 1)
    assert "method 'plain', now it is 'lookup'" in told(unspool, source, out, "--method", "lookup")
    assert "--fresh" in told(unspool, source, out, "-t", 0)
    put(source, [*asked, asked[0]])
    assert "it had 2 lines and has 3" in told(unspool, source, out)
    put(source, [{"prompt": "c", "max_tokens": 2}, {"prompt": "c", "max_tokens": 2}])
    assert "is another" in told(unspool, source, out)
    part.write_text("no journal\n")
    assert "no journal of a batch" in told(unspool, source, out)
    put(source, asked)
    part.write_bytes(kept)
    out.write_text("precious")
    assert "--overwrite" in told(unspool, source, out)
    out.unlink()
    assert unspool(source, out, "--parallel", 1) == 0  # which only says how fast it goes
    assert json.loads(kept.splitlines()[1])["record"] in answered(out)


@pytest.fixture
def own(tmp_path):
    return chatting_model(tmp_path / "own")


def replaced(path, old, new):
    """Other contents of the same size."""
    data = path.read_bytes()
    assert old in data
    assert len(old) == len(new)
    path.write_bytes(data.replace(old, new))


def weights(folder):
    """Other weights: all of them negated."""
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    for at in range(start + 3, len(data), 4):
        data[at] ^= 0x80
    path.write_bytes(data)


CHANGES = {
    "weights": weights,
    "tokenizer": lambda folder: replaced(folder / "tokenizer.json", b"</s>", b"</t>"),
    "template": lambda folder: replaced(folder / "tokenizer_config.json", b"[assistant] ", b"[assistent] "),
    "config": lambda folder: replaced(folder / "config.json", b"10000.0", b"20000.0"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("role", ["model", "draft"])
def test_other_contents_of_the_same_files_are_noticed(folder, own, lm, tmp_path, monkeypatch, change, role):
    monkeypatch.setattr("unspool.apps.cli.loading.Loading.load", lambda self, quiet=False: lm)
    source, out, part = (
        put(tmp_path / "in", [{"prompt": "a", "max_tokens": 2}] * 2),
        tmp_path / "out",
        tmp_path / "out.part",
    )
    models = ["-m", str(own)] if role == "model" else ["-m", str(folder), "--draft", str(own)]

    def run():
        return root.main(["batch", str(source), str(out), *models], standalone_mode=False)

    def fail(*_):
        raise OSError("killed")

    with monkeypatch.context() as patch:
        patch.setattr("unspool.apps.batch.answer_file.AnswerFile.finish", fail)
        with pytest.raises(OSError, match="killed"):
            run()
    assert part.exists()
    CHANGES[change](own)
    with pytest.raises(BadRequest, match=f"the files of the {role} .*own.* have changed"):
        run()
    for file in own.iterdir():
        file.unlink()
    chatting_model(own)  # the same bytes again, at another time
    assert run() == 0


def test_files_that_loading_does_not_read_may_change(own, lm, tmp_path, monkeypatch):
    from unspool.models.fingerprint import fingerprint

    before = fingerprint(own)
    (own / "README.md").write_text("about it")
    (own / "model.safetensors").touch()
    assert fingerprint(own) == before


def test_large_files_are_looked_at_in_many_places(tmp_path, monkeypatch):
    from unspool.models import fingerprint as at

    monkeypatch.setattr(at, "WHOLE", 1 << 16)
    monkeypatch.setattr(at, "ENDS", 1 << 10)
    monkeypatch.setattr(at, "BLOCK", 64)
    monkeypatch.setattr(at, "BLOCKS", 100)
    path, size = tmp_path / "a.gguf", 1 << 17
    data = bytearray(size)
    seen = set()
    for place in (None, 0, 1023, size - 1, size - 1024, 1024, 1024 + (size - 2048) // 2):
        changed = bytearray(data)
        if place is not None:
            changed[place] = 1
        path.write_bytes(changed)
        seen.add(at.fingerprint(path))
    path.write_bytes(data[:-1])
    seen.add(at.fingerprint(path))
    assert len(seen) == 8


def test_a_journal_of_before_says_that_it_cannot_tell(tmp_path):
    lines = LineFile.of(put(tmp_path / "in", [{"prompt": "a"}]))
    put(tmp_path / "part", [{"about": {}, "input": lines.digest, "lines": 1}])
    with pytest.raises(BadRequest, match=r"older version.*--fresh"):
        BatchJournal(tmp_path / "part", {}, lines, {"model": "1"})


def test_a_full_disk_names_the_file(tmp_path):
    from unspool.apps.cli.terminal import _said

    lines = LineFile.of(put(tmp_path / "in", [{"prompt": "a"}]))
    with BatchJournal(tmp_path / "out.part", {}, lines) as journal:
        kept = journal._file
        journal._file = open("/dev/full", "wb")  # noqa: SIM115
        with pytest.raises(OSError) as caught:
            journal.add(0, b"", {"a": "b"})
        with pytest.raises(OSError):
            journal._file.close()
        journal._file = kept
    assert _said(caught.value)[0] == f"{tmp_path / 'out.part'}: No space left on device"


def test_input_that_changes_under_the_run_is_noticed(tmp_path):
    source = put(tmp_path / "in", [b"a", b"b"])
    lines = LineFile.of(source)
    lines.check()
    put(source, [b"a", b"bb"])
    with pytest.raises(BadRequest, match="changed"):
        lines.check()


def test_interrupted_and_killed_the_same_command_goes_on(folder, unspool, tmp_path, capsys):
    line = {"prompt": "Once", "logit_bias": {"1": -100}}  # the token 1 would end the text
    source = put(tmp_path / "in", [{**line, "max_tokens": 4 if i < 6 else 200} for i in range(12)])
    out, part = tmp_path / "out", tmp_path / "out.part"

    def kept():
        return [json.loads(entry)["record"] for entry in part.read_bytes().split(b"\n")[1:-1]] if part.exists() else []

    def interrupt():
        until(lambda: len(kept()) >= 3)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert unspool(source, out, "--parallel", 2) == 130
    thread.join()
    assert "the same command goes on" in capsys.readouterr().err
    first = kept()

    command = [sys.executable, "-c", COMMAND, "batch", source, out, "-m", folder, "--parallel", "2"]
    with started(command, env={**os.environ, "OMP_NUM_THREADS": "1"}) as running:
        until(lambda: len(kept()) >= len(first) + 2)
        running.kill()
    second = kept()
    assert second[: len(first)] == first
    assert len(second) < 12, "all was done before it was killed; make the texts longer"
    assert not out.exists()

    assert unspool(source, out, "--parallel", 2, "--json") == 0
    assert json.loads(capsys.readouterr().out)["before"] == len(second)
    found = answered(out)
    assert all(record in found for record in second)
    unspool(source, tmp_path / "straight")
    assert texts(found) == texts(answered(tmp_path / "straight"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out", "straight"]


def test_lines_are_written_together_and_read_as_they_are_needed(lm, tmp_path):
    lines = LineFile.of(put(tmp_path / "in", [{"prompt": "a", "max_tokens": 4, "temperature": 0}] * 50))
    scribe, read = LineWriter(lm, LineDefaults("little"), parallel=4), []

    def watched():
        for line in lines.read(range(len(lines))):
            read.append(line)
            yield line

    try:
        most, together = 0, 0
        step = scribe._worker.engine.step

        def stepped():
            nonlocal together
            together = max(together, len(scribe._worker.engine.live))
            return step()

        scribe._worker.engine.step = stepped
        for number, _ in enumerate(alone(scribe, 8, watched())):
            most = max(most, len(read) - number)
    finally:
        scribe.stop()
    assert len(read) == 50
    assert together == 4
    assert most <= 9


def test_no_line_waits_for_anothers_grammar(lm, tmp_path, monkeypatch):
    fit, go = JsonSchema.fit, threading.Event()

    def slow(form, words):
        assert go.wait(PATIENCE)
        if "planted" in repr(form):
            raise BadRequest("it cannot be met")
        return fit(form, words)

    monkeypatch.setattr(JsonSchema, "fit", slow)

    def bound(word):
        schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [word]}}}
        return {"prompt": "a", "max_tokens": 20, "response_format": schema}

    lines = LineFile.of(put(tmp_path / "in", [bound("yes"), bound("planted"), {"prompt": "a", "max_tokens": 4}]))
    scribe = LineWriter(lm, LineDefaults("little"), parallel=4)
    try:
        answers = alone(scribe, 3, lines.read(range(3)))
        first, _ = next(answers)
        go.set()
        rest = {line[0]: record["response"] for line, record in answers}
    finally:
        scribe.stop()
    assert first[0] == 2
    assert rest[0]["body"]["choices"][0]["text"] == '"yes"'
    assert rest[1]["status_code"] == 400


def test_a_line_whose_grammar_is_compiled_at_the_end_is_not_told_as_failed(lm, monkeypatch):
    """Whoever goes on with the batch asks it again."""
    begun, said, gone = threading.Event(), [], threading.Event()

    def slow(form, words):
        begun.set()
        assert gone.wait(PATIENCE)
        raise AskerLeft

    monkeypatch.setattr(JsonSchema, "fit", slow)
    scribe = LineWriter(lm, LineDefaults("little"), parallel=4)
    scribe.answer(0, b'{"prompt": "a", "response_format": {"type": "json_object"}}', said.append)
    assert begun.wait(PATIENCE)
    scribe.stop()
    gone.set()
    until(lambda: len(scribe._worker.fitting) == 0)
    assert said == []


@pytest.mark.parametrize(("address", "told"), [("", "Ray does not start"), ("10.0.0.1:6379", "no Ray cluster at")])
def test_a_cluster_that_cannot_be_had_is_said_so(monkeypatch, address, told):
    def init(**_):
        raise Exception("The current node timed out during startup.")  # that very class is what Ray raises

    monkeypatch.setenv(ADDRESS, address)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    with pytest.raises(BadRequest, match=told), joined("a test"):
        pass


def test_a_line_without_an_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("unspool.apps.batch.batch_journal.TEXT", 100)
    assert len(LineFile.of(put(tmp_path / "in", [b"a" * 99, b"b"]))) == 2
    with pytest.raises(BadRequest, match="line 2 has more than 100 bytes"):
        LineFile.of(put(tmp_path / "in", [b"a", b"b" * 101]))
