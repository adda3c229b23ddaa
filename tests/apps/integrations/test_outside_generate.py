"""`model.generate(…, custom_generate=…)`: transformers' own text, whatever is drafted, in its batches and streams."""

import threading

import pytest
import torch
from patience import PATIENCE
from prompts import PROMPTS
from repository import ROOT

transformers = pytest.importorskip("transformers")

from unspool.api.diverge import divergence  # noqa: E402
from unspool.apps.integrations import custom_generate  # noqa: E402
from unspool.core.errors import BadRequest  # noqa: E402
from unspool.models.weights import open_checkpoint  # noqa: E402

VOCAB = 48


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Matrices this small are slower on several threads, and much slower beside other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tiny():
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        initializer_range=0.3,  # far from uniform, so that no two ways of computing it disagree
    )
    return transformers.LlamaForCausalLM(config).double().eval()


class Heard(transformers.generation.streamers.BaseStreamer):
    """A streamer that keeps what it is given."""

    def __init__(self):
        self.parts, self.ended = [], False

    def put(self, value):
        self.parts.append(value.tolist())

    def end(self):
        self.ended = True


def prompt(rows=1, length=7):
    return torch.randint(3, VOCAB, (rows, length), generator=torch.Generator().manual_seed(rows * length))


def padded():
    """Three prompts of different lengths, padded on the left."""
    rows = [prompt(1, n)[0] for n in (9, 4, 6)]
    ids = torch.stack([torch.cat((torch.zeros(9 - len(row), dtype=torch.long), row)) for row in rows])
    return {
        "input_ids": ids,
        "attention_mask": (torch.arange(9) >= torch.tensor([[9 - len(row)] for row in rows])).long(),
    }


@pytest.mark.parametrize("spec", ["plain", "suffix", "recycle", "merge", "jacobi"])
def test_greedy_text_is_that_of_transformers(tiny, spec):
    given = {"max_new_tokens": 32, "do_sample": False}
    ours = custom_generate(spec)
    assert torch.equal(tiny.generate(prompt(), **given), tiny.generate(prompt(), **given, custom_generate=ours))
    (trace,) = ours.traces
    if spec == "suffix":
        assert trace.drafted > 0


@pytest.mark.parametrize("eos", [2, [2, 11, 30], None])
def test_a_padded_batch_ends_where_transformers_ends_it(tiny, eos):
    given = {**padded(), "max_new_tokens": 30, "do_sample": False, "eos_token_id": eos}
    theirs = tiny.generate(**given)
    assert torch.equal(theirs, tiny.generate(**given, custom_generate=custom_generate("lookup")))


def test_their_processors_shape_every_token_and_see_the_padding(tiny):
    given = padded() | {
        "max_new_tokens": 24,
        "do_sample": False,
        "repetition_penalty": 1.3,
        "no_repeat_ngram_size": 2,
        "bad_words_ids": [[5, 6], [7]],
        "min_new_tokens": 9,
    }
    theirs = tiny.generate(**given)
    assert torch.equal(theirs, tiny.generate(**given, custom_generate=custom_generate("suffix")))


def test_each_row_has_its_own_allowed_tokens(tiny):
    def allowed(row, tokens):
        return list(range(3 + 10 * row, 13 + 10 * row))

    given = padded() | {"max_new_tokens": 12, "do_sample": False, "prefix_allowed_tokens_fn": allowed}
    theirs = tiny.generate(**given)
    assert torch.equal(theirs, tiny.generate(**given, custom_generate=custom_generate("suffix")))


def test_torchs_seed_decides_a_sampled_text_whatever_is_drafted(tiny):
    def sample(spec, seed):
        torch.manual_seed(seed)
        given = {"do_sample": True, "temperature": 0.9, "top_k": 20, "top_p": 0.95, "num_return_sequences": 3}
        return tiny.generate(prompt(), max_new_tokens=24, **given, custom_generate=custom_generate(spec))

    first = sample("plain", 3)
    assert torch.equal(first, sample("suffix", 3))
    assert not torch.equal(first, sample("suffix", 4))
    assert len({tuple(row) for row in first.tolist()}) == 3


def test_a_streamer_hears_the_prompt_and_every_token(tiny):
    plain, ours = Heard(), Heard()
    given = {"max_new_tokens": 20, "do_sample": False}
    tiny.generate(prompt(), **given, streamer=plain)
    tiny.generate(prompt(), **given, custom_generate=custom_generate("suffix", streamer=ours))
    assert ours.parts == plain.parts
    assert ours.ended


def test_a_streamer_of_a_batch_hears_columns_with_padding(tiny):
    plain, ours = Heard(), Heard()
    given = padded() | {"max_new_tokens": 20, "do_sample": False, "eos_token_id": [2, 11, 30]}
    theirs = tiny.generate(**given, streamer=plain)
    tiny.generate(**given, custom_generate=custom_generate("suffix", streamer=ours))
    assert len({tuple(row).index(0, 9) if 0 in row[9:] else 29 for row in theirs.tolist()}) > 1  # they end apart
    assert ours.parts == plain.parts


class EndsWith(transformers.StoppingCriteria):
    def __init__(self, tokens):
        self.tokens = torch.tensor(tokens)

    def __call__(self, input_ids, scores, **kwargs):
        return torch.isin(input_ids[:, -1], self.tokens)


@pytest.mark.parametrize("eos", [2, None])
def test_stopping_criteria_cut_where_they_first_hold(tiny, eos):
    given = padded() | {"max_new_tokens": 25, "do_sample": False, "eos_token_id": eos}
    free = tiny.generate(**given)
    criteria = transformers.StoppingCriteriaList([EndsWith(free[:, 15].tolist())])
    theirs = tiny.generate(**given, stopping_criteria=criteria)
    assert theirs.shape[1] < free.shape[1]
    ours = tiny.generate(**given, stopping_criteria=criteria, custom_generate=custom_generate("suffix"))
    assert torch.equal(theirs, ours)


def test_scores_and_logits_are_returned_if_asked_for(tiny):
    given = {"max_new_tokens": 12, "do_sample": False, "repetition_penalty": 1.2, "return_dict_in_generate": True}
    given |= {"output_scores": True, "output_logits": True}
    theirs = tiny.generate(prompt(), **given)
    ours = tiny.generate(prompt(), **given, custom_generate=custom_generate("suffix"))
    assert torch.equal(theirs.sequences, ours.sequences)
    for name in ("scores", "logits"):
        assert len(ours[name]) == len(theirs[name])
        for a, b in zip(ours[name], theirs[name], strict=True):
            torch.testing.assert_close(a.float(), b.float(), atol=1e-4, rtol=1e-4)


def test_scores_of_a_padded_batch_have_a_row_for_those_that_ended(tiny):
    given = padded() | {"max_new_tokens": 20, "do_sample": False, "eos_token_id": [2, 11, 30]}
    out = tiny.generate(
        **given, return_dict_in_generate=True, output_scores=True, custom_generate=custom_generate("suffix")
    )
    assert len(out.scores) == out.sequences.shape[1] - 9
    chosen = torch.stack([step.argmax(-1) for step in out.scores], 1)
    assert torch.equal(chosen, out.sequences[:, 9:])


def test_a_draft_model_speaks_through_chain(tiny):
    ours = custom_generate("chain", draft=tiny)
    given = {"max_new_tokens": 24, "do_sample": False}
    assert torch.equal(tiny.generate(prompt(), **given), tiny.generate(prompt(), **given, custom_generate=ours))
    assert ours.traces[0].draft_acceptance_rate == 1.0
    with pytest.raises(BadRequest, match="draft model"):
        custom_generate("chain")
    with pytest.raises(BadRequest, match="asks a third model, which drafts for the second"):
        custom_generate("escalate + block", draft=tiny)
    composed = custom_generate("chain:depth=2 + block", draft=tiny)
    assert torch.equal(tiny.generate(prompt(), **given), tiny.generate(prompt(), **given, custom_generate=composed))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_beams": 3}, "beam:width"),
        ({"output_hidden_states": True, "return_dict_in_generate": True}, "output_hidden_states"),
        ({"guidance_scale": 2.0}, "guidance_scale"),
        ({"attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1, 0]])}, "pad on the left"),
        ({"position_ids": torch.arange(7)[None] + 3}, "position_ids"),
    ],
)
def test_what_cannot_be_had_is_refused(tiny, given, said):
    with pytest.raises(BadRequest, match=said):
        tiny.generate(prompt(), max_new_tokens=4, do_sample=False, **given, custom_generate=custom_generate("plain"))


def test_a_text_longer_than_the_cache_so_far_gets_a_larger_one(tiny):
    ours = custom_generate("suffix")
    for length, most in ((5, 4), (60, 40)):
        given = {"max_new_tokens": most, "do_sample": False}
        text = prompt(2, length)
        assert torch.equal(tiny.generate(text, **given), tiny.generate(text, **given, custom_generate=ours))


def test_a_text_ends_where_the_context_does(tiny):
    ours = custom_generate("suffix")
    text = prompt(1, 250)
    given = {"max_new_tokens": 40, "do_sample": False, "eos_token_id": None}
    assert tiny.generate(text, **given, custom_generate=ours).shape[1] == tiny.config.max_position_embeddings


def test_the_code_of_the_page_runs(tiny, capsys):
    page = (ROOT / "docs/elsewhere.md").read_text()
    code = next(block for block in page.split("```python\n")[1:] if "custom_generate" in block).split("```")[0]
    exec(code, {"model": tiny, "inputs": padded()})
    assert "forwards" in capsys.readouterr().out


def test_auto_measures_and_writes_the_same(tiny):
    given = {"max_new_tokens": 12, "do_sample": False}
    ours = custom_generate("auto")
    assert torch.equal(tiny.generate(prompt(), **given), tiny.generate(prompt(), **given, custom_generate=ours))


def test_the_native_runtime_writes_the_same_if_it_is_chosen(reference, smollm2_fp32):
    text = torch.tensor([smollm2_fp32.encode([{"role": "user", "content": PROMPTS[9]}])])
    given = {"attention_mask": torch.ones_like(text), "max_new_tokens": 8, "do_sample": False}
    ours = custom_generate("suffix", native=smollm2_fp32)
    assert torch.equal(reference.generate(text, **given), reference.generate(text, **given, custom_generate=ours))


# ---- the default model


@pytest.fixture(scope="module")
def reference(smollm2_path):
    """The default model as transformers runs it; the weights from our reader, which takes a tenth of its time."""
    file = open_checkpoint(smollm2_path)
    shape = file.shape
    config = transformers.LlamaConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.dim,
        intermediate_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.context,
        rms_norm_eps=shape.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    model.to_empty(device="cpu")
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    missing, unknown = model.load_state_dict({name: file.tensor(name) for name in file.names()}, strict=False)
    assert not unknown
    assert set(missing) <= {"lm_head.weight"}  # tied
    model.tie_weights()
    return model.eval()


@pytest.fixture(scope="module")
def tokenizer(smollm2):
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=smollm2.vocabulary._tokenizer, pad_token="<|im_end|>", padding_side="left"
    )


def same_or_near_tie(model, ours, theirs):
    start = next(iter(i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
    if start is None:
        return len(ours) == len(theirs)
    found = divergence(ours[:1], ours[1:], theirs[1:], [lambda text: model(torch.tensor([text])).logits[0, -1].float()])
    return found is None or found.near_tie


def test_the_default_model_streams_the_same_text_into_a_thread(reference, smollm2, tokenizer):
    text = torch.tensor([smollm2.encode([{"role": "user", "content": PROMPTS[9]}])])
    given = {"attention_mask": torch.ones_like(text), "max_new_tokens": 24, "do_sample": False}
    theirs = reference.generate(text, **given)[0, text.shape[1] :]
    streamer = transformers.TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=PATIENCE)
    ours = custom_generate("suffix", streamer=streamer)
    call = threading.Thread(target=reference.generate, args=(text,), kwargs={**given, "custom_generate": ours})
    call.start()
    heard = list(streamer)
    call.join()
    assert len([part for part in heard if part]) > 3
    assert "".join(heard) == tokenizer.decode(theirs)
    assert ours.traces[0].forwards["target"] < len(theirs)


@pytest.mark.slow
def test_the_greedy_text_of_24_prompts_is_that_of_transformers(reference, smollm2, tokenizer):
    texts = [smollm2.vocabulary.chat([{"role": "user", "content": p}]) for p in PROMPTS]
    ours = custom_generate("suffix")
    for start in range(0, 24, 4):
        rows = tokenizer(texts[start : start + 4], return_tensors="pt", padding=True)
        given = dict(rows) | {"max_new_tokens": 48, "do_sample": False}
        alone = reference.generate(**given)
        mine = reference.generate(**given, custom_generate=ours)
        for i, (a, b) in enumerate(zip(mine.tolist(), alone.tolist(), strict=True)):
            skip = int((rows["attention_mask"][i] == 0).sum())
            assert same_or_near_tie(reference, a[skip:], b[skip:]), PROMPTS[start + i]
