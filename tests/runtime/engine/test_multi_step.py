"""How many tokens a device, or the host for one request alone, writes before anybody looks."""

import math
from types import SimpleNamespace

import pytest
from ticking import EACH, START, Timed
from toy import Toy, logits_of

from unspool.core.asks import Write
from unspool.core.chance import Philox
from unspool.core.errors import BadScores
from unspool.core.stop import Stop
from unspool.core.warp import Prefix, Same, Temperature
from unspool.rules.decode import plain
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.engine.engine import Engine
from unspool.runtime.engine.model_runner import BRIEF, GLANCE, LONGEST, MultiStep

SAME = Same()
DEVICES = {"target": SimpleNamespace(can_write=lambda write: write.prefix.warp is SAME)}


def job(patience=math.inf, first=0.0, writes=True, warp=SAME):
    ask = Write(Prefix.of((1,), warp), Philox(0))
    return SimpleNamespace(patience=patience, writes=writes, ask=ask, trace=SimpleNamespace(seconds_first=first))


@pytest.mark.parametrize(("held", "mixed", "most"), [(False, False, LONGEST), (False, True, BRIEF), (True, False, 1)])
def test_who_waits_for_a_forward_makes_it_brief(held, mixed, most):
    steps = MultiStep(DEVICES)
    steps.plan(held, mixed)
    assert steps.tokens([job()]) == most


def test_nobody_who_looks_on_waits_longer_than_it_said():
    steps = MultiStep(DEVICES)
    steps.took(0.32, 32)
    assert steps.tokens([job(0.1)]) == 10
    assert steps.tokens([job(0.1), job(0.05), job()]) == 5
    assert steps.tokens([job(1e-9)]) == 1
    assert steps.tokens([job(0.1), job(0.1, first=None)]) == 1


def test_only_who_writes_on_a_device_goes_on():
    steps = MultiStep(DEVICES)
    assert steps.takes(job(), "target")
    assert not steps.takes(job(), "draft")
    assert not steps.takes(job(writes=False), "target")
    assert not steps.takes(job(warp=Temperature(0.5)), "target")  # of which this device knows nothing


# ---- the host, for a greedy request that is alone

GREEDY = Temperature(0.0)
PROMPT, TOKENS = (0, 1, 2), 12


def likeliest(count, prompt=PROMPT, vocab=5):
    text = list(prompt)
    while len(text) < len(prompt) + count:
        text.append(int(logits_of(tuple(text), vocab).argmax()))
    return tuple(text[len(prompt) :])


def engine_of(clock=None, room=200):
    model = CachedModel(Toy(room=room)) if clock is None else Timed(Toy(room=room))
    model.clock = clock
    return Engine({"target": model}), model


def submitted(engine, warp=GREEDY, laws=False, prompt=PROMPT, stop=None, **given):
    return engine.submit(plain(), prompt, Philox(3), warp, stop or Stop(most=TOKENS), laws=laws, **given)


def steps_of(engine):
    """In how many steps it ends."""
    steps = 1
    while engine.step():
        steps += 1
    return steps


def test_a_greedy_request_alone_is_written_in_few_steps(clock):
    engine, model = engine_of()
    job = submitted(engine)
    assert steps_of(engine) <= 3
    assert job.result().tokens == likeliest(TOKENS)
    assert model.network.forwards == job.trace.forwards["target"] == TOKENS
    assert model.network.computed == job.trace.rows["target"] == len(PROMPT) + TOKENS - 1


def test_the_host_looks_up_when_so_much_time_has_passed(clock):
    engine, _ = engine_of(clock)
    job = submitted(engine)
    most = math.ceil(GLANCE / (START + EACH))
    came, more = [], True
    while more:
        before = len(job.tokens)
        more = engine.step()
        came.append(len(job.tokens) - before)
    assert max(came) == most > 1
    assert job.result().tokens == likeliest(TOKENS)


@pytest.mark.parametrize(
    "given", [{"warp": Temperature(0.7)}, {"warp": Same()}, {"laws": True}, {"logprobs": 2}], ids=str
)
def test_who_draws_or_is_looked_at_is_written_token_by_token(given, clock):
    engine, _ = engine_of()
    job = submitted(engine, **given)
    assert steps_of(engine) >= TOKENS
    assert len(job.result().tokens) == TOKENS


def test_several_share_their_forwards(clock):
    engine, model = engine_of()
    prompts = [(0, 1, 2), (3, 1)]
    jobs = [submitted(engine, prompt=prompt) for prompt in prompts]
    engine.run()
    assert [job.result().tokens for job in jobs] == [likeliest(TOKENS, prompt) for prompt in prompts]
    assert model.network.forwards == TOKENS


def test_who_comes_while_another_is_written_shares_its_forwards_from_then_on(clock):
    engine, model = engine_of(clock)
    first = submitted(engine)
    while len(first.tokens) < 4:
        engine.step()
    before = model.network.forwards
    second = submitted(engine, prompt=(3, 1))
    engine.run()
    assert first.result().tokens == likeliest(TOKENS)
    assert second.result().tokens == likeliest(TOKENS, (3, 1))
    assert model.network.forwards == before + TOKENS


def test_nothing_is_computed_behind_an_end(clock):
    end = likeliest(5)[4]
    first = likeliest(5).index(end)
    engine, model = engine_of()
    job = submitted(engine, stop=Stop(frozenset({end}), most=TOKENS))
    engine.run()
    assert job.result().reason == "token"
    assert model.network.forwards == first + 1


class Breaking(CachedModel):
    """A model whose scores are broken from some forward on."""

    def score(self, asked):
        if self.network.forwards >= 5:
            raise BadScores("broken")
        return super().score(asked)


def test_what_was_written_before_a_failure_is_handed_out(clock):
    engine = Engine({"target": Breaking(Toy(room=200))})
    job = submitted(engine)
    engine.run()
    assert isinstance(job.error, BadScores)
    assert tuple(job.tokens) == likeliest(5)


class Interrupted(CachedModel):
    """A model in whose sixth forward somebody presses Ctrl-C."""

    def score(self, asked):
        if self.network.forwards >= 5:
            raise KeyboardInterrupt
        return super().score(asked)


def test_what_was_written_before_an_interrupt_is_handed_out(clock):
    engine = Engine({"target": Interrupted(Toy(room=200))})
    job = submitted(engine)
    with pytest.raises(KeyboardInterrupt):
        engine.run()
    assert tuple(job.tokens) == likeliest(5)
    assert tuple(token for emit in job.emitted for token in emit.tokens) == likeliest(5)


def test_other_models_of_the_request_have_what_was_written(clock):
    models = {name: CachedModel(Toy(room=200)) for name in ("target", "draft")}
    engine = Engine(models)
    job = submitted(engine)
    while engine.step():
        texts = {tuple(session.leaves[0].tokens) for session in job.sessions.values()}
        assert len(texts) <= 1
    assert job.result().tokens == likeliest(TOKENS)
