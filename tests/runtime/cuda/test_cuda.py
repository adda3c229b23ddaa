"""The native runtime on a GPU: the numbers of the CPU, and exactness that holds there too. Runs where there is one."""

import pytest
import torch
from prompts import PROMPTS

import unspool
from unspool.api.diverge import divergence, passes_of
from unspool.api.settings import Settings
from unspool.core.tree import NOTHING
from unspool.runtime.engine.contracts import ScoreRequest

if not torch.cuda.is_available():
    pytest.skip("there is no GPU here", allow_module_level=True)

CHATS = [[{"role": "user", "content": PROMPTS[i]}] for i in (0, 9, 1)]
NOISE = {"fp32": 1e-3, "bf16": 2.0, "fp16": 0.5}  # of logits up to 35, against the CPU in fp32


@pytest.fixture(scope="module", params=NOISE)
def lm(request, smollm2_path):
    return unspool.load(str(smollm2_path), dtype=request.param, device="cuda")


def read(lm, chat):
    session = lm.model.open(lm.encode(chat))
    scores = lm.model.score([ScoreRequest(session, NOTHING)])[0].leaf[0].scores.double().cpu()
    session.close()
    return scores


def test_logits_are_those_of_the_cpu(lm, smollm2_fp32, request):
    worst = max(float((read(lm, chat) - read(smollm2_fp32, chat)).abs().max()) for chat in CHATS)
    assert worst <= NOISE[request.node.callspec.params["lm"]]


def test_lookup_and_batch_give_the_greedy_text(lm):
    alone = [lm.generate(chat, Settings(max_tokens=64)) for chat in CHATS]
    looked_up = [lm.generate(chat, Settings(max_tokens=64), "lookup") for chat in CHATS]
    together = lm.batch(CHATS, Settings(max_tokens=64))
    for chat, plain, *others in zip(CHATS, alone, looked_up, together, strict=True):
        for other in others:
            found = divergence(lm.encode(chat), other.tokens, plain.tokens, passes_of(lm.model))
            assert found is None or found.near_tie, str(found)


def test_warps_and_seeds_work_on_the_device(lm):
    options = Settings(max_tokens=32, temperature=0.8, top_p=0.9, repetition_penalty=1.1, frequency_penalty=0.1, seed=3)
    lm.model.forget()  # a prompt that is read at once and one that is found in the cache are rounded differently
    first = lm.generate(CHATS[2], options)
    lm.model.forget()
    assert lm.generate(CHATS[2], options).tokens == first.tokens
    lm.model.forget()
    assert lm.model.slots.in_use == 0


def test_leaps_give_the_greedy_text_and_leave_nothing_behind(lm):
    for rows in (1, 3):
        lm.model.forget()
        texts = lm.batch(CHATS[:rows], Settings(max_tokens=160), "on_device")
        assert all(text.trace.rounds <= len(text.tokens) for text in texts)
        for chat, text in zip(CHATS, texts, strict=False):
            lm.model.forget()
            plain = lm.generate(chat, Settings(max_tokens=160))
            found = divergence(lm.encode(chat), text.tokens, plain.tokens, passes_of(lm.model))
            assert found is None or found.near_tie, str(found)
    lm.model.forget()
    assert lm.model.slots.in_use == 0
