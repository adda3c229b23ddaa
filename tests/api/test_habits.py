"""What people type in Python: settings by keyword, chat, decode, asyncio, notebooks."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace

import pytest
from littlemodel import chatting_model, little_model, loaded

import unspool
from unspool import Settings, Speculate, choices, compare
from unspool.api.settings import Given
from unspool.core.errors import BadRequest
from unspool.models.chat_template import Dialogue
from unspool.rules.draft import Lookup
from unspool.rules.verify import sample_match

MESSAGE = {"role": "user", "content": "Hello"}


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    with loaded(chatting_model(tmp_path_factory.mktemp("habits") / "little")) as made:
        yield made


def test_every_setting_is_a_keyword():
    assert list(Given.__annotations__) == [field.name for field in fields(Settings)]


def test_settings_by_keyword_stand_above_those_that_are_given(lm):
    hot = Settings(temperature=0.9, seed=3, max_tokens=9, ignore_eos=True)
    assert (
        lm.generate("ab", max_tokens=9, temperature=0.9, seed=3, ignore_eos=True).tokens
        == lm.generate("ab", hot).tokens
    )
    assert len(lm.generate("ab", hot, max_tokens=4).tokens) == 4
    assert [len(o.tokens) for o in lm.batch(["a", "b"], max_tokens=2, ignore_eos=True)] == [2, 2]
    assert len(lm.samples("a", n=3, max_tokens=2)) == 3
    assert len(list(lm.stream("a", max_tokens=5, ignore_eos=True))) == 5
    assert compare(lm, ["lookup"], ["a"], max_tokens=3, ignore_eos=True).plain.total.tokens == 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("max_length", "'max_tokens'"),
        ("temprature", "'temperature'"),
        ("zzz", "there are: temperature"),
        ("json_schema", "constraint=unspool.json_schema(…)"),
        ("schema", "constraint=unspool.json_schema(…)"),
        ("response_format", "constraint=unspool.json_schema(…)"),
        ("form", "constraint=unspool.json_schema(…)"),
        ("regex", "constraint=unspool.regex(…)"),
    ],
)
def test_an_unknown_keyword_is_answered_with_the_nearest(lm, name, said):
    with pytest.raises(BadRequest, match=f"'{name}' is no setting") as refused:
        lm.generate("ab", **{name: 3})
    assert said in str(refused.value)


def test_names_of_transformers_are_understood_beside_ours(lm):
    assert len(lm.generate("ab", max_new_tokens=4, ignore_eos=True).tokens) == 4
    with pytest.raises(BadRequest, match="'max_tokens' are the same setting"):
        lm.generate("ab", max_tokens=3, max_new_tokens=4)


def test_what_is_no_method_is_refused_in_words(lm):
    with pytest.raises(BadRequest, match="the method is 3; expected a name"):
        lm.generate("ab", method=3)


def test_a_missing_draft_model_is_named_as_it_is_given(lm):
    with pytest.raises(BadRequest, match=r"a model called 'draft'; this engine has: target. Load one with draft=…"):
        lm.generate("ab", Settings(max_tokens=2), "chain")


def test_what_was_chosen_for_the_weights_is_in_the_repr(lm):
    assert repr(replace(lm, note="weights packed")).endswith(", weights packed)")


def test_one_stop_string_needs_no_tuple(lm):
    assert Settings(stop="x", bad_words="y") == Settings(stop=("x",), bad_words=("y",))
    with pytest.raises(BadRequest, match="stop"):
        Settings(stop=5)


def test_chat_is_for_messages(lm, tmp_path):
    one = lm.chat("Hello", max_tokens=4)
    assert one.tokens == lm.chat([MESSAGE], max_tokens=4).tokens == lm.generate([MESSAGE], max_tokens=4).tokens
    told = [{"role": "system", "content": "Be brief."}, MESSAGE]
    assert lm.chat("Hello", system="Be brief.", max_tokens=4).tokens == lm.generate(told, max_tokens=4).tokens
    with pytest.raises(BadRequest, match="system"):
        lm.chat(Dialogue([MESSAGE]), system="a")
    with loaded(little_model(tmp_path / "bare")) as bare, pytest.raises(BadRequest, match="no chat template"):
        bare.chat("Hello")


def test_tokens_and_back(lm):
    assert lm.decode(lm.encode("ab c")) == "ab c"


def test_what_is_printed_is_short(lm):
    output = lm.generate("ab", max_tokens=200, ignore_eos=True)
    assert str(output) == output.text
    assert len(repr(output)) < 400
    assert "200 tokens, 'length'" in repr(output)
    assert len(repr(lm)) < 200
    assert repr(lm).startswith("LM('")


def test_the_models_own_end_is_called_eos(lm):
    (end, *_) = lm.vocabulary.eos
    assert lm.generate("ab", max_tokens=9, logit_bias={end: 1000.0}).reason == "eos"
    (first, *_) = lm.generate("ab", max_tokens=9, ignore_eos=True).tokens
    assert lm.generate("ab", max_tokens=9, stop_tokens=[first]).reason == "token"


def test_asyncio_gets_the_same_texts(lm):
    texts = ["ab", "cd", "abab"]
    alone = [lm.generate(text, max_tokens=12).text for text in texts]

    async def streamed(text):
        return "".join([event.text async for event in lm.astream(text, max_tokens=12)])

    async def both():
        return await asyncio.gather(*map(streamed, texts)), await asyncio.gather(
            *(lm.agenerate(text, max_tokens=12) for text in texts)
        )

    found, outputs = asyncio.run(both())
    assert found == alone
    assert [output.text for output in outputs] == alone


def test_who_leaves_a_stream_early_leaves_nothing_behind(lm):
    async def early():
        events = lm.astream("ab", max_tokens=200, ignore_eos=True)
        async for _ in events:
            break
        await events.aclose()

        async def all_of_it():
            async for _ in lm.astream("ab", max_tokens=500, ignore_eos=True):
                pass

        task = asyncio.ensure_future(all_of_it())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await lm.agenerate("ab", max_tokens=3)).text

    assert asyncio.run(early()) == lm.generate("ab", max_tokens=3).text
    lm.model.forget()
    assert lm.model.network.slots.in_use == 0


def test_notebooks_get_pictures_without_markup_of_the_models(lm):
    output = lm.generate("abcabc", method="lookup", max_tokens=12, ignore_eos=True)
    shown = output._repr_html_()
    assert shown.count("<span") == sum(bool(event.text) for event in output.events)
    assert (">drafted</b>" in shown) is any(event.drafted for event in output.events)
    assert ">drafted</b>" not in lm.generate("abc", max_tokens=4)._repr_html_()
    assert "<script" not in shown
    found = compare(lm, ["lookup"], ["ab"], max_tokens=4)
    assert "lookup" in found._repr_html_()
    assert "tokens in" in output.trace._repr_html_()
    canvas = unspool.Canvas.blank((1, 2), 3)
    assert canvas._repr_html_().count("<td") == 5
    assert canvas._repr_html_().count(">·<") == 3  # a hole can be seen


@pytest.mark.parametrize(("given", "told"), [("lookup", "method='lookup'"), ({"max_tokens": 3}, "max_tokens=20")])
def test_settings_of_another_kind_are_refused_with_the_right_call(smollm2, given, told):
    with pytest.raises(BadRequest, match=rf"generate\(prompt, {told}\), or an unspool.Settings") as refused:
        smollm2.generate("hi", given)
    assert refused.value.param == "settings"


def test_what_does_not_decode_is_no_method(lm):
    four = type("Four", (), {"__init__": lambda self, text, chance, warp, stop: None})  # called as methods are
    for given in (Speculate, four, lambda text: text, sample_match):
        with pytest.raises(BadRequest, match=r"the method is .*; expected a name .* as in docs/own-method\.md"):
            lm.generate("ab", method=given)
    with pytest.raises(BadRequest, match=r"an object that decodes, as Speculate\(Lookup\(…\)\)"):
        lm.generate("ab", method=Lookup())


def test_several_texts_are_not_dropped_unseen(lm):
    few = Settings(max_tokens=2, n=3)
    for call in (lm.generate, lm.chat, lambda *given, **named: next(lm.stream(*given, **named))):
        with pytest.raises(BadRequest, match="n is 3, but this writes one text; `samples` writes several"):
            call("ab", max_tokens=2, n=3)
    assert lm.generate("ab", few).tokens == lm.generate("ab", few, n=1).tokens == lm.samples("ab", few)[0].tokens


def test_texts_where_tokens_or_choices_are_expected_are_refused_with_the_right_call(lm):
    with pytest.raises(BadRequest, match=r"The tokens to decode are 'ab'; expected their numbers, as in \[1, 2\]"):
        lm.decode("ab")
    with pytest.raises(BadRequest, match=r"one by one, as in choices\('yes', 'no'\) or choices\(\*texts\)"):
        choices(["yes", "no"])
