"""Prompts: what is none is refused, and the error says which call takes it; nothing is dropped in silence."""

from __future__ import annotations

import pytest
import torch
from littlemodel import chatting_model, little_model, loaded

from unspool import Settings, compare
from unspool.core.errors import BadRequest, ContextExceeded
from unspool.models.chat_template import Dialogue

MESSAGE = {"role": "user", "content": "Hello"}
FEW = Settings(max_tokens=3)


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    with loaded(chatting_model(tmp_path_factory.mktemp("prompt") / "little")) as made:
        yield made


NONE = {
    "texts": (["a", "b"], "batch"),
    "one text in a list": (["a"], "batch"),
    "chats": ([[MESSAGE], [MESSAGE]], "batch"),
    "lists of tokens": ([[1, 2], [3]], "batch"),
    "dialogues": ([Dialogue([MESSAGE])], "batch"),
    "a message": (MESSAGE, "list of messages"),
    "bytes": (b"abc", "decode"),
    "a bytearray": (bytearray(b"abc"), "decode"),
    "nothing": (None, "None"),
    "a number": (5, "5"),
    "a fraction": (1.5, "1.5"),
    "a flag": (True, "True"),
    "a tensor": (torch.tensor([1, 2]), "tolist"),
    "a set": ({1, 2}, "expected"),
    "an iterator": (iter("ab"), "expected"),
    "flags": ([True, False], "True"),
    "fractions": ([1.0, 2.0], "1.0"),
    "text and tokens": (["a", 1], "different kinds"),
    "text and a message": (["a", MESSAGE], "different kinds"),
    "a message and None": ([MESSAGE, None], "None"),
    "bytes in a list": ([b"a"], "b'a'"),
    "an empty text": ("", "empty"),
    "an empty list": ([], "empty"),
    "a token too large": ([1, 999], "999"),
    "a token below 0": ([-1], "-1"),
    "a huge token": ([10**5000], "a token"),
    "no role": ([{"content": "a"}], "role"),
    "no content": ([{"role": "user"}], "content"),
    "content None": ([{"role": "user", "content": None}], "content of message 0 is None"),
    "content of bytes": ([{"role": "user", "content": b"a"}], "content of message 0 is b'a'"),
    "a number as content": ([{"role": "user", "content": 5}], "content of message 0 is 5"),
    "half a character": ("a\ud800", "surrogate"),
}
CALLS = {
    "generate": lambda lm, prompt: lm.generate(prompt, FEW),
    "samples": lambda lm, prompt: lm.samples(prompt, FEW),
    "stream": lambda lm, prompt: list(lm.stream(prompt, FEW)),
    "batch": lambda lm, prompt: lm.batch([prompt], FEW),
    "encode": lambda lm, prompt: lm.encode(prompt),
    "compare": lambda lm, prompt: compare(lm, ["lookup"], [prompt], FEW),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", NONE)
def test_what_is_no_prompt(lm, call, kind):
    given, words = NONE[kind]
    with pytest.raises(BadRequest) as caught:
        CALLS[call](lm, given)
    assert words in str(caught.value)


@pytest.mark.parametrize("prompts", ["abc", b"abc", MESSAGE, Dialogue([MESSAGE]), None, 5, [1, 2], [MESSAGE, MESSAGE]])
@pytest.mark.parametrize("call", [lambda lm, many: lm.batch(many, FEW), lambda lm, many: compare(lm, ["lookup"], many)])
def test_what_are_no_prompts(lm, call, prompts):
    with pytest.raises(BadRequest, match=r"prompt"):
        call(lm, prompts)


PICTURE = {"type": "image_url", "image_url": {"url": "data:,"}}


@pytest.mark.parametrize("part", [PICTURE, {"type": "input_audio"}, {"type": "video"}, {"type": "text"}, "a", 5])
def test_pictures_and_sound_are_refused_by_name(lm, part):
    """A template of a model that sees would put a mark of a picture into the text, and nothing behind it."""
    kind = part["type"] if isinstance(part, dict) else type(part).__name__
    with pytest.raises(BadRequest, match=rf"message 0 has a part of the type '{kind}'.*no pictures"):
        lm.generate([{"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]}], FEW)


def test_parts_of_text_are_one_text(lm):
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]
    assert lm.encode(parts) == lm.encode([MESSAGE])


def test_compare_wants_lists(lm):
    for methods, prompts in (("lookup", ["a"]), (["lookup"], [])):
        with pytest.raises(BadRequest, match="a list of methods and at least one prompt"):
            compare(lm, methods, prompts)


def test_what_is_one(lm):
    text = lm.generate("ab", FEW, raw=True).text
    for prompt in (lm.encode("ab"), list(lm.encode("ab"))):
        assert lm.generate(prompt, FEW).text == lm.generate(prompt, FEW, raw=True).text == text
    assert lm.generate([MESSAGE], FEW).text == lm.generate(Dialogue([MESSAGE]), FEW).text
    assert [output.text for output in lm.batch((p for p in ["ab", "ab"]), FEW, raw=True)] == [text, text]
    assert lm.batch([], FEW) == []


def test_a_prompt_that_is_too_long_says_what_it_is(lm):
    for prompt, name in (("a" * 5000, "prompt"), ([{"role": "user", "content": "a" * 5000}], "messages")):
        with pytest.raises(ContextExceeded, match=f"maximum context length is 4096 tokens.* in the {name}") as caught:
            lm.generate(prompt, FEW, raw=True)
        assert caught.value.param == name


def test_a_prompt_that_cannot_fit_is_refused_before_it_is_read(lm, monkeypatch):
    """Reading a megabyte takes a core for a second."""

    def read(*_):
        raise AssertionError("it was read")

    monkeypatch.setattr("unspool.models.vocabulary.read_long", read)
    for prompt in ("a" * 20_000, [{"role": "user", "content": "a" * 20_000}]):
        with pytest.raises(ContextExceeded, match=r"you requested at least 50\d\d tokens in the"):
            lm.generate(prompt, FEW)


def test_a_text_is_a_message_where_there_is_a_chat_template(lm, tmp_path):
    """In Python as on the command line."""
    asked, stands = lm.encode([MESSAGE]), lm.encode("Hello")
    assert asked != stands
    for call in (lm.generate, lambda *a, **k: lm.samples(*a, **k)[0], lambda p, *a, **k: lm.batch([p], *a, **k)[0]):
        assert call("Hello", FEW).trace.prompt == len(asked)
        assert call("Hello", FEW, raw=True).trace.prompt == len(stands)
    streamed = "".join(event.text for event in lm.stream("Hello", FEW))
    assert streamed == lm.generate([MESSAGE], FEW).text
    (row, *_) = compare(lm, ["lookup"], ["Hello"], FEW).rows
    assert row.outputs[0].trace.prompt == len(asked)
    (row, *_) = compare(lm, ["lookup"], ["Hello"], FEW, raw=True).rows
    assert row.outputs[0].trace.prompt == len(stands)
    with loaded(little_model(tmp_path / "plain")) as bare:  # which has no template
        assert bare.generate("Hello", FEW).trace.prompt == len(bare.encode("Hello"))


def test_a_text_that_ends_at_once_is_explained(lm, caplog):
    (end, *_) = lm.vocabulary.eos
    output = lm.generate("Hello", Settings(max_tokens=3, logit_bias={end: 1000.0}))
    assert output.text == ""
    assert "the first token ended the text" in str(output.note)
    assert output.note in caplog.text
    assert lm.generate("Hello", FEW).note is None
