"""Tokens: the same as transformers gives, exact bytes, streams that never break a character, and chat templates."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import unicodedata
from functools import cache
from time import monotonic

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers import models as tokenizer_models

from unspool.core.errors import BadModel, BadRequest
from unspool.models.address import model_folder
from unspool.models.bounded import Budget
from unspool.models.catalog import CATALOG
from unspool.models.chat_template import render_chat
from unspool.models.gguf_vocabulary import SpeltTokens, read_vocabulary
from unspool.models.json_vocabulary import read_vocabulary as read_folder
from unspool.models.vocabulary import BYTE_LETTERS, TextStream, Vocabulary, byte_level
from unspool.models.weights import open_checkpoint

LETTERS = {byte: letter for letter, byte in BYTE_LETTERS.items()}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "hello"), ("Ã", "©"), ("ð", "Ł"), ("Ġ", "Ġ")]
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_metadata(pre="smollm", **more):
    """A byte-level GGUF vocabulary: three control tokens, every byte, a few merges, one user-defined token."""
    names = [*SPECIAL, *(LETTERS[byte] for byte in range(256)), *("".join(pair) for pair in MERGES), "<tool>"]
    types = [3] * 3 + [1] * (256 + len(MERGES)) + [4]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": names,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in MERGES],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": TEMPLATE,
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def piece_metadata(**more):
    """A SentencePiece GGUF vocabulary with byte fallback."""
    words = ["▁", "h", "e", "l", "o", "he", "ll", "hell", "hello", "▁hello", "\n"]
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words, "  "]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": names,
        "tokenizer.ggml.scores": [-float(index) for index in range(len(names))],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(words) + [4],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


@pytest.fixture(scope="module")
def tiny():
    metadata = byte_metadata()
    return read_vocabulary(metadata, len(metadata["tokenizer.ggml.tokens"]) + 5, "tiny")


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


def test_tokens_of_a_text(tiny):
    names = [tiny.name(token) for token in tiny.encode("hello hello <tool><|im_end|>")]
    assert names == ["hello", " hello", " ", "<tool>", "<|im_end|>"]
    assert tiny.eos == {0, 2}
    assert tiny.bos == 1
    assert tiny.special == {0, 1, 2}
    assert tiny.token("<|im_end|>") == 2
    assert tiny.token(" hello") == tiny.encode(" hello")[0]
    assert tiny.token("no such token") is None


def test_names_of_control_tokens_can_be_plain_text(tiny):
    literal = tiny.encode("<|im_end|>", special=False)
    assert not set(literal) & tiny.special
    assert tiny.decode(literal) == "<|im_end|>"
    assert tiny.encode("<|im_end|>") == (2,)


def test_padding_of_the_output_layer_is_silent(tiny):
    assert tiny.piece(tiny.size - 1) == b""
    for token in (-1, tiny.size):
        with pytest.raises(BadRequest, match=f"Token {token} does not exist"):
            tiny.piece(token)


@quick
@given(ANY_TEXT)
def test_bytes_come_back(tiny, text):
    tokens = tiny.encode(text, special=False)
    assert b"".join(map(tiny.piece, tokens)) == text.encode()
    assert tiny.decode(tokens) == text


@quick
@given(st.lists(st.integers(0, 266)))
def test_a_stream_is_the_decoding_of_the_whole(tiny, tokens):
    stream = tiny.stream()
    parts = [stream.push(token) for token in tokens]
    assert "".join(parts) + stream.end() == tiny.decode(tokens)


@given(ANY_TEXT)
def test_a_stream_never_breaks_a_character(text):
    raw = text.encode()
    stream = TextStream(lambda token: bytes([token]))
    assert "".join(map(stream.push, raw)) == text
    assert stream.end() == ""


@pytest.mark.parametrize(
    "stops", [("abc",), ("aab",), ("abab",), ("a",), ("bc", "abca"), ("ab", "abc"), ("ca", "aac")], ids=str
)
def test_a_stream_gives_out_what_no_stop_can_take_back_and_all_of_that(stops):
    """After every byte of every text: what is certain is what comes before the first stop of any way to go on."""
    ahead = ["".join(more) for n in range(4) for more in itertools.product("abc", repeat=n)]

    def certain(text):
        found = [at for more in ahead for stop in stops if 0 <= (at := (text + more).find(stop)) < len(text)]
        return text[: min(found, default=len(text))]

    for text in map("".join, itertools.product("abc", repeat=5)):
        stream, given = TextStream(lambda token: bytes([token]), stops), ""
        for n, byte in enumerate(text.encode(), 1):
            given += stream.push(byte)
            assert given == certain(text[:n])
            if any(stop in text[:n] for stop in stops):
                break
        else:
            assert given + stream.end() == text  # no stop came, so nothing is taken back


@given(st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=3), st.text("ab", max_size=60), st.data())
def test_a_stream_in_pieces_waits_for_as_much_as_may_become_a_stop(stops, text, data):
    """However long the text and its pieces are: all is told but the longest end that begins a stop."""
    stream, given, came = TextStream(lambda token: pieces[token], stops), "", b""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=9)))
    pieces = [text[a:b].encode() for a, b in itertools.pairwise([0, *cuts, len(text)])]
    for token, piece in enumerate(pieces):
        given, came = given + stream.push(token), came + piece
        found = [at for stop in stops if (at := came.decode().find(stop)) >= 0]
        begun = [n for stop in stops for n in range(len(stop)) if came.decode().endswith(stop[:n])]
        assert given == came.decode()[: min([*found, len(came) - max(begun)])]
        if found:
            return
    assert given + stream.end() == text


def test_a_text_that_long_stops_wait_for_is_looked_at_once():
    """What takes minutes if every beginning of each stop is compared with the text at every token."""
    length = 20_000
    stream = TextStream(lambda token: b" ", (" " * length + "x", *("y" * length + str(n) for n in range(8))))
    assert "".join(stream.push(0) for _ in range(length)) == ""
    assert stream.push(0) == " "
    assert stream.end() == " " * length


def test_broken_bytes_wait_until_they_are_certain():
    stream = TextStream(lambda token: bytes([token]))
    assert [stream.push(byte) for byte in (0xF0, 0x9F, 0x98, 0x80)] == ["", "", "", "😀"]
    assert [stream.push(byte) for byte in (0xF0, 0x9F, 0x41)] == ["", "", "\ufffdA"]
    assert stream.push(0xE2) == ""
    assert stream.end() == "\ufffd"


@pytest.mark.parametrize("text", ["\ud800", "ok \udcff", b"bytes", 3, None])
def test_what_is_no_text_is_refused(tiny, text):
    with pytest.raises(BadRequest, match=r"surrogate|expected str"):
        tiny.encode(text)


def test_bos_is_added_once_where_the_model_wants_it():
    metadata = byte_metadata(pre="llama-bpe")
    vocabulary = read_vocabulary(metadata, 400, "tiny")
    assert vocabulary.encode("hello")[0] == 1
    assert vocabulary.encode("<|im_start|>hello") == vocabulary.encode("hello")
    assert vocabulary.encode("") == (1,)
    silent = read_vocabulary(byte_metadata(pre="llama-bpe", add_bos_token=False), 400, "tiny")
    assert silent.encode("") == ()


def test_sentence_pieces():
    vocabulary = read_vocabulary(piece_metadata(add_space_prefix=False), 400, "tiny")
    names = [vocabulary.name(token) for token in vocabulary.encode("hello hello  é")]
    assert names == ["<s>", "hello", " hello", "  ", "\\xc3", "\\xa9"]
    assert vocabulary.decode(vocabulary.encode("hello hello  é")) == "hello hello  é"
    assert vocabulary.eos == {2}
    prefixed = read_vocabulary(piece_metadata(), 400, "tiny")
    assert [prefixed.name(token) for token in prefixed.encode("hello")] == ["<s>", " hello"]


def test_tokens_are_spelt_when_they_are_asked_for():
    spelt = list[str]()
    tokens = SpeltTokens(["<s>", "a", "<0x0A>", "b"], [3, 1, 4, 1], lambda name: spelt.append(name) or name.encode(), 6)
    assert (len(tokens), tokens[3], tokens[-3], tokens[0], tokens[5], spelt) == (6, b"b", b"b", b"", b"", ["b"])
    assert tokens[1:4] == [b"a", b"<0x0A>", b"b"]
    assert list(tokens) == [b"", b"a", b"<0x0A>", b"b", b"", b""]
    with pytest.raises(IndexError):
        tokens[6]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "wordpiece"}, "tokenizer is 'wordpiece'"),
        ({"model": None}, "expected a string"),
        ({"pre": "klingon"}, "'klingon'; known: .*smollm"),
        ({"tokens": None}, "expected a list of strings"),
        ({"tokens": [1, 2]}, "expected a list of strings"),
        ({"tokens": ["a"] * 268}, "differ from each other"),
        ({"token_type": [1]}, "a list of 268 numbers"),
        ({"merges": ["ab"]}, "pairs like 'a b'"),
        ({"merges": ["q zz"]}, "merges do not fit"),
        ({"eos_token_id": 9999}, "a token from 0 to 267"),
        ({"add_bos_token": 3}, "true or false"),
    ],
)
def test_broken_vocabularies_are_refused_with_words(change, words):
    with pytest.raises(BadModel, match=words):
        read_vocabulary(byte_metadata(**change), 400, "tiny.gguf")


def test_more_tokens_than_logits_is_refused():
    with pytest.raises(BadModel, match="268 tokens but only 100 logits"):
        read_vocabulary(byte_metadata(), 100, "tiny.gguf")


def test_byte_letters_are_those_of_the_tokenizers_package():
    from tokenizers.pre_tokenizers import ByteLevel

    assert sorted(BYTE_LETTERS) == sorted(ByteLevel.alphabet())
    assert byte_level("Ġh") == b" h"


@pytest.fixture
def folder(tmp_path, tiny):
    tiny._tokenizer.save(str(tmp_path / "tokenizer.json"))
    layout = json.loads((tmp_path / "tokenizer.json").read_text())
    layout["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps(layout))
    config = {"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|im_start|>", "chat_template": TEMPLATE}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    return tmp_path


def test_folders_give_the_same_vocabulary(folder, tiny):
    vocabulary = read_folder(folder, tiny.size)
    text = "hello é 😀\n<tool> 12<|im_end|>"
    assert vocabulary.encode(text) == tiny.encode(text)
    assert [vocabulary.piece(token) for token in range(tiny.size)] == [tiny.piece(token) for token in range(tiny.size)]
    assert vocabulary.eos == {0, 2, 7}
    assert vocabulary.bos == 1
    assert not vocabulary.add_bos
    assert vocabulary.chat([{"role": "user", "content": "x"}]) == tiny.chat([{"role": "user", "content": "x"}])


def test_folders_of_sentence_pieces(tmp_path):
    from tokenizers import Tokenizer
    from tokenizers.decoders import ByteFallback, Fuse, Replace, Sequence
    from tokenizers.processors import TemplateProcessing

    gguf = read_vocabulary(piece_metadata(add_space_prefix=False), 400, "tiny")
    tokenizer = Tokenizer.from_str(gguf._tokenizer.to_str())
    tokenizer.decoder = Sequence([Replace("▁", " "), ByteFallback(), Fuse()])
    tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vocabulary = read_folder(tmp_path, 400)
    text = "hello  hello é\n"
    assert vocabulary.encode(text) == gguf.encode(text)
    assert vocabulary.bos == 1
    assert vocabulary.eos == {2}
    assert vocabulary.decode(vocabulary.encode(text)) == text


def test_broken_tokenizer_files_are_refused_with_words(folder):
    with pytest.raises(BadModel, match="no logit; the model has 100"):
        read_folder(folder, 100)
    (folder / "generation_config.json").write_text("{")
    with pytest.raises(BadModel, match="generation_config"):
        read_folder(folder, 400)
    layout = json.loads((folder / "tokenizer.json").read_text())
    (folder / "generation_config.json").unlink()
    (folder / "tokenizer.json").write_text(json.dumps({**layout, "decoder": None}))
    with pytest.raises(BadModel, match="no exact bytes"):
        read_folder(folder, 400)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(BadModel, match="cannot be read as a tokenizer"):
        read_folder(folder, 400)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(BadModel, match="is missing"):
        read_folder(folder, 400)


MESSAGES = [{"role": "user", "content": 'hi <b> "é"'}, {"role": "assistant", "content": "yo"}]


def test_chat(tiny):
    assert tiny.chat(MESSAGES[:1]) == '<|im_start|>user\nhi <b> "é"<|im_end|>\n<|im_start|>assistant\n'
    assert tiny.chat(MESSAGES[:1], reply=False) == '<|im_start|>user\nhi <b> "é"<|im_end|>\n'


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "template",
    [
        TEMPLATE,
        "{{ messages | tojson }}{{ messages | tojson(indent=2) }}",
        "{%- for m in messages %}\n    {% if loop.last %}{% continue %}{% endif %}\n  {{ m.content }}\n{% endfor %}",
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
        "{{ bos_token }}{{ tools is none }}{{ documents is defined }}{{ unknown_thing }}",
        "{{ strftime_now('%Y') }}",
        "{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{% endfor %}",
        "{% for m in messages recursive %}{{ m.role }}{% if loop.depth < 3 %}{{ loop(messages) }}{% endif %}"
        "{% endfor %}",
        "{% for k, v in messages[0].items() %}{{ k ~ '=' ~ v ~ 1 }}{% else %}none{% endfor %}",
        "{% for m in messages %}{% if loop.previtem is defined %}{{ loop.previtem.role }}{% endif %}{% endfor %}",
        "{% macro say(m) %}[{{ m.content | trim }}]{{ caller() }}{% endmacro %}"
        "{% for m in messages %}{% call say(m) %}!{% endcall %}{% endfor %}",
        "{% set all = messages[1:] + [{'role': 'x', 'content': ('a', 'b')}] %}{{ all }}{{ all | length }}",
        "{% set text %}{% for m in messages %}{{ m.role }}, {% endfor %}{% endset %}{{ text | upper }}{{ 'ab' * 3 }}",
        "{{ messages | map(attribute='role') | join(', ') }}{{ ['a', 1, none] | join('|') }}",
        "{{ messages | map(attribute='content') | list }}{{ (messages | first).role | replace('u', 'UU') }}",
        "{{ '%s and %5d' | format('a', 7) }}{{ '%05.1f' % 2.5 }}{{ '{}-{:>4}'.format('x', 'y') }}",
        "{{ 'a\nb' | indent(2) }}{{ 'a,b'.split(',') }}{{ '-'.join(['a', 'b']) }}{{ ' a '.strip() }}",
        "{{ 'aXa'.replace('X', 'YY') }}{{ 2 ** 10 }}{{ messages is iterable }}{{ messages | last }}",
        "{{ [1, 2, 3] | sum }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ 7 % 4 }}",
        "{{ [3, 1, 3] | sort }}{{ [3, 1, 3] | unique | list }}{{ [3, 1] | min }}{{ [3, 1] | max }}{{ nothing | list }}",
        "{{ messages | groupby('role') | map(attribute='grouper') | list }}{{ 'abc' | reverse }}",
        "{{ 'abc' | list | reverse | list }}{{ [] | map('upper') | list }}{{ [1, 2] | select('odd') | list }}",
        "{{ messages | rejectattr('role', 'in', ['user']) | map(attribute='role') | first }}{{ nothing | list }}",
        "{{ ('12' | int) + ('f' | int(base=16)) }}{{ 2.345 | round(1) }}{{ 2.1 | round(0, 'ceil') }}",
        "{{ 17 // 4 }}{{ -7 % 4 }}{{ messages[:1] }}{{ 'a b'.split() }}{{ 'a\nb'.splitlines() }}",
        "{{ 'a b c' | truncate(5) }}{{ '<b>' | safe }}{{ messages | map('length') | sum }}{{ (1, 2) | join(', ') }}",
        "{{ dict(a=1) }}{{ {'a': 1}.get('b', 2) }}{{ messages[::-1] | length }}{{ 'x'.ljust(4) }}{{ 'a' in 'abc' }}",
    ],
)
def test_chat_is_that_of_transformers(template):
    transformers = pytest.importorskip("transformers")
    from transformers.utils.chat_template_utils import render_jinja_template

    assert transformers
    theirs, _ = render_jinja_template(
        [MESSAGES], chat_template=template, add_generation_prompt=True, bos_token="<s>", eos_token="</s>"
    )
    assert render_chat(template, MESSAGES, names={"bos_token": "<s>", "eos_token": "</s>"}) == theirs[0]


@pytest.mark.parametrize(
    ("template", "error", "words"),
    [
        ("{{ raise_exception('roles must alternate') }}", BadRequest, "refuses these messages: roles must alternate"),
        ("{% if %}", BadModel, "not valid Jinja"),
        ("{{ 1 / 0 }}", BadModel, "fails on these messages"),
        ("{{ messages.append(1) }}", BadModel, "unsafe"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", BadModel, "unsafe"),
        ("{{ messages[9]['role'] }}", BadModel, "fails on these messages"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", BadModel, "recursion"),
        ("{{ lipsum(n=100000) }}", BadModel, "fails on these messages"),
        ("{{ 'a' | center(1000) }}", BadModel, "the filter center"),
        ("{{ '<!-- -->' | striptags }}", BadModel, "the filter striptags"),
        ("{{ 'ab'.encode('punycode') }}", BadModel, "the method encode"),
        ("{{ (1).to_bytes(10 ** 9, 'big') }}", BadModel, "methods of numbers"),
        ("{{ 1 | round(10 ** 9, 'ceil') }}", BadModel, "at most 300 places"),
        ("{{ 1 | round(-10 ** 9, 'floor') }}", BadModel, "at most 300 places"),
        ("{{ ['a' * 1000] | tojson(indent=100000000) }}", BadModel, "tojson indents"),
        ("{{ (" * 3000 + ")" * 3000 + "}}", BadModel, "not valid Jinja"),
    ],
)
def test_bad_templates_are_refused_with_words(template, error, words):
    with pytest.raises(error, match=words):
        render_chat(template, MESSAGES)


NINES = "99999"
RANGE = "{% set xs = range(99999) | list %}"
GROWING = (
    "{% set ns = namespace(x='aaaaaaaaaaaaaaaa', y=[]) %}{% for i in range(99) %}{% set ns.x = CHANGE %}{% endfor %}"
)


@pytest.mark.parametrize(
    "template",
    [
        f"{{% for a in range({NINES}) %}}{{% for b in range({NINES}) %}}{{% endfor %}}{{% endfor %}}",
        f"{RANGE}{{% for a in xs %}}{{% for b in xs %}}{{% endfor %}}{{% endfor %}}",
        f"{RANGE}{{% for a in xs %}}{{% for b in xs if b < 0 %}}{{% endfor %}}{{% endfor %}}",
        f"{RANGE}{{% for a in xs recursive %}}{{% if loop.depth < 9 %}}{{{{ loop(xs) }}}}{{% endif %}}{{% endfor %}}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{{ 'a' * 10 ** 10 }}",
        "{{ 10 ** 10 * 'a' }}",
        "{{ ['a'] * 10 ** 10 }}",
        "{{ 9 ** 999999999 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ '{:>{}}'.format(1, 1000000000) }}",
        "{{ ('{:>99999}' * 1000).format(*range(1000)) }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{{ 'a'.zfill(1000000000) }}",
        "{{ ('\t' * 1000).expandtabs(1000000000) }}",
        "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
        "{{ ('a' * 100000) | replace('a', 'b' * 100000) }}",
        "{{ ('b' * 100000).join(['a'] * 100000) }}",
        "{{ (['a'] * 100000) | join('b' * 100000) }}",
        "{{ ('\n' * 100000) | indent(1000000) }}",
        f"{{{{ range({NINES}) | map(attribute='no', default='a' * 1000000) | list }}}}",
        f"{{{{ range({NINES}) | map(attribute='no', default='a' * 1000000) | list | string }}}}",
        f"{{{{ range({NINES}) | map(attribute='no', default='a' * 1000000) | list | tojson }}}}",
        f"{{% set big = 'a' * 1000000 %}}{{% for i in range({NINES}) %}}{{{{ big }}}}{{% endfor %}}",
        f"{{% set x %}}{{% for i in range({NINES}) %}}{'a' * 1000}{{% endfor %}}{{% endset %}}",
        f"{RANGE}{{% macro f() %}}{{% for i in xs %}}{'a' * 1000}{{% endfor %}}{{% endmacro %}}{{% set x = f() %}}",
        GROWING.replace("CHANGE", "ns.x + ns.x"),
        GROWING.replace("CHANGE", "ns.x ~ ns.x"),
        GROWING.replace("CHANGE", "ns.x * 2"),
        GROWING.replace("CHANGE", "[ns.x, ns.x]"),
        GROWING.replace("CHANGE", "(ns.x, ns.x)"),
        GROWING.replace("CHANGE", "{'a': ns.x, 'b': ns.x}"),
        GROWING.replace("CHANGE", "dict(a=ns.x, b=ns.x)"),
        GROWING.replace("CHANGE", "ns.x.join(['a', ns.x])"),
        GROWING.replace("CHANGE", "ns.x | replace('a', 'aa')"),
        GROWING.replace("CHANGE", "[ns.x] | tojson | tojson"),
        "{{ 7 ** 999999 }}",
        "{% set x = 7 ** 4000 %}{{ x * x }}",
        "{% set x = 7 ** 4000 %}{% set y = x * (7 ** 1500) %}{{ y * y // x }}",
        f"{RANGE}{{{{ xs | reject('in', xs | map('string') | list) | list | length }}}}",
        f"{RANGE}{{{{ xs | map('string') | select('in', xs) | list | length }}}}",
        f"{{{{ range({NINES}) | map('string') | map('replace', '1', 'x' * 1000000) | list | length }}}}",
        f"{{{{ range({NINES}) | map('string') | map('replace', '1', 'x' * 1000000) | sort | length }}}}",
        f"{{{{ range({NINES}) | map('string') | map('replace', '1', 'x' * 1000000) | unique | list | length }}}}",
        f"{{{{ range({NINES}) | map('string') | map('replace', '1', 'x' * 1000000) | reverse | length }}}}",
        f"{{{{ ''.join(range({NINES}) | map('string') | map('replace', '1', 'x' * 1000000)) | length }}}}",
        "{{ ('a' * 9999999) | list | length }}",
        "{{ ('a,' * 999999).split(',') | length }}",
        "{{ ('a ' * 999999).split() | length }}",
        "{{ ('a\n' * 999999).splitlines() | length }}",
        "{% macro f(n) %}{% set x = 'a' * 9999999 %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        *(
            "{% set x = 'a' * 9999999 %}" + "".join(f"{{% set x{n} = {made} %}}" for n in range(99))
            for made in ("x[1:]", "x ~ 1", "x + 'b'", "x | upper", "x.upper()", "x | reverse", "x | safe", "[x]")
        ),
    ],
)
def test_templates_that_have_no_end_are_stopped_with_words(template, monkeypatch):
    if "macro f(n)" in template or "recursive" in template:  # which are slow at it
        monkeypatch.setattr("unspool.models.chat_template.Budget", lambda: Budget(steps=20_000, made=10**8))
    if "('in'" in template or "set x0" in template:
        monkeypatch.setattr("unspool.models.chat_template.Budget", lambda: Budget(made=10**8, until=monotonic() + 0.5))
    with pytest.raises(
        BadModel,
        match=r"does not come to an end on these messages: it (takes|makes a value of|makes values|writes) .*more",
    ):
        render_chat(template, MESSAGES)


def test_a_number_that_is_too_long_to_be_read_is_none():
    assert render_chat("{{ ('f' * 100000) | int(7, 16) }}", MESSAGES) == "7"


def test_what_says_nothing_itself_is_named(monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr("unspool.models.chat_template._now", full)
    with pytest.raises(BadModel, match=r"fails on these messages \(MemoryError\)"):
        render_chat("{{ strftime_now('%Y') }} once", MESSAGES)


def test_a_long_chat_is_none_that_has_no_end():
    messages = [{"role": "user", "content": "a" * 100}] * 10_000
    assert render_chat(TEMPLATE, messages, names={"eos_token": "<|im_end|>"}).count("<|im_end|>") == 10_000


@pytest.mark.parametrize("message", ["hi", {"role": "user"}, {"content": "x"}, {"role": 1, "content": "x"}])
def test_bad_messages_are_refused(tiny, message):
    with pytest.raises(BadRequest, match="Message 0"):
        tiny.chat([message])


def test_no_template_no_chat():
    metadata = byte_metadata()
    del metadata["tokenizer.chat_template"]
    with pytest.raises(BadRequest, match="no chat template"):
        read_vocabulary(metadata, 400, "tiny").chat(MESSAGES)


def cached(name):
    path = model_folder(name) / CATALOG[name].file
    if not path.is_file():
        pytest.skip(f"{name} is not in the cache folder")
    return path


def test_the_default_model_speaks():
    vocabulary = open_checkpoint(cached("smollm2")).vocabulary()
    assert vocabulary.size == 49152
    assert vocabulary.eos == {0, 2}
    # Digits stand alone, and the spaces before them stay together, as in the model's own tokenizer.
    assert [vocabulary.name(token) for token in vocabulary.encode("a  12 345")] == [
        "a",
        "  ",
        "1",
        "2",
        " ",
        "3",
        "4",
        "5",
    ]
    chat = vocabulary.chat([{"role": "user", "content": "hi"}])
    assert chat.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


def texts():
    fixed = [
        "",
        " ",
        "Hello world",
        "def f(x):\n    return x**2\n\n\n",
        "  two",
        "two  ",
        "tab\t\tCR\r\n",
        "don't DON'T",
    ]
    fixed += [
        "日本語 текст عربي",
        "😀👩‍👩‍👧 🏳️‍🌈",
        "\x00\x01\x7f",
        "é e\u0301",
        "\u200b\u00a0\u3000x",
        "\n" * 20,
        " " * 30,
        "<b></b>",
    ]
    draw = random.Random(0)
    letters = "abcXYZ .,;!?'\"\n\t<>|_-éß日😀\u0301\u200d "
    return fixed + ["".join(draw.choices(letters, k=draw.randrange(60))) for _ in range(2000)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(CATALOG))
def test_catalog_models_speak_as_in_transformers(name):
    transformers = pytest.importorskip("transformers")
    path = cached(name)
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    ours = open_checkpoint(path).vocabulary()
    # transformers' GGUF reader loses Qwen's NFC step and SmolLM2's way with digits (tested above): not compared.
    samples = [unicodedata.normalize("NFC", text) for text in texts()] + ["<|im_start|>user\nhi<|im_end|>"]
    for text in samples:
        expected = tuple(theirs.encode(text, add_special_tokens=False))
        assert ours.encode(text) == ((ours.bos, *expected) if ours.add_bos else expected), text
        plain = ours.encode(text, special=False)
        assert b"".join(map(ours.piece, plain)) == text.encode() == ours.decode(plain).encode()
    if ours.chat_template:
        for reply in (True, False):
            expected = theirs.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=reply)
            assert ours.chat(MESSAGES, reply) == expected


ODD = st.none() | st.booleans() | st.integers(-2, 500) | st.lists(st.sampled_from(["a", "a b", "", "é"]), max_size=3)


@quick
@given(st.sampled_from([byte_metadata(), piece_metadata()]), st.data())
def test_odd_metadata_is_read_or_refused(metadata, data):
    key = data.draw(st.sampled_from(sorted(metadata)))
    with contextlib.suppress(BadModel):
        read_vocabulary({**metadata, key: data.draw(ODD)}, 400, "tiny").encode("hello é")


@cache
def opened(path):
    return open_checkpoint(path).vocabulary()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=200) | st.text(alphabet="a \n\x04", max_size=400) | st.just("<|im_start|>" * 9))
def test_a_text_never_has_fewer_tokens_than_its_size_tells(smollm2_path, text):
    vocabulary = opened(smollm2_path)
    assert vocabulary.at_least(text) <= len(vocabulary.encode(text))


def test_the_size_of_a_long_text_tells_nearly_as_much_as_its_tokens_where_they_are_bytes():
    bytewise = Vocabulary(byte_tokenizer(), [bytes([i]) for i in range(256)], special=(), eos=())
    assert bytewise.at_least("word " * 100) == len(bytewise.encode("word " * 100)) == 500


def test_where_a_text_may_shrink_before_it_is_read_nobody_can_tell():
    shrinking = byte_tokenizer()
    shrinking.normalizer = normalizers.NFKC()
    assert Vocabulary(shrinking, [bytes([i]) for i in range(256)], special=(), eos=()).at_least("ab" * 99) == 0


def byte_tokenizer():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(tokenizer_models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return made


def test_the_blocks_of_one_model_are_not_written_into_a_vocabulary_that_others_share():
    words = read_vocabulary(byte_metadata(), 400, "tiny")
    assert words.in_blocks(8).block == 8
    assert words.in_blocks(8).encode("hello") == words.encode("hello")
    assert words.block is None
