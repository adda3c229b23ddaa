"""lm-evaluation-harness on our models: likelihoods, answers and scores, on tasks of our own and without a network."""

import json
import math
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from unspool.api.likelihood import NODES, Pair, likelihoods
from unspool.core.errors import BadRequest
from unspool.runtime.cache.cached_model import CachedModel

pytestmark = pytest.mark.usefixtures("one_thread")


def by_hand(text, vocab):
    """log softmax after a text, from the toy network's own hash."""
    from toy import logits_of

    return logits_of(text, vocab).log_softmax(0)


def toy(vocab=5, room=4096, context=None):
    from toy import Toy

    return CachedModel(Toy(vocab, room, context))


def test_likelihoods_are_those_of_each_text_alone():
    pairs = [
        Pair((1, 2), (3, 4, 0)),
        Pair((1, 2), (3, 4, 1)),
        Pair((1, 2), (3,)),
        Pair((4,), (1, 1)),
        Pair((1, 2), (0, 2)),
    ]
    model = toy()
    for pair, found in zip(pairs, likelihoods(model, pairs, together=2), strict=True):
        laws = [by_hand((*pair.context, *pair.continuation[:i]), 5) for i in range(len(pair.continuation))]
        want = sum(float(law[token]) for law, token in zip(laws, pair.continuation, strict=True))
        assert math.isclose(found.logprob, want, abs_tol=1e-9)
        assert found.greedy == all(
            int(law.argmax()) == token for law, token in zip(laws, pair.continuation, strict=True)
        )
    model.forget()
    assert model.slots.in_use == 0


def test_choices_of_one_question_are_one_forward():
    model = toy()
    likelihoods(model, [Pair((1, 2, 3), (token, token)) for token in range(5)])
    assert model.network.forwards == 1
    assert model.network.computed == 3 + 5


def test_a_long_text_is_scored_in_portions():
    tokens = tuple(int(x) for x in torch.randint(5, (2 * NODES + 7,), generator=torch.Generator().manual_seed(1)))
    model = toy(room=2000)
    (found,) = likelihoods(model, [Pair((1,), tokens)])
    want = sum(float(by_hand((1, *tokens[:i]), 5)[token]) for i, token in enumerate(tokens))
    assert math.isclose(found.logprob, want, rel_tol=1e-9)
    assert model.network.forwards == 3


# ---- with the harness

TASK = """
task: own_{kind}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: {kind}
doc_to_text: "{{{{question}}}}"
"""
CHOICE = TASK + 'doc_to_choice: "{{{{choices}}}}"\ndoc_to_target: "{{{{answer}}}}"\nmetric_list:\n  - metric: acc\n'
WRITTEN = (
    TASK
    + 'doc_to_target: "{{{{target}}}}"\ngeneration_kwargs:\n  until: ["\\n"]\n  max_gen_toks: 8\n  do_sample: false\n'
    + "metric_list:\n  - metric: exact_match\n    ignore_case: true\n"
)
QUESTIONS = [
    ("The capital of France is", [" Paris", " banana", " the"], 0, " Paris."),
    ("One, two, three,", [" green", " four"], 1, " four, five, six, seven,"),
    ("The opposite of hot is", [" cold", " purple"], 0, " cold"),
    ("Apples, pears and plums are kinds of", [" stone", " fruit"], 1, " fruit"),
]


@pytest.fixture(scope="module")
def harness():
    pytest.importorskip("lm_eval", reason="pip install 'unspool[lm-eval]'")
    from unspool.apps.integrations import harness

    return harness


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    rows = [{"question": q, "choices": c, "answer": a, "target": t} for q, c, a, t in QUESTIONS]
    (folder / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for kind, text in (("multiple_choice", CHOICE), ("generate_until", WRITTEN)):
        (folder / f"{kind}.yaml").write_text(text.format(kind=kind, data=folder / "own.jsonl"))
    return folder


def test_a_method_that_there_is_not_is_told_before_a_model_is_read(harness):
    with pytest.raises(BadRequest, match="Did you mean 'suffix'"):
        harness.HarnessModel(pretrained="no such model", method="sufix")


def test_two_exact_methods_get_the_same_score(harness, tasks, smollm2, monkeypatch, tmp_path):
    import lm_eval
    from lm_eval.tasks import TaskManager

    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    manager = TaskManager(include_path=str(tasks), include_defaults=False)

    speeds = {}

    def evaluated(method):
        lm = harness.HarnessModel.of(smollm2, method, together=2)
        names = ["own_multiple_choice", "own_generate_until"]
        found = lm_eval.simple_evaluate(model=lm, tasks=names, task_manager=manager, bootstrap_iters=0)
        assert found["config"]["unspool_method"] == method
        assert found["config"]["unspool_seconds"] > 0
        speeds[method] = found["config"]["unspool_tokens_per_forward"]
        answers = [sample["resps"] for sample in found["samples"]["own_generate_until"]]
        return {name: found["results"][name] for name in names}, answers

    plain, answers = evaluated("plain")
    assert plain["own_multiple_choice"]["acc,none"] == 1.0
    assert evaluated("suffix") == (plain, answers)
    assert speeds["suffix"] >= speeds["plain"] > 0.9


def request(*args):
    return SimpleNamespace(args=args)


def test_likelihood_of_choices_is_that_of_the_tokens(harness, smollm2):
    lm = harness.HarnessModel.of(smollm2)
    ((logprob, greedy),) = lm.loglikelihood([request("The capital of France is ", "Paris")])  # the space moves over
    tokens, before = smollm2.encode("The capital of France is Paris"), smollm2.encode("The capital of France is")
    (want,) = likelihoods(smollm2.model, [Pair(before, tokens[len(before) :])])
    assert (logprob, greedy) == (want.logprob, want.greedy)
    ((alone, _),) = lm.loglikelihood([request("", "Paris")])
    assert alone < logprob


def test_rolling_is_the_sum_over_windows(harness, smollm2, monkeypatch):
    lm = harness.HarnessModel.of(smollm2)
    text = "The quick brown fox jumps over the lazy dog."
    (whole,) = lm.loglikelihood_rolling([request(text)])
    tokens = smollm2.encode(text)
    (want,) = likelihoods(smollm2.model, [Pair((lm._first,), tokens)])
    assert math.isclose(whole, want.logprob, rel_tol=1e-6)
    monkeypatch.setattr(smollm2.model, "context", 6)
    (cut,) = lm.loglikelihood_rolling([request(text)])
    assert cut < whole  # less to go by


def test_settings_of_a_task(harness):
    made = harness.settings_of({"until": "\n", "max_gen_toks": 9, "do_sample": True, "top_p": 0.5}, seed=4)
    assert (made.stop, made.max_tokens, made.temperature, made.top_p, made.seed) == (("\n",), 9, 1.0, 0.5, 4)
    assert harness.settings_of({"temperature": 0.7}, 0).temperature == 0  # nothing is drawn unless told
    with pytest.raises(BadRequest, match="num_beams"):
        harness.settings_of({"num_beams": 3}, 0)


@pytest.mark.slow
def test_the_command_line_knows_the_model(harness, tasks, smollm2_path, tmp_path):
    args = f"pretrained={smollm2_path},method=lookup:ngram=2;depth=4"
    command = [sys.executable, "-m", "unspool.apps.integrations", "run", "--model", "unspool", "--model_args", args]
    command += ["--tasks", "own_multiple_choice", "--include_path", str(tasks), "--output_path", str(tmp_path)]
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "own_multiple_choice" in done.stdout
