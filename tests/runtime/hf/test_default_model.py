"""The default model, natively and through transformers: the same logits, the same texts, alone and in company."""

from functools import cache

import pytest
import torch
from contracts import exercise
from decoders import Beam
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from prompts import PROMPTS

from unspool.api.diverge import divergence, passes_of
from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.core.chance import Philox
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING
from unspool.core.warp import Temperature
from unspool.rules.decode import Speculate, plain
from unspool.rules.draft import Lookup
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine

transformers = pytest.importorskip("transformers")


def chat(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


@pytest.fixture(scope="module")
def reference(smollm2_path):
    """The same file as transformers reads it, in fp32."""
    gguf = pytest.importorskip("gguf")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("GGUFReader", "get_tensor_name_map"):  # it reads the file twice, and makes the map 397 times
            patch.setattr(gguf, name, cache(getattr(gguf, name)))
        model = transformers.AutoModelForCausalLM.from_pretrained(
            smollm2_path.parent, gguf_file=smollm2_path.name, dtype=torch.float32
        )
    return model.eval()


@pytest.fixture(scope="module")
def hf(reference, smollm2_fp32):
    """The default model in our transformers runtime."""
    from unspool.runtime.hf.load import load_hf

    return LM("smollm2 (transformers)", load_hf(reference, torch.float32, "cpu"), smollm2_fp32.vocabulary)


def logits(model, text: tuple[int, ...]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([text])).logits[0].float()


@pytest.mark.slow
@pytest.mark.parametrize("which", ["smollm2", "hf"])
def test_sessions_of_the_default_model_keep_their_contract(which, request):
    lm = request.getfixturevalue(which)
    memo: dict[tuple[int, ...], torch.Tensor] = {}

    def scratch(text: tuple[int, ...]) -> torch.Tensor:
        if text not in memo:
            lm.model.forget()
            session = lm.model.open(text)
            memo[text] = lm.model.score([ScoreRequest(session, NOTHING)])[0].leaf[0].scores
            session.close()
        return memo[text]

    @given(st.data())
    @settings(
        max_examples=6,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(data):
        exercise(data, lm.model, scratch, tolerance=1e-3, steps=4, vocab=40, longest=4)

    check()


@pytest.mark.slow  # tests/runtime/network/test_llama.py holds them against each other every time, with tensors of ours
def test_native_logits_equal_those_of_transformers(smollm2_fp32, hf, reference, record_property):
    worst = 0.0
    for prompt in PROMPTS[:3]:
        text = smollm2_fp32.encode(chat(prompt))
        want = logits(reference, text)[-1]
        for lm in (smollm2_fp32, hf):
            session = lm.model.open(text)
            got = lm.model.score([ScoreRequest(session, NOTHING)])[0].leaf[0].scores
            session.close()
            worst = max(worst, float((got - want).abs().max()))
    record_property("max_logit_difference", worst)
    print(f"max |Δlogit| = {worst:.2e}")
    assert worst <= 1e-3


@pytest.mark.slow
def test_native_greedy_text_is_that_of_transformers(smollm2_fp32, reference):
    """One forward over prompt and text shows every choice transformers would make; the slow test below writes more."""
    outputs = smollm2_fp32.batch([chat(p) for p in PROMPTS[::5]], Settings(max_tokens=16))
    for prompt, output in zip(PROMPTS[::5], outputs, strict=True):
        text = smollm2_fp32.encode(chat(prompt))
        choices = logits(reference, text + output.tokens)[len(text) - 1 : -1].argmax(-1).tolist()
        passes = [*passes_of(smollm2_fp32.model), lambda whole: logits(reference, whole)[-1]]
        at = next((i for i, (a, b) in enumerate(zip(output.tokens, choices, strict=True)) if a != b), None)
        if at is not None:
            found = divergence(text, output.tokens[: at + 1], (*output.tokens[:at], choices[at]), passes)
            assert found is not None
            assert found.near_tie, f"{prompt!r}: {found}"


@pytest.mark.slow
def test_native_greedy_text_is_that_of_transformers_generate(smollm2_fp32, reference):
    for prompt in PROMPTS:
        text = smollm2_fp32.encode(chat(prompt))
        ours = smollm2_fp32.generate(text, Settings(max_tokens=128)).tokens
        with torch.inference_mode():
            theirs = reference.generate(
                torch.tensor([text]),
                attention_mask=torch.ones(1, len(text), dtype=torch.long),
                max_new_tokens=128,
                do_sample=False,
                eos_token_id=sorted(smollm2_fp32.vocabulary.eos),
                pad_token_id=2,
            )[0, len(text) :].tolist()
        passes = [*passes_of(smollm2_fp32.model), lambda whole: logits(reference, whole)[-1]]
        found = divergence(text, ours, theirs, passes)
        assert found is None or found.near_tie, f"{prompt!r}: {found}"


def test_a_mixed_batch_gives_the_same_texts_as_alone(smollm2):
    methods = [plain(), Speculate(Lookup(2, 1, 6)), Beam(2, 8), plain()]
    warps = [Temperature(0.0), Temperature(0.0), Temperature(0.0), Temperature(0.8)]
    texts = [smollm2.encode(chat(p)) for p in (PROMPTS[9], PROMPTS[9], PROMPTS[3], PROMPTS[1])]

    def run(numbers: list[int]):
        engine = Engine(smollm2.models())
        jobs = [engine.submit(methods[i], texts[i], Philox(i), warps[i], Stop(most=8)) for i in numbers]
        engine.run()
        return [job.result() for job in jobs]

    together = run([0, 1, 2, 3])
    smollm2.model.forget()
    assert together == [run([i])[0] for i in range(4)]
    assert smollm2.model.slots.in_use >= 0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_lookup_gives_the_text_of_plain_decoding_for_the_same_seed(smollm2, temperature):
    options = Settings(temperature=temperature, seed=7, max_tokens=20)
    slow = smollm2.generate(chat(PROMPTS[9]), options)
    fast = smollm2.generate(chat(PROMPTS[9]), options, "lookup")
    assert fast.tokens == slow.tokens
    assert fast.text == slow.text
    if temperature == 0:
        assert fast.trace.forwards["target"] < slow.trace.forwards["target"]


def test_streaming_logprobs_samples_and_stops(smollm2):
    options = Settings(temperature=0.9, top_p=0.95, seed=3, max_tokens=9, logprobs=3)
    whole = smollm2.generate(chat(PROMPTS[1]), options)
    stream = list(smollm2.stream(chat(PROMPTS[1]), options))
    assert tuple(event.token for event in stream) == whole.tokens
    assert "".join(event.text for event in stream) == whole.text
    for event in whole.events:
        assert event.logprob <= 0
        assert event.raw_logprob <= 0
        assert len(event.top) == 3
        assert [p for _, p in event.top] == sorted((p for _, p in event.top), reverse=True)
    samples = smollm2.samples(chat(PROMPTS[1]), Settings(temperature=0.9, top_p=0.95, seed=3, max_tokens=9, n=3))
    assert samples[0].tokens == whole.tokens
    assert len({sample.tokens for sample in samples}) == 3
    word = whole.text.split()[2]
    cut = smollm2.generate(chat(PROMPTS[1]), Settings(temperature=0.9, top_p=0.95, seed=3, max_tokens=9, stop=(word,)))
    assert cut.reason == "string"
    assert word not in cut.text
    assert whole.text.startswith(cut.text)
    assert smollm2.model.slots.in_use <= smollm2.model.room


def test_closing_a_stream_frees_its_slots(smollm2):
    smollm2.model.forget()
    stream = smollm2.stream(chat(PROMPTS[0]), Settings(max_tokens=32))
    for _ in range(3):
        next(stream)
    assert smollm2.model.slots.in_use > 0
    stream.close()
    smollm2.model.forget()
    assert smollm2.model.slots.in_use == 0


def test_the_next_turn_of_a_chat_reads_only_what_is_new(smollm2):
    smollm2.model.forget()
    first = chat(PROMPTS[3])
    answer = smollm2.generate(first, Settings(max_tokens=16))
    turns = [*first, {"role": "assistant", "content": answer.text}, {"role": "user", "content": "Thanks."}]
    second = smollm2.generate(turns, Settings(max_tokens=4))
    assert second.trace.rows["target"] < second.trace.prompt
