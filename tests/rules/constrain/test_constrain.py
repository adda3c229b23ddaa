"""Constraints: what may be written is exactly what they say, in every decoder, and what cannot be used is refused."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import random
import re

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from letters import Letters
from repository import ROOT
from truth import law_of_text

import unspool
from unspool.api.settings import Settings
from unspool.core.chance import Every, total_variation
from unspool.core.claim import LAW, SEED
from unspool.core.errors import BadRequest, EmptyLaw
from unspool.core.law import NEVER, Law
from unspool.core.stop import Stop
from unspool.core.warp.warp import Prefix
from unspool.proof.case import Case
from unspool.recipes.methods import entries
from unspool.rules.constrain import (
    Constrained,
    choices,
    grammar,
    json_schema,
    keywords,
    matcher,
    predicate,
    regex,
    until,
)
from unspool.rules.constrain.bits import MaskCache, packed
from unspool.rules.constrain.constraint import Binds
from unspool.rules.constrain.cursor import MatcherState
from unspool.rules.constrain.trie import Trie
from unspool.rules.decode import Speculate
from unspool.rules.draft import Forced
from unspool.runtime.engine.engine import Engine

llguidance = pytest.importorskip("llguidance")
jsonschema = pytest.importorskip("jsonschema")

AB = Letters(("a", "b", "ab", "(", ")", "aa", "a"))  # "a" has two tokens
LONG = 5


def _shut(text: str) -> bool:
    return not text.endswith("(")


FORMS = {
    "regex": (regex("a(b|ab)*"), lambda t: re.fullmatch("a(b|ab)*", t) is not None),
    "alternatives": (regex("ab?|b"), lambda t: t in ("a", "ab", "b")),
    "Lark, nested": (grammar('start: "(" start ")" start |'), lambda t: set(t) <= set("()") and _nested(t)),
    "Lark, left-recursive": (grammar('start: start "a" | "b"'), lambda t: re.fullmatch("ba*", t) is not None),
    "GBNF": (grammar('root ::= "a" root "b" | "ab"'), lambda t: t == "a" * (len(t) // 2) + "b" * (len(t) // 2) != ""),
    "GBNF with a start of its own": (grammar('root ::= Start "b" # a Start\nStart ::= "a"'), lambda t: t == "ab"),
    "choices": (choices("a", "ab", "abab", "b)"), lambda t: t in ("a", "ab", "abab", "b)")),
    "keywords": (keywords("aa", ("b", ")")), lambda t: "aa" in t and ("b" in t or ")" in t)),
    "predicate": (
        predicate(lambda t: "bb" not in t, lambda t: t[-1:] != "("),
        lambda t: "bb" not in t and t[-1:] != "(",
    ),
    "both": (regex("[ab]*") & keywords("ab"), lambda t: re.fullmatch("[ab]*ab[ab]*", t) is not None),
    "either": (choices("ab", "(a)") | regex("b+"), lambda t: t in ("ab", "(a)") or re.fullmatch("b+", t) is not None),
    "until": (until("ab"), lambda t: t.find("ab") == len(t) - 2 >= 0),
    "until what overlaps itself": (until("aab"), lambda t: t.find("aab") == len(t) - 3 >= 0),
    "free, then bound": (until("(").then(choices("a", "b)")), lambda t: re.fullmatch(r"[^(]*\((a|b\))", t) is not None),
    "then": (regex("a*").then(choices("b", "()")), lambda t: re.fullmatch(r"a*(b|\(\))", t) is not None),
    "three": (
        (regex("a*") | choices("(")).then(regex("b?") & regex("b|a?")),
        lambda t: re.fullmatch(r"(a*|\()b?", t) is not None,
    ),
}


WIDE = ("keywords", "predicate", "until", "until what overlaps itself", "free, then bound")  # with many texts


def _nested(text: str) -> bool:
    depth = 0
    for letter in text:
        depth += 1 if letter == "(" else -1
        if depth < 0:
            return False
    return depth == 0


def walk(state, words, longest):
    """Every token sequence that masks allow, with the state it leads to."""
    yield (), state
    if longest:
        for token in state.mask().nonzero().flatten().tolist():
            if token not in words.eos:
                for rest, after in walk(state.step(token), words, longest - 1):
                    yield (token, *rest), after


@pytest.mark.parametrize("name", FORMS)
def test_what_can_be_written_is_what_the_form_says(name):
    form, says = FORMS[name]
    longest = 3 if name in WIDE else LONG
    written: set[str] = set()
    for tokens, state in walk(form.fit(AB).start(), AB, longest):
        text = AB.decode(tokens)
        assert state.complete() == says(text), text
        ends = state.mask()[sorted(AB.eos)].tolist()
        assert ends == [state.complete()] * 2
        if state.complete():
            written.add(text)
    reach = 3 if name in WIDE else LONG - 1  # in letters, the shortest tokens
    every = {"".join(t) for n in range(reach + 1) for t in itertools.product("ab()", repeat=n)}
    assert {t for t in every if says(t)} <= written


@pytest.mark.parametrize("name", FORMS)
def test_states_keep_the_protocol(name):
    """Allowed one by one as in the mask; broken for good; forced tokens are the only ones; asked in any order."""
    form, _ = FORMS[name]
    constraint = form.fit(AB)
    paths = dict(walk(constraint.start(), AB, 3))
    fresh = constraint.start()
    for tokens, state in sorted(paths.items(), key=lambda item: hash(item[0])):
        again = fresh
        for token in tokens:
            again = again.step(token)
        mask = state.mask().tolist()
        assert again.mask().tolist() == mask
        assert [state.allows(t) for t in range(AB.size)] == mask
        forced = state.forced()
        for i, token in enumerate(forced):
            assert state.mask().nonzero().flatten().tolist() == [token], (tokens, forced, i)
            state = state.step(token)
        broken = next((t for t in range(AB.size) if not mask[t]), None)
        if broken is not None:
            dead = again.step(broken)
            assert not dead.mask().any()
            assert not dead.complete()
            assert not dead.step(0).allows(0)
        if again.complete():
            over = again.step(min(AB.eos))
            assert over.complete()
            assert set(over.mask().nonzero().flatten().tolist()) == AB.eos


def test_a_trie_forces_what_all_its_texts_share():
    state = choices("(a)b", "(a)(").fit(AB).start()
    assert AB.decode(state.forced()) == "(a)"
    assert choices("ab").fit(AB).start().step(2).forced() == ()  # two tokens may end it
    assert regex(r"\(\)a").fit(AB).start().forced()[:2] == (3, 4)


# ---- constraints and decoders

CASE = Case(3, ((3, 2, 1), (1, 4, 2), (2, 1, 3)), ((1, 1, 2), (2, 3, 1), (4, 1, 1)), (0,), "none", 2, None, 4, False)


# those of the constrain family promise another law than the masked one, and have tests of their own
EXACT = [e.name for e in entries().values() if e.claim in (LAW, SEED) and e.shaped and e.family != "constrain"]


@pytest.mark.parametrize("name", EXACT)
def test_every_exact_rule_stays_exact_under_a_constraint(name):
    """The joint law of whole texts is that of plain decoding under the same masks, whatever was drafted."""
    warp = Constrained(Trie([(0, 1), (1,), (0, 0, 1), (1, 1, 0)], Letters(("a", "b"), controls=0, ends=1)))
    stop = Stop(frozenset({2}), most=5)
    entry = entries()[name]
    tables = CASE.tables()
    want = law_of_text(tables["target"], CASE.prompt, warp, stop)
    assert set(want) == {d for d in want if d.tokens in {(0, 1, 2), (1, 2), (0, 0, 1, 2), (1, 1, 0, 2)}}
    method = next(iter(entry.trials(entry.rule)))

    def program(chance):
        engine = Engine(CASE.models(tables))
        job = engine.submit(method, CASE.prompt, chance, warp, stop)
        engine.run()
        return job.result()

    assert total_variation(Every(most=4000).law(program), want) < 1e-12


# ---- the default model

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 20},
        "age": {"type": "integer", "minimum": 18, "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"v": {"enum": [1, 2]}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["v", "next"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
LIST = {
    "type": "array",
    "items": {"type": "string", "pattern": "^[A-Z][a-z]{2,6}$"},
    "minItems": 2,
    "maxItems": 3,
}
SCHEMAS = [PERSON, TREE, LIST]


def ask(text):
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("schema", SCHEMAS, ids=["person", "tree", "list"])
@pytest.mark.parametrize("temperature", [pytest.param(0.0, marks=pytest.mark.slow), 1.0])
def test_the_default_model_writes_what_a_schema_accepts(smollm2, schema, temperature):
    options = Settings(constraint=json_schema(schema), temperature=temperature, seed=5, max_tokens=32, top_p=0.95)
    output = smollm2.generate(ask("Answer in JSON."), options)
    if output.reason == "length":  # a list may go on for ever; what stands is then a beginning
        assert schema is TREE
    else:
        assert output.reason == "eos"
        jsonschema.validate(json.loads(output.text), schema)


@pytest.mark.parametrize("temperature", [0.0, pytest.param(1.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", ["lookup", pytest.param("recycle", marks=pytest.mark.slow)])
def test_a_drafted_text_is_the_plain_one_under_a_constraint(smollm2, method, temperature):
    options = Settings(constraint=json_schema(PERSON), temperature=temperature, seed=2, max_tokens=40)
    prompt = ask('Like {"name": "Ann", "age": 20}: another one.')
    plain, fast = smollm2.generate(prompt, options), smollm2.generate(prompt, options, method)
    assert fast.tokens == plain.tokens
    assert fast.reason == plain.reason == "eos"


@pytest.mark.slow
def test_forced_tokens_are_drafted_and_save_forwards(smollm2):
    options = Settings(constraint=json_schema(PERSON), max_tokens=40)
    prompt = ask("Invent a person.")
    plain, fast = smollm2.generate(prompt, options), smollm2.generate(prompt, options, "forced")
    assert fast.tokens == plain.tokens
    assert fast.trace.forwards["target"] < plain.trace.forwards["target"]
    free = smollm2.generate(prompt, Settings(max_tokens=8), Speculate(Forced(), budget=8))
    assert free.trace.drafted == 0  # nothing is forced without a constraint


def test_forced_tokens_are_drafted_behind_every_path():
    """As a guide it goes on where others have led: below `(` the grammar forces nothing, below `a` it forces `b`."""
    letters = Letters(("a", "b", "(", ")"))
    warp = Constrained(Trie([(0, 1, 1), (2, 0, 1), (2, 3, 3)], letters))
    source = Forced().begin(prefix := Prefix.of((3,), warp))
    start = source.start(prefix)
    assert source.below(start)[1] == []
    assert source.below(source.then(start, 0))[1] == [(1, 1.0)]
    assert source.below(source.then(start, 2))[1] == []
    assert source.then(start, 3) is None


@pytest.mark.slow
def test_a_batch_under_one_constraint_is_each_alone(smollm2):
    options = Settings(constraint=json_schema(PERSON), temperature=1.0, seed=4, max_tokens=40, n=2)
    prompts = [ask("Someone old."), ask("Someone young.")]
    together = smollm2.batch(prompts, options)
    alone = [output for prompt in prompts for output in smollm2.samples(prompt, options)]
    assert [output.tokens for output in together] == [output.tokens for output in alone]
    assert len({output.tokens for output in together}) > 2
    for output in together:
        jsonschema.validate(json.loads(output.text), PERSON)


def test_truncations_see_what_may_really_follow(smollm2):
    """Top-k 1 of the masked law is its best token; masked afterwards, nothing would be left."""
    options = Settings(constraint=choices("Zanzibar", "Zagreb"), temperature=1.0, top_k=1, max_tokens=16)
    assert smollm2.generate(ask("What is one and one?"), options).text in ("Zanzibar", "Zagreb")


def test_masks_on_a_real_vocabulary_are_what_one_by_one_says(smollm2):
    """Over the whole vocabulary, before, inside and after a JSON text; control tokens only to end it."""
    words = smollm2.vocabulary
    state = json_schema(PERSON).fit(words).start()
    for token in (None, *words.encode('{"name": "Jo", "age": 30}')):
        state = state if token is None else state.step(token)
        mask = state.mask()
        sample = [*range(0, words.size, 97), *words.special, *mask.nonzero().flatten()[:50].tolist()]
        assert [state.allows(t) for t in sample] == mask[sample].tolist()
        controls = {t for t in words.special if mask[t]}
        assert controls == (words.eos if state.complete() else set())
    assert state.complete()
    assert set(state.mask().nonzero().flatten().tolist()) == words.eos


def test_forced_tokens_of_a_schema_are_the_only_ones(smollm2):
    words = smollm2.vocabulary
    state = json_schema(PERSON).fit(words).start().step(words.token('{"'))
    forced = state.forced()
    assert words.decode(forced) == "name"
    assert state.mask().nonzero().flatten().tolist() == [forced[0]]


# ---- refusals


@pytest.mark.parametrize(
    ("form", "why"),
    [
        (regex("(a"), "unclosed group"),
        (regex("(?=a)b"), "look-around"),
        (grammar("start: foo"), "unknown name"),
        (grammar("no rules here"), "cannot be read|expected|Expected"),
        (grammar('start: start "a"'), "cannot be met"),
        (grammar('start: "a" start'), "never ends"),
        (json_schema({"type": "string", "minLength": 5, "maxLength": 2}), "minLength"),
        (json_schema({"enum": []}), "empty|Unsatisfiable"),
        (json_schema({"type": "strin"}), "Invalid type"),
        (json_schema({"$ref": "#/nowhere"}), "does not exist"),
        (json_schema({"$ref": "https://example.org/x.json"}), "fetch"),
        (json_schema({"not": {"type": "string"}}), "'not' at the top"),
        (json_schema({"properties": {"a": {"uniqueItems": True}}}), "'uniqueItems' at /properties/a"),
        (json_schema({"format": "iri"}), "'format' at the top"),
        (json_schema({"oneOf": [{"type": "integer"}, {"type": "number"}]}), "'oneOf' at the top"),
        (json_schema({"type": "object", "minProperties": 2}), "'minProperties' at the top"),
        (json_schema({"x-guidance": {"lenient": True}, "not": {}}), "'not'"),
    ],
)
def test_what_cannot_be_enforced_is_refused(form, why):
    with pytest.raises(BadRequest, match=why):
        form.fit(AB)


@pytest.mark.parametrize(
    "make",
    [
        lambda: choices(),
        lambda: choices("a", ""),
        lambda: keywords(),
        lambda: keywords(("a", "")),
        lambda: regex(""),
        lambda: grammar(" "),
        lambda: json_schema("{"),
        lambda: json_schema([1]),
        lambda: json_schema(False),
        lambda: predicate("no function"),
        lambda: Settings(constraint="a+"),
        lambda: Settings(constraint=regex("a"), ignore_eos=True),
    ],
)
def test_what_is_no_form_is_refused(make):
    with pytest.raises(BadRequest):
        make()


def test_a_grammar_beyond_its_limits_ends_in_an_error(monkeypatch):
    few = llguidance.LLParserLimits(max_lexer_states=40, verbose_errors=False)
    monkeypatch.setattr(matcher, "limits", lambda: few)

    def follow() -> None:
        state = regex("((a|b)*a(a|b){30}){4}").fit(AB).start()
        for i in range(200):
            state.mask()
            state = state.step(i % 2)

    with pytest.raises(BadRequest, match=r"(any further|cannot be used).*too many states"):
        follow()


def test_a_predicate_that_raises_says_on_which_text():
    with pytest.raises(BadRequest, match=r"ZeroDivisionError.*on the text 'a'"):
        predicate(lambda text: 1 // (len(text) - 1) > -9).fit(AB).start().mask()


def test_parts_that_exclude_each_other_are_an_error_and_not_a_wrong_text():
    state = (regex("aa") & regex("ab")).fit(AB).start().step(0)
    with pytest.raises(EmptyLaw, match="exclude each other"):
        _ = Constrained(regex("a").fit(AB))(state, Law(torch.zeros(AB.size))).best


def test_a_report_names_every_keyword():
    schema = {
        "type": "object",
        "title": "T",
        "properties": {
            "a": {"type": "array", "uniqueItems": False, "contains": {"const": 1}},
            "b": {"format": "int64"},
        },
        "requierd": ["a"],
    }
    refused = json_schema(schema).report
    assert [str(use) for use in refused.refused] == ["'contains' at /properties/a"]
    assert {use.keyword for use in refused.enforced} == {"type", "properties", "const"}
    assert [use.keyword for use in refused.unknown] == ["requierd"]
    checked = json_schema(schema, check=True).report
    assert checked.checked == refused.refused
    assert checked.refused == ()


def test_what_is_checked_at_the_end_keeps_a_wrong_text_from_ending(smollm2):
    words = smollm2.vocabulary
    form = json_schema({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "maxItems": 2}, check=True)

    def after(text):
        state = form.fit(words).start()
        for token in words.encode(text):
            state = state.step(token)
        return state

    assert after("[1,2]").complete()
    assert not after("[1,1]").complete()
    assert not after("[1,1]").mask().any()
    assert after("[1,1").mask().any()


def test_white_space_is_bounded(smollm2):
    words = smollm2.vocabulary
    state = json_schema(PERSON).fit(words).start()
    for token in words.encode('{"name":'):
        state = state.step(token)
    space = words.token(" ")
    assert state.allows(space)
    assert not state.step(space).allows(space)


@hypothesis_settings(max_examples=25, deadline=None)
@given(st.lists(st.text("ab()", min_size=1, max_size=4), min_size=1, max_size=8, unique=True))
def test_a_choice_writes_each_of_its_texts_and_nothing_else(texts):
    state = choices(*texts).fit(AB).start()
    found = [AB.decode(tokens) for tokens, after in walk(state, AB, 4) if after.complete()]
    assert sorted(found) == sorted(texts)


def test_names_at_the_top_of_the_package():
    assert unspool.json_schema is json_schema
    assert unspool.choices("x").texts == ("x",)


# ---- the command line, the docs, the test suite of JSON Schema


def test_the_command_line_takes_one_form(tmp_path):
    from click import UsageError

    from unspool.apps.cli.group import Constraining

    path = tmp_path / "schema.json"
    path.write_text(json.dumps(PERSON))
    assert Constraining(str(path), True, None, None, None, None, None, None).form(64) == json_schema(PERSON, check=True)
    assert Constraining(None, False, None, None, None, None, "yes,no", None).form(64) == choices("yes", "no")
    assert Constraining(None, False, "a+", None, None, None, None, None).form(64) == regex("a+")
    assert Constraining(None, False, None, None, None, None, None, None).form(64) is None
    with pytest.raises(UsageError, match="give one"):
        Constraining(str(path), False, "a", None, None, None, None, None).form(64)
    with pytest.raises(UsageError, match="goes with"):
        Constraining(None, True, None, None, None, None, None, None).form(64)


def test_the_example_of_the_docs_runs(smollm2, capsys, monkeypatch):
    page = (ROOT / "docs/constrain.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    monkeypatch.setattr(unspool, "load", lambda name: smollm2)
    exec(code, {})
    assert set(json.loads(capsys.readouterr().out)) == {"name", "age"}


SUITE = ROOT.parent / "shared/data/json_schema_test_suite/tests.jsonl.gz"
LOOSE = ("optional/ecmascript-regex", "optional/content")


def test_no_schema_of_the_test_suite_lets_a_wrong_text_pass(smollm2):
    """What is not refused is enforced, up to what the docs name."""
    if not SUITE.exists():
        pytest.skip(f"the JSON Schema test suite is not here: {SUITE}")
    words, wrong, right = smollm2.vocabulary, [], 0
    for group in map(json.loads, gzip.decompress(SUITE.read_bytes()).splitlines()):
        try:
            start = json_schema(group["schema"]).fit(words).start()
        except BadRequest:
            continue
        for test in group["tests"]:
            state = start
            for token in words.encode(json.dumps(test["data"], ensure_ascii=False), special=False):
                state = state.step(token)
            if state.complete() and not test["valid"] and not any(part in group["file"] for part in LOOSE):
                wrong.append((group["file"], group["description"], test["data"]))
            right += state.complete() == test["valid"]
    assert [w for w in wrong if "sibling $id" not in w[1]] == []  # what draft 7 says of that, the schema does not
    assert right > 2000


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 1.0])
@pytest.mark.parametrize("size", [5, 64, 20_007])
def test_a_mask_binds_scores_alike_every_time_and_is_kept_by_its_bits(share, size):
    allowed = torch.rand(size, generator=torch.Generator().manual_seed(size)) < share
    packed = [
        sum(1 << i for i in range(32) if 32 * w + i < size and allowed[32 * w + i]) for w in range(-(-size // 32))
    ]
    words = torch.tensor(packed).to(torch.int32)
    masks = MaskCache(size)
    bits = masks.read(lambda out: out.copy_(words))
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        scores = torch.randn(size).to(dtype)
        expected = torch.where(allowed, scores, -math.inf)
        for _ in range(3):  # the ways differ: by weights, then by the list of few tokens
            assert bits.bind(scores).dtype == dtype
            assert torch.equal(bits.bind(scores), expected)
    assert torch.equal(bits.mask(), allowed)
    assert [token in bits for token in range(-1, size + 1)] == [False, *allowed.tolist(), False]
    assert masks.read(lambda out: out.copy_(words)) is bits


@pytest.mark.parametrize("name", FORMS)
def test_how_far_tokens_may_follow_is_what_the_masks_say_one_by_one(name):
    """Also of texts that break the form, end early, or were looked at before from elsewhere."""
    fitted = FORMS[name][0].fit(AB)
    warp, shared = Constrained(fitted), fitted.start()
    rng = random.Random(0)
    for _ in range(60):
        tokens = [rng.randrange(AB.size) for _ in range(rng.randrange(1, 7))]
        ended = next((i for i, token in enumerate(tokens) if token in AB.eos), len(tokens))
        state, after, count = fitted.start(), shared, 0
        for token in tokens[: ended + 1]:
            if not state.mask()[token]:
                break
            state, count = state.step(token), count + 1
        assert warp.follows(shared, tokens[: ended + 1]) == count
        for token in tokens[:count]:
            after = after.step(token)
        assert torch.equal(after.mask(), state.mask())


def test_masks_of_many_texts_are_each_ones_own_and_go_on_together():
    """Matchers of two grammars, a state of another kind, two prefixes of one text, and texts that end."""
    fitted = [FORMS[name][0].fit(AB) for name in ("regex", "GBNF", "choices", "regex")]
    warps, alone = [Constrained(form) for form in fitted], [form.start() for form in fitted]
    together = [form.start() for form in fitted]
    out = torch.zeros(6, 4 * -(-AB.size // 32), dtype=torch.uint8)
    for _ in range(5):
        Constrained.fill(list(zip(warps, together, strict=True)), [4, 1, 2, 5], out)
        for row, state in zip((4, 1, 2, 5), alone, strict=True):
            bits = packed(state.mask())
            assert torch.equal(out[row, : len(bits)], bits)
            assert not out[row, len(bits) :].any()
        tokens = [int(state.mask().nonzero()[-1]) for state in alone]  # where it may end, it ends
        alone = [state.step(token) for state, token in zip(alone, tokens, strict=True)]
        together = Constrained.step_all(list(zip(warps, together, strict=True)), tokens)
    first = fitted[0].start()
    shared = [(warps[0], first), (warps[0], first.step(0))]
    Constrained.fill(shared, [0, 1], out)
    assert [out[row, 0].item() for row in (0, 1)] == [packed(state.mask())[0].item() for _, state in shared]


def test_a_state_that_binds_is_not_asked_for_its_mask():
    """Which takes longer; those of compiled grammars are such states."""

    class Quick(Binds):
        def start(self):
            return self

        def bind(self, scores):
            return scores + torch.tensor([0.0, NEVER])

        def octets(self):
            return torch.tensor([0b01], dtype=torch.uint8)

        def follows(self, tokens):
            return 0

        def forced(self):
            return ()

    warp = Constrained(Quick())
    assert warp(warp.start(()), Law.of([1.0, 1.0])).p.tolist() == [1, 0]
    assert issubclass(MatcherState, Binds)
