"""Warps: what transformers' processors do, where it has them; definitions in plain floats, where it has not."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig
from transformers.generation import logits_process as hf
from transformers.generation.utils import GenerationMixin

from unspool.api.settings import Settings
from unspool.core.errors import BadRequest, BadScores, EmptyLaw
from unspool.core.law import NEVER, Law, Point
from unspool.core.warp import (
    BadWords,
    Epsilon,
    Eta,
    Forbid,
    Frequency,
    LogitBias,
    MinP,
    MinTokens,
    NoRepeatNgram,
    Prefix,
    Presence,
    Repetition,
    Same,
    Temperature,
    TopK,
    TopNSigma,
    TopP,
    Typical,
)
from unspool.core.warp.warp import temperature_of

quick = settings(max_examples=60, deadline=None)
V = 12  # the vocabulary of these tests: small, so that histories repeat themselves


@st.composite
def logits(draw, ties=True, holes=True):
    """Scores with many ties and some tokens already impossible, in either precision."""
    if ties:
        level = st.integers(-20, 20).map(lambda i: i / 4)
        values = draw(
            st.lists(st.one_of(level, level, level, st.just(NEVER)) if holes else level, min_size=V, max_size=V)
        )
        values[draw(st.integers(0, V - 1))] = draw(level)
    else:
        values = [i / 7 for i in draw(st.permutations(range(-V, V)))][:V]
    return torch.tensor(values, dtype=draw(st.sampled_from([torch.float32, torch.float64])))


texts = st.lists(st.integers(0, V - 1), min_size=1, max_size=20)
probabilities = st.floats(0.01, 0.99)


def reached(warp, prompt, new=()):
    state = warp.start(prompt)
    for token in new:
        state = warp.step(state, token)
    return state


def support(scores):
    return (scores > NEVER).nonzero().flatten().tolist()


def assert_same(law: Law, scores):
    assert support(law.scores) == support(scores)
    torch.testing.assert_close(law.p, scores.softmax(0), atol=1e-6, rtol=0)


# ---- agreement with transformers

STATELESS = {
    "temperature": (st.floats(0.05, 5), Temperature, hf.TemperatureLogitsWarper),
    "top_k": (st.integers(1, V + 3), TopK, hf.TopKLogitsWarper),
    "min_p": (probabilities, MinP, hf.MinPLogitsWarper),
    "typical": (probabilities, Typical, hf.TypicalLogitsWarper),
    "epsilon": (probabilities, Epsilon, hf.EpsilonLogitsWarper),
    "eta": (probabilities, Eta, hf.EtaLogitsWarper),
}


@pytest.mark.parametrize("name", STATELESS)
@quick
@given(data=st.data(), scores=logits())
def test_stateless_warps_are_those_of_transformers(name, data, scores):
    values, ours, theirs = STATELESS[name]
    value = data.draw(values)
    assert_same(ours(value)(None, Law(scores)), theirs(value)(torch.zeros(1, 1).long(), scores[None].clone())[0])


@quick
@given(scores=logits(), p=probabilities)
def test_top_p_is_that_of_transformers_but_keeps_all_ties_at_the_border(scores, p):
    falling = scores.double().softmax(0).sort(descending=True).values.cumsum(0)
    assume((falling - p).abs().min() > 1e-5)  # there rounding decides
    law = TopP(p)(None, Law(scores))
    theirs = hf.TopPLogitsWarper(p)(torch.zeros(1, 1).long(), scores[None].clone())[0]
    lowest = min(scores[x] for x in support(theirs))
    assert support(law.scores) == [x for x in range(V) if scores[x] >= lowest]
    if (scores == lowest).sum() == 1:
        assert_same(law, theirs)


@quick
@given(scores=logits(), text=texts, penalty=st.sampled_from([0.5, 1.0, 1.25, 3.0]), cut=st.integers(0, 20))
def test_repetition_is_that_of_transformers(scores, text, penalty, cut):
    warp = Repetition(penalty)
    law = warp(reached(warp, text[:cut], text[cut:]), Law(scores))
    assert_same(law, hf.RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([text]), scores[None].clone())[0])


@quick
@given(
    scores=logits(),
    text=st.lists(st.integers(0, 2), min_size=1, max_size=20),
    n=st.integers(1, 4),
    cut=st.integers(0, 20),
)
def test_no_repeat_ngram_is_that_of_transformers(scores, text, n, cut):
    warp = NoRepeatNgram(n)
    law = warp(reached(warp, text[:cut], text[cut:]), Law(scores))
    theirs = hf.NoRepeatNGramLogitsProcessor(n)(torch.tensor([text]), scores[None].clone())[0]
    assert support(law.scores) == support(theirs)


@quick
@given(
    scores=logits(),
    text=st.lists(st.integers(0, 2), min_size=1, max_size=8),
    words=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3), min_size=1, max_size=5),
    cut=st.integers(0, 8),
)
def test_bad_words_are_those_of_transformers(scores, text, words, cut):
    # transformers leaves a sequence out that is just [eos], if it is told the eos; here nobody is exempt
    warp = BadWords(words)
    law = warp(reached(warp, text[:cut], text[cut:]), Law(scores))
    theirs = hf.NoBadWordsLogitsProcessor([list(w) for w in words])(torch.tensor([text]), scores[None].clone())[0]
    assert support(law.scores) == support(theirs)


@quick
@given(
    scores=logits(), bias=st.dictionaries(st.integers(0, V - 1), st.integers(-40, 40).map(lambda i: i / 8), min_size=1)
)
def test_logit_bias_is_the_sequence_bias_of_transformers(scores, bias):
    theirs = hf.SequenceBiasLogitsProcessor({(x,): b for x, b in bias.items()})
    assert_same(LogitBias(bias)(None, Law(scores)), theirs(torch.zeros(1, 1).long(), scores[None].clone())[0])


@quick
@given(scores=logits(), prompt=texts, new=st.lists(st.integers(0, V - 1), max_size=6), n=st.integers(0, 5))
def test_min_tokens_is_that_of_transformers(scores, prompt, new, n):
    warp = MinTokens(n, (3, 7))
    theirs = hf.MinNewTokensLengthLogitsProcessor(len(prompt), n, [3, 7])
    law = warp(reached(warp, prompt, new), Law(scores))
    assert support(law.scores) == support(theirs(torch.tensor([prompt + new]), scores[None].clone())[0])


@quick
@given(scores=logits(), tokens=st.sets(st.integers(0, V - 1)))
def test_forbid_suppresses_as_transformers_does(scores, tokens):
    theirs = hf.SuppressTokensLogitsProcessor(sorted(tokens))(torch.zeros(1, 1).long(), scores[None].clone())[0]
    assert support(Forbid(tokens)(None, Law(scores)).scores) == support(theirs)


class Letters:
    """A vocabulary of V letters; its first token begins every text."""

    size, eos = V, frozenset({2})

    def piece(self, token):
        return b"" if token in (0, 2) else b" abcdefghijkl"[token : token + 1]

    def encode(self, text, special=True):
        return (0, *(1 if x == " " else ord(x) - ord("a") + 1 for x in text))


@settings(max_examples=40, deadline=None)
@given(
    scores=logits(ties=False),
    prompt=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    new=st.lists(st.integers(0, 4), max_size=5),
    options=st.fixed_dictionaries(
        {
            "temperature": st.sampled_from([0.4, 1.0, 2.0]),
            "top_k": st.sampled_from([0, 3, 8]),
            "top_p": st.sampled_from([0.53, 0.87, 1.0]),
            "min_p": st.sampled_from([0.0, 0.07, 0.4]),
            "typical": st.sampled_from([0.43, 0.91, 1.0]),
            "epsilon": st.sampled_from([0.0, 0.11]),
            "eta": st.sampled_from([0.0, 0.09]),
            "repetition_penalty": st.sampled_from([0.7, 1.0, 1.5]),
            "no_repeat_ngram_size": st.integers(0, 3),
            "min_tokens": st.integers(0, 4),
        }
    ),
    bias=st.dictionaries(st.integers(0, V - 1), st.sampled_from([-3.0, 1.5])),
)
def test_settings_shape_a_law_as_generate_would(scores, prompt, new, options, bias):
    config = GenerationConfig(
        do_sample=True,
        temperature=options["temperature"],
        top_k=options["top_k"],
        top_p=options["top_p"],
        min_p=options["min_p"],
        typical_p=options["typical"],
        epsilon_cutoff=options["epsilon"],
        eta_cutoff=options["eta"],
        repetition_penalty=options["repetition_penalty"],
        no_repeat_ngram_size=options["no_repeat_ngram_size"],
        min_new_tokens=options["min_tokens"],
        bad_words_ids=[[1, 3], [3]],
        sequence_bias={(x,): b for x, b in bias.items()} or None,
    )
    config._eos_token_tensor = torch.tensor([2])
    model = SimpleNamespace(
        config=SimpleNamespace(is_encoder_decoder=False), _merge_criteria_processor_list=lambda ours, theirs: ours
    )
    theirs = GenerationMixin._get_logits_processor(model, config, input_ids_seq_length=len(prompt), device="cpu")
    expected = theirs(torch.tensor([prompt + new]), scores[None].clone())[0]
    warp = Settings(**options, logit_bias=bias, bad_words=("c",)).warp(Letters())
    assert_same(warp(reached(warp, prompt, new), Law(scores)), expected)


# ---- definitions that transformers does not have


@quick
@given(
    scores=logits(),
    prompt=texts,
    new=st.lists(st.integers(0, V - 1), max_size=12),
    f=st.sampled_from([-0.5, 0.0, 0.75]),
)
def test_frequency_and_presence_count_what_was_generated(scores, prompt, new, f):
    counts = Counter(new)
    per_use = torch.tensor([float(s) - f * counts[x] for x, s in enumerate(scores)]).to(scores)
    once = torch.tensor([float(s) - f * (x in counts) for x, s in enumerate(scores)]).to(scores)
    for warp, expected in ((Frequency(f), per_use), (Presence(f), once)):
        assert_same(warp(reached(warp, prompt, new), Law(scores)), expected)


@quick
@given(scores=logits(), n=st.floats(0, 3))
def test_top_n_sigma_keeps_what_stands_out_of_the_noise(scores, n):
    finite = [float(s) for s in scores if s > NEVER]
    mean = sum(finite) / len(finite)
    bar = max(finite) - n * math.sqrt(sum((s - mean) ** 2 for s in finite) / len(finite))
    assume(all(abs(s - bar) > 1e-5 or s == max(finite) for s in finite))
    assert support(TopNSigma(n)(None, Law(scores)).scores) == [x for x in range(V) if scores[x] >= bar]


@quick
@given(scores=logits(ties=False), n=st.sampled_from([0.31, 1.0, 1.7]), t=st.floats(0.2, 4))
def test_top_n_sigma_keeps_the_same_tokens_at_every_temperature(scores, n, t):
    bar = scores.max() - n * scores.std(correction=0)
    assume((scores - bar).abs().min() > 1e-4)  # there rounding decides
    hot = (Temperature(t) | TopNSigma(n))((None, None), Law(scores))
    assert support(hot.scores) == support(TopNSigma(n)(None, Law(scores)).scores)


@quick
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(250, 3000),
    spread=st.sampled_from([0.0, 0.1, 1.0, 4.0, 60.0]),
    p=probabilities,
)
def test_a_nucleus_beyond_the_head_is_that_of_a_full_sort(seed, size, spread, p):
    noise = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    scores = (noise * spread).mul(8).round().div(8)  # with ties
    scores[:: size // 7] = NEVER
    ranked = sorted(((mass, x) for x, mass in enumerate(scores.softmax(0).tolist())), reverse=True)
    gathered, lowest = 0.0, 1.0
    for mass, _ in ranked:
        if gathered >= p - 1e-12:  # a border within rounding is either's
            assume(abs(gathered - p) > 1e-9)
            break
        gathered, lowest = gathered + mass, mass
    expected = [x for x, mass in enumerate(scores.softmax(0).tolist()) if mass >= lowest]
    assert support(TopP(p)(None, Law(scores)).scores) == expected


def test_a_nucleus_of_nearly_everything_survives_a_sum_that_rounds_below_it():
    short = 0
    for size in range(300, 320):
        law = Law(torch.zeros(size))
        short += float(law.p.sum(dtype=torch.float64)) < 1 - 1e-12
        for warp in (TopP(1 - 1e-12), Typical(1 - 1e-12)):
            assert support(warp(None, law).scores) == list(range(size))
    assert short  # or else this tested nothing


# ---- what holds for every warp

TRUNCATIONS = [
    TopK(1),
    TopK(3),
    TopP(0.0),
    TopP(0.5),
    MinP(1.0),
    MinP(0.1),
    Epsilon(0.9),
    Eta(0.9),
    TopNSigma(0),
    TopNSigma(1.0),
]
STATELESS_WARPS = [*TRUNCATIONS, Typical(0.2), Temperature(0.5), Same()]
PENALTIES = [Repetition(1.7), Frequency(0.5), Presence(0.5), LogitBias({1: 2.0, 5: -3.0})]
PROHIBITIONS = [NoRepeatNgram(1), NoRepeatNgram(2), BadWords([[1, 2], [4]]), MinTokens(3, (0, 1)), Forbid((2, 3))]
EVERY = [*STATELESS_WARPS, Temperature(0), *PENALTIES, *PROHIBITIONS]
PROMPT_INCLUSIVE = [
    Repetition(1.7),
    NoRepeatNgram(1),
    NoRepeatNgram(2),
    NoRepeatNgram(3),
    BadWords([[1, 2], [2, 0, 1]]),
]
named = pytest.mark.parametrize


@named("warp", TRUNCATIONS, ids=repr)
@quick
@given(scores=logits())
def test_truncations_keep_the_best_and_only_ever_remove(warp, scores):
    law = warp(None, Law(scores))
    kept = support(law.scores)
    assert law.best == Law(scores).best
    assert torch.equal(law.scores[kept], scores[kept])


@named("warp", EVERY, ids=repr)
def test_a_point_law_is_not_spread_out(warp):
    point = Law.point(7)  # knows no vocabulary: it raises if anybody asks for its scores
    assert warp(reached(warp, [5, 8], [9, 6]), point) is point


@named("warp", [Forbid((7,)), MinTokens(3, (7,)), NoRepeatNgram(1), BadWords([[7]]), LogitBias({7: NEVER})], ids=repr)
def test_a_forbidden_point_law_is_empty(warp):
    law = warp(reached(warp, [7], [7]), Law.point(7, Law(torch.zeros(V))))
    with pytest.raises(EmptyLaw, match="forbidden"):
        _ = law.best


def test_temperature_0_is_the_point_law_of_the_best():
    law = Temperature(0)(None, Law.of([1, 3, 3, 2]))
    assert isinstance(law, Point)
    assert law.best == 1


@named("warp", EVERY, ids=repr)
@settings(max_examples=15, deadline=None)
@given(
    scores=logits(),
    text=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    tokens=st.tuples(*[st.integers(0, 3)] * 3),
)
def test_stepping_one_branch_changes_neither_its_parent_nor_its_sibling(warp, scores, text, tokens):
    a, b, c = tokens

    def seen(state):
        return warp(state, Law(scores)).scores.tolist()

    parent = warp.start(text)
    child = warp.step(parent, a)
    before = seen(parent), seen(child)
    warp.step(warp.step(parent, b), c)
    warp.step(child, c)
    assert (seen(parent), seen(child)) == before
    assert seen(warp.step(parent, a)) == before[1]


@named("warp", PROMPT_INCLUSIVE, ids=repr)
@quick
@given(scores=logits(), text=st.lists(st.integers(0, 2), max_size=15), cut=st.integers(0, 15))
def test_prompt_or_generated_is_all_the_same_where_the_prompt_counts(warp, scores, text, cut):
    stepped = warp(reached(warp, text[:cut], text[cut:]), Law(scores))
    assert torch.equal(stepped.scores, warp(warp.start(text), Law(scores)).scores)


@named("warp", [Frequency(1.0), Presence(1.0), MinTokens(3, (0, 1))], ids=repr)
def test_the_prompt_does_not_count_where_only_the_output_does(warp):
    law = Law(torch.zeros(V))
    assert torch.equal(warp(warp.start([0, 1, 1]), law).scores, warp(warp.start([]), law).scores)
    assert not torch.equal(warp(reached(warp, [], [0, 1, 1]), law).scores, warp(warp.start([0, 1, 1]), law).scores)


@quick
@given(scores=logits(), text=texts, new=texts, data=st.data())
def test_a_pipe_is_one_warp_after_the_other(scores, text, new, data):
    parts = data.draw(st.lists(st.sampled_from(EVERY), min_size=2, max_size=4))
    pipe = Same()
    for part in parts:
        pipe = pipe | part
    prefix = Prefix.of(tuple(text), pipe).then(new)
    expected: Law = Law(scores)
    try:
        for part in parts:
            expected = part(reached(part, text, new), expected)
    except EmptyLaw:  # together they forbid everything, and a truncation after that has nothing to keep
        with pytest.raises(EmptyLaw):
            prefix.shape(Law(scores))
        return
    law = prefix.shape(Law(scores))
    if isinstance(expected, Point):
        assert isinstance(law, Point)
        assert law.best == expected.best
    else:
        assert torch.equal(law.scores, expected.scores)


@quick
@given(scores=logits(), data=st.data())
def test_a_pipe_groups_as_you_like(scores, data):
    a, b, c = (data.draw(st.sampled_from(STATELESS_WARPS + PENALTIES)) for _ in range(3))
    left, right = (a | b) | c, a | (b | c)
    text = (1, 5, 1)
    assert torch.equal(
        left(reached(left, text, text), Law(scores)).scores, right(reached(right, text, text), Law(scores)).scores
    )


@named("warp", EVERY, ids=repr)
@named("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_precision_is_kept_and_the_model_s_tensor_is_left_alone(warp, dtype):
    scores = torch.linspace(-3, 3, V).to(dtype)
    copy = scores.clone()
    law = warp(reached(warp, [1, 2], [3, 1]), Law(scores))
    assert law.best in range(V)
    assert law.scores.dtype == dtype
    assert torch.equal(scores, copy)


@named("warp", EVERY, ids=repr)
def test_broken_and_empty_laws_are_called_what_they_are(warp):
    broken = torch.zeros(V)
    broken[9] = math.nan
    with pytest.raises(BadScores, match="NaN"):
        _ = warp(reached(warp, [1], [2]), Law(broken)).log_z
    with pytest.raises(EmptyLaw, match="forbidden"):
        _ = warp(reached(warp, [1], [2]), Law(torch.full((V,), NEVER))).log_z


def test_tokens_the_vocabulary_lacks_are_passed_over():
    law = Law(torch.zeros(V))
    for warp in (Repetition(2.0), Frequency(1.0), Presence(1.0), NoRepeatNgram(1)):
        assert warp(reached(warp, [], [V, V + 7, V]), law).scores.tolist() == [0.0] * V
    for warp in (LogitBias({V: 3.0}), Forbid((V,)), MinTokens(1, (V,)), BadWords([[V]])):
        assert warp(warp.start([]), law).scores.tolist() == [0.0] * V


def test_a_warp_does_not_share_what_it_was_given():
    bias, tokens, words = {1: 1.0}, [1], [[1]]
    warps = LogitBias(bias), Forbid(tokens), BadWords(words), MinTokens(1, tokens)
    laws = [w(w.start([]), Law(torch.zeros(V))).scores.tolist() for w in warps]
    bias[2], words[0][0] = 5.0, 3
    tokens.append(2)
    again = LogitBias({1: 1.0}), Forbid([1]), BadWords([[1]]), MinTokens(1, [1])
    assert laws == [w(w.start([]), Law(torch.zeros(V))).scores.tolist() for w in warps]
    assert laws == [w(w.start([]), Law(torch.zeros(V))).scores.tolist() for w in again]


@named(
    ("build", "given"),
    [
        *((Temperature, t) for t in (-1, 1e-9, math.inf, math.nan, "1", True, None)),
        *((TopK, k) for k in (0, -1, 2.0, "5", True)),
        *((TopP, p) for p in (-0.1, 1.1, math.nan, "0.9")),
        *((MinP, p) for p in (-0.1, 1.1, math.nan)),
        *((Typical, p) for p in (0, -0.1, 1.1, math.nan)),
        *((Epsilon, p) for p in (1, -0.1, math.nan)),
        *((Eta, p) for p in (1.0, -0.1, math.nan)),
        *((TopNSigma, n) for n in (-1, math.inf, math.nan)),
        *((Repetition, r) for r in (0, -1.2, math.inf, math.nan)),
        *((Frequency, f) for f in (math.inf, math.nan, "1")),
        *((Presence, f) for f in (math.inf, math.nan, "1")),
        *((NoRepeatNgram, n) for n in (0, -2, 1.5)),
    ],
)
def test_what_is_out_of_range_is_refused_by_name_value_and_range(build, given):
    with pytest.raises(BadRequest) as refused:
        build(given)
    assert repr(given) in str(refused.value)
    assert "expected" in str(refused.value)


@named(
    ("build", "shown"),
    [
        (lambda: LogitBias({-1: 2.0}), "-1"),
        (lambda: LogitBias({3: math.inf}), "inf"),
        (lambda: LogitBias({3: math.nan}), "nan"),
        (lambda: LogitBias({"3": 1.0, 4: 1.0}), "'3'"),
        (lambda: Forbid((1, -2)), "-2"),
        (lambda: BadWords([[1], []]), "()"),
        (lambda: BadWords([[1, -3]]), "-3"),
        (lambda: MinTokens(-1, (2,)), "-1"),
        (lambda: MinTokens(1, ("2",)), "'2'"),
    ],
)
def test_tokens_that_cannot_be_are_refused(build, shown):
    with pytest.raises(BadRequest) as refused:
        build()
    assert f" is {shown}; expected" in str(refused.value)


# ---- settings


def test_greedy_wins_over_truncations_that_would_drop_the_best():
    scores = torch.tensor([0.4, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]).log()
    assert Law(scores).best not in support(Typical(0.2)(None, Law(scores)).scores)
    warp = Settings(typical=0.2, top_k=1).warp(Letters())
    assert warp(reached(warp, [1], []), Law(scores)).best == 0


def test_greedy_heeds_penalties_biases_and_prohibitions():
    law = Law(torch.tensor([0.0, 3.0, 0.0, 2.0, 1.0, 0.5] + [0.0] * 6))
    best = {}
    for name, chosen in {
        "nothing": Settings(),
        "bias": Settings(logit_bias={4: 9.0}),
        "presence_penalty": Settings(presence_penalty=1.5),
        "words": Settings(bad_words=("a",)),
    }.items():
        warp = chosen.warp(Letters())
        best[name] = warp(reached(warp, [0], [1]), law).best
    assert best == {"nothing": 1, "bias": 4, "presence_penalty": 3, "words": 3}


def test_settings_without_wishes_are_plain_greedy():
    assert Settings().warp(Letters()) == Temperature(0)
    assert Settings(temperature=1, top_k=0, top_p=1, min_p=0, typical=1, eta=0, epsilon=0).warp(Letters()) == Same()


def test_bad_words_are_read_by_their_letters_and_not_by_the_begin_token():
    warp, law = Settings(bad_words=("ac",), temperature=1).warp(Letters()), Law(torch.zeros(V))
    banned = {tuple(text): {*range(V)} - {*support(warp(warp.start(text), law).scores)} for text in ([0, 1], [1], [4])}
    assert banned == {(0, 1): {3}, (1,): {3}, (4,): set()}


def test_min_tokens_holds_back_every_stop_token_and_eos():
    warp = Settings(min_tokens=2, stop_tokens=(5,), temperature=1).warp(Letters())
    law = Law(torch.zeros(V))
    ends = [
        [x for x in range(V) if x not in support(warp(reached(warp, [2, 5], [1] * k), law).scores)] for k in range(3)
    ]
    assert ends == [[2, 5], [2, 5], []]


@named(
    "wrong",
    [
        {"temperature": -0.5},
        {"top_k": -1},
        {"top_p": 1.5},
        {"min_p": 2},
        {"typical": 0},
        {"eta": 1},
        {"epsilon": -1},
        {"top_n_sigma": -1},
        {"repetition_penalty": 0},
        {"frequency_penalty": math.nan},
        {"presence_penalty": math.inf},
        {"no_repeat_ngram_size": -1},
        {"logit_bias": {-4: 1.0}},
        {"logit_bias": [1]},
        {"bad_words": ("",)},
        {"min_tokens": -1},
        {"min_tokens": 300},
        {"max_tokens": 0},
        {"stop": ("",)},
        {"stop": ("\ud800",)},
        {"stop_tokens": 5},
        {"stop_tokens": (-5,)},
        {"ignore_eos": "no"},
        {"seconds": 0},
        {"seconds": math.inf},
        {"seed": -1},
        {"seed": 2**64},
        {"n": 0},
        {"logprobs": -1},
    ],
    ids=str,
)
def test_settings_that_cannot_be_used_cannot_be_made(wrong):
    with pytest.raises(BadRequest, match="expected"):
        Settings(**wrong)


def test_tokens_of_another_model_are_refused():
    for wrong in (Settings(logit_bias={V: 1.0}), Settings(stop_tokens=(V,), min_tokens=1)):
        with pytest.raises(BadRequest, match=f"is {V}; expected a token of this model: 0 to {V - 1}"):
            wrong.warp(Letters())
    with pytest.raises(BadRequest, match="token of this model"):
        Settings(stop_tokens=(V,)).stop_rule(Letters())


def test_settings_from_lists_are_settings_from_tuples():
    assert Settings(stop="end", bad_words="word") == Settings(stop=("end",), bad_words=("word",))
    assert Settings(stop=["a"], stop_tokens=[1], bad_words=["b"]) == Settings(
        stop=("a",), stop_tokens=(1,), bad_words=("b",)
    )


def test_a_prefix_stays_what_it_was_however_others_go_on_from_it():
    first = Prefix.of((1, 2), Same(), 9)
    second = first.then((3,))
    third, other, again = second.then((4, 5)), second.then((6,)), first.then(())
    assert [p.text for p in (third, other, second, first, again.then((7,)))] == [
        (1, 2, 3, 4, 5),
        (1, 2, 3, 6),
        (1, 2, 3),
        (1, 2),
        (1, 2, 7),
    ]
    assert [(len(p), p.left) for p in (third, other, second)] == [(5, 6), (4, 7), (3, 8)]


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 1.7])
def test_a_temperature_alone_comes_down_to_a_temperature(t):
    """So that what a device can do at a temperature is not lost to a warp that does nothing."""
    assert temperature_of(Settings(temperature=t).warp(Letters())) == t
    assert temperature_of(Settings(temperature=t or 1.0, top_k=3).warp(Letters())) is None
