"""List tasks with exact answers: oracles, closed forms, the benchmark on them, and the model that learnt them."""

import csv
import io
import itertools
import json
import math
import re
import sys
from random import Random
from xml.etree import ElementTree

import pytest
import torch
from repository import ROOT

from unspool.apps.cli import main
from unspool.core.asks import Look
from unspool.core.canvas import HOLE, Canvas
from unspool.core.errors import BadRequest
from unspool.runtime.engine.contracts import Infill, LookRequest
from unspool_bench.alphabet import NUMBER, TASK, VOCAB
from unspool_bench.closed import IDEAL
from unspool_bench.oracle_chain import Markov
from unspool_bench.parallel import Bench, ParallelCell, plans, schedule
from unspool_bench.pupil import WEIGHTS, Pupil
from unspool_bench.round_nats import FilledCanvas
from unspool_bench.schedule import ahead, bound, correlation, outcome, partitions, reached, texts
from unspool_bench.tasks import TASKS, answers, oracle, task

RIGHT = 1e-12


def exact_of(name, n, seed=0):
    return answers(task(name).prompt(n, Random(seed)))


# ---- laws, written once more without any of the machinery


def even(zero, one, n):
    return [y for y in itertools.product((zero, one), repeat=n) if y.count(one) % 2 == 0]


def written_out(name, prompt):
    """Every answer to a prompt with its mass, from the task's description alone."""
    x = prompt[1:]

    def number(token):
        return token - NUMBER

    match name:
        case "copy":
            found = [x]
        case "reverse":
            found = [tuple(reversed(x))]
        case "sort":
            found = [tuple(sorted(x))]
        case "replace_index":
            found = [tuple(x[1] if i == number(x[0]) else y for i, y in enumerate(x[2:]))]
        case "insert_index":
            found = [(*x[2 : 2 + number(x[0])], x[1], *x[2 + number(x[0]) :])]
        case "remove_index":
            found = [tuple(y for i, y in enumerate(x[1:]) if i != number(x[0]))]
        case "replace_random":
            found = [tuple(x[0] if i == j else y for i, y in enumerate(x[1:])) for j in range(len(x) - 1)]
        case "insert_random":
            found = [(*x[1 : 1 + j], x[0], *x[1 + j :]) for j in range(len(x))]
        case "remove_random":
            found = [tuple(y for i, y in enumerate(x) if i != j) for j in range(len(x))]
        case "shuffle":
            found = list(itertools.permutations(x))
        case "parity":
            found = even(x[1], x[2], number(x[0]))
        case "words":
            size = number(x[0])
            found = [x[1 : 1 + size], x[1 + size :]]
        case "chain":
            found = [y for y in itertools.product(x[1:], repeat=number(x[0])) if all(map(int.__ne__, y, y[1:]))]
        case "latin":
            n = len(x)
            rows = list(itertools.permutations(x))
            squares = (sum(square, ()) for square in itertools.product(rows, repeat=n))
            found = [y for y in squares if all(len({*y[c::n]}) == n for c in range(n))]
    return {y: 1 / len(found) for y in found}


@pytest.mark.parametrize("name", TASKS)
def test_conditionals_are_those_of_the_joint_law(name):
    random = Random(1)
    for n in (3,) if name == "latin" else (3, 4, 5):
        prompt = task(name).prompt(n, random)
        exact, law = answers(prompt), written_out(name, prompt)
        assert exact.size == len(next(iter(law)))
        assert all(exact.mass(y) == pytest.approx(p) for y, p in law.items())
        assert exact.mass(tuple(range(40, 40 + exact.size))) == 0
        for _ in range(12):
            answer = random.choice(list(law))
            known = tuple(HOLE if random.random() < 0.6 else x for x in answer)
            fits = {y: p for y, p in law.items() if all(k in (HOLE, x) for k, x in zip(known, y, strict=True))}
            share = torch.zeros(exact.size, VOCAB, dtype=torch.float64)
            for y, p in fits.items():
                for i, x in enumerate(y):
                    share[i, x] += p / sum(fits.values())
            assert (exact.given(known) - share).abs().max() < RIGHT


@pytest.mark.parametrize("name", TASKS)
def test_drawn_answers_are_right(name):
    random = Random(2)
    for n in (3, 4):
        exact = exact_of(name, n)
        assert all(exact.mass(exact.draw(random)) > 0 for _ in range(20))


def test_nothing_fits_what_cannot_be():
    assert exact_of("shuffle", 3).given((40, HOLE, HOLE)) is None
    x = task("shuffle").prompt(3, Random(0))[1:]
    assert exact_of("shuffle", 3).given((x[0], x[0], HOLE)) is None
    bits = task("parity").prompt(2, Random(0))
    assert answers(bits).given((bits[-1], bits[-2])) is None
    assert exact_of("chain", 3).given((*[task("chain").prompt(3, Random(0))[-1]] * 2, HOLE)) is None


def test_forward_backward_through_a_noisy_window():
    chain = Markov(
        5,
        start=(0.2, 0.5, 0.3),
        move=((0.1, 0.6, 0.3), (0.5, 0.0, 0.5), (0.25, 0.25, 0.5)),
        show=((0.7, 0.2, 0.1, 0.0), (0.1, 0.1, 0.2, 0.6), (0.0, 0.5, 0.5, 0.0)),
    )
    law = dict.fromkeys(itertools.product(range(4), repeat=5), 0.0)
    for states in itertools.product(range(3), repeat=5):
        walked = chain.start[states[0]] * math.prod(chain.move[s][t] for s, t in itertools.pairwise(states))
        for y in law:
            law[y] += walked * math.prod(chain.show[s][x] for s, x in zip(states, y, strict=True))
    assert sum(law.values()) == pytest.approx(1)
    assert all(chain.mass(y) == pytest.approx(p, abs=1e-15) for y, p in law.items())
    for known in ((HOLE,) * 5, (HOLE, 3, HOLE, HOLE, 1), (0, HOLE, 2, HOLE, 0), (HOLE, 1, 1, 3, HOLE)):
        share = torch.zeros(5, 4, dtype=torch.float64)
        for y, p in law.items():
            if all(k in (HOLE, x) for k, x in zip(known, y, strict=True)):
                for i, x in enumerate(y):
                    share[i, x] += p
        assert (chain.given(known) - share / share.sum(1, keepdim=True)).abs().max() < RIGHT
    seen = [chain.draw(Random(seed)) for seed in range(300)]
    assert all(law[y] > 0 for y in seen)


def test_a_long_chain_does_not_vanish():
    size = 2000
    laws = Markov.differing(4, size, (0, 1, 2)).given((0, *(HOLE,) * (size - 2), 1))
    assert laws[1].tolist() == pytest.approx([0, 0.5, 0.5, 0])
    assert laws[size // 2].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])


# ---- the oracle as a model


def look(model, prompt, known, **more):
    canvas = Canvas.blank(prompt, len(known))
    canvas = canvas.fill({len(prompt) + i: x for i, x in enumerate(known) if x != HOLE})
    return model.look([LookRequest(None, Look(canvas, **more))])[0]


def test_an_oracle_is_a_model_that_fills_holes():
    prompt = task("replace_random").prompt(3, Random(0))
    new, a, _, c = prompt[1:]
    model = oracle()
    assert isinstance(model, Infill)
    field = look(model, prompt, (HOLE, HOLE, c))
    assert list(field) == [5, 6]
    assert (field[5][new], field[5][a]) == pytest.approx((0.5, 0.5))
    field = look(model, prompt, (HOLE, new, HOLE))
    assert (field[5].best, field[7].best) == (a, c)


def test_a_filled_place_is_told_by_the_others():
    prompt = task("replace_random").prompt(3, Random(0))
    new, a, b, _ = prompt[1:]
    field = look(oracle(), prompt, (a, b, HOLE), at=(5, 7))
    assert field[5][new] == pytest.approx(0.5)  # given b alone
    assert field[7].best == new
    along = look(oracle(), prompt, (a, b, new), along=(5, 6, 7))
    assert [along[i][x] for i, x in ((5, a), (6, b), (7, new))] == pytest.approx([2 / 3, 1 / 2, 1])


def test_after_a_mistake_the_oracle_goes_on_with_what_the_prompt_tells():
    prompt = task("shuffle").prompt(3, Random(0))
    x = prompt[1:]
    field = look(oracle(), prompt, (x[0], x[0], HOLE))
    assert [field[6][y] for y in x] == pytest.approx([1 / 3] * 3)


def test_a_canvas_may_be_cut_but_not_too_long():
    prompt = task("copy").prompt(4, Random(0))
    assert [law.best for law in look(oracle(), prompt, (HOLE, HOLE)).values()] == list(prompt[1:3])
    with pytest.raises(BadRequest, match="9 places after the prompt; its answers have 4"):
        look(oracle(), prompt, (HOLE,) * 9)
    with pytest.raises(BadRequest, match="does not begin with a task"):
        look(oracle(), (3, 4), (HOLE,))
    with pytest.raises(BadRequest, match="is no whole question"):
        look(oracle(), (task("words").token,), (HOLE,))
    with pytest.raises(BadRequest, match="latin cannot have n = 5; expected 2 to 4"):
        task("latin").prompt(5, Random(0))


# ---- closed forms against enumeration


@pytest.mark.parametrize("name", IDEAL)
def test_closed_forms_are_what_enumeration_finds(name):
    ideal = IDEAL[name]
    for n in range(3, 9):
        exact = exact_of(name, n, seed=n)
        assert exact.size == ideal.size(n)
        if name == "shuffle" and n > 5:  # all permutations are alike, so one stands for all
            answer = exact.draw(Random(n))
            for k in range(1, n + 1):
                q = reached(exact, answer, ahead(n, k))
                assert math.factorial(n) * q == pytest.approx(ideal.success(n, k), abs=RIGHT)
                assert -math.log(math.factorial(n) * q) == pytest.approx(ideal.bound(n, k), abs=RIGHT)
            continue
        for k in range(1, exact.size + 1):
            found = outcome(exact, ahead(exact.size, k))
            assert found.success == pytest.approx(ideal.success(n, k), abs=RIGHT), (n, k)
            assert found.bound == pytest.approx(ideal.bound(n, k), abs=RIGHT), (n, k)
            assert found.divergence == pytest.approx(found.bound, abs=RIGHT)  # an ideal model attains the bound
        law = texts(exact)
        assert ideal.information(n) == pytest.approx(correlation(law, range(exact.size)), abs=RIGHT)


def test_known_values():
    assert IDEAL["shuffle"].information(10) == pytest.approx(7.92, abs=0.005)
    assert IDEAL["shuffle"].success(6, 6) == pytest.approx(math.factorial(6) / 6**6)
    assert IDEAL["replace_random"].information(10**6) == pytest.approx(1, abs=1e-5)  # nats
    assert IDEAL["replace_random"].success(500, 500) == pytest.approx((1 - 1 / 500) ** 499)
    for n in (3, 5, 8):  # all in one look
        assert IDEAL["insert_random"].success(n, n + 1) == pytest.approx(math.factorial(n) * 2**n / (n + 1) ** (n + 1))
        assert IDEAL["remove_random"].success(n, n - 1) == pytest.approx(math.factorial(n - 1) * (2 / n) ** (n - 1))
    assert IDEAL["insert_random"].success(5, 6) == pytest.approx(0.082, abs=5e-4)
    assert IDEAL["remove_random"].success(5, 4) == pytest.approx(0.614, abs=5e-4)


@pytest.mark.parametrize("name", ["replace_random", "shuffle", "parity", "chain", "remove_random"])
def test_the_best_schedule_loses_no_more_with_more_looks(name):
    law = texts(exact_of(name, 4))
    size = len(next(iter(law)))
    best = dict.fromkeys(range(1, size + 1), math.inf)
    for partition in partitions(range(size)):
        best[len(partition)] = min(best[len(partition)], bound(law, partition))
    values = [best[steps] for steps in sorted(best)]
    assert all(more <= fewer + RIGHT for fewer, more in itertools.pairwise(values))
    assert values[0] > 0.2
    assert abs(values[-1]) < RIGHT


def test_parity_needs_the_last_bit_alone():
    law = texts(exact_of("parity", 4))
    for partition in partitions(range(4)):
        alone = len(partition[-1]) == 1
        assert bound(law, partition) == pytest.approx(0 if alone else math.log(2), abs=RIGHT)


def test_every_ordered_partition_once():
    found = [tuple(tuple(sorted(part)) for part in partition) for partition in partitions(range(4))]
    assert len(found) == len(set(found)) == 75


# ---- decoding with the oracle


def measured(name, n, method, temperature=1.0, texts=60, model="oracle", k=None, branches=4000):
    models = {"oracle": oracle()} if model == "oracle" else {"pupil": Pupil.load()}
    bench = Bench(models, texts=texts, branches=branches, temperature=temperature)
    return next(bench([ParallelCell(task(name), n, model, method, k)]))


@pytest.mark.parametrize("name", ["replace_random", "insert_random", "remove_random", "shuffle", "parity", "words"])
def test_decoding_gives_the_closed_forms(name):
    for k in (1, 2, 3, 4):
        row = measured(name, 4, schedule(k), k=k)
        assert row.enumerated
        assert row.accuracy == pytest.approx(row.ideal, abs=RIGHT)
        assert row.divergence == pytest.approx(row.bound, abs=RIGHT)
        assert row.forwards == pytest.approx(math.ceil(row.places / k))


def test_latin_squares_are_enumerated():
    row = measured("latin", 2, schedule(2), k=2)
    assert (row.accuracy, row.ideal) == pytest.approx((0.5, 0.5))
    assert row.bound == pytest.approx(math.log(2))
    assert outcome(exact_of("latin", 3), ahead(9, 9)).success == pytest.approx(12 / 3**9)


def test_one_at_a_time_is_always_right_and_tells_what_the_answer_holds():
    for name in ("replace_random", "chain", "latin"):
        row = measured(name, 2, "one")
        assert row.enumerated
        assert row.accuracy == pytest.approx(1)
        assert row.divergence == pytest.approx(0, abs=1e-12)
        entropy = -sum(p * math.log(p) for p in texts(exact_of(name, 2)).values())
        assert row.information == pytest.approx(entropy)  # I = −ln P(answer) on every path


def test_a_threshold_sees_one_replacement_or_none_at_all():
    n = 6
    under, over = (n - 1) / n - 1e-9, (n - 1) / n + 1e-9
    greedy = measured("replace_random", n, f"confident:threshold={under}", temperature=0, texts=10)
    assert (greedy.accuracy, greedy.forwards) == pytest.approx((0, 1))
    careful = measured("replace_random", n, f"confident:threshold={over}", temperature=0, texts=10)
    assert (careful.accuracy, careful.forwards) == pytest.approx((1, n))


def test_greedy_groups_and_ties():
    assert measured("replace_random", 6, schedule(1), temperature=0, texts=10).accuracy == 1
    assert measured("replace_random", 6, schedule(3), temperature=0, texts=10).accuracy == 0
    assert measured("shuffle", 6, schedule(2), temperature=0, texts=10).accuracy == 0
    alone = measured("replace_random", 5, schedule(2), temperature=0, texts=10)  # the last place is
    assert alone.accuracy == 1
    random = Random("0 replace_random 6")  # of the last two, a tie, each takes the lower id
    prompts = [task("replace_random").prompt(6, random) for _ in range(60)]
    right = [min(p[-2:]) < p[1] < max(p[-2:]) for p in prompts]
    assert measured("replace_random", 6, schedule(2), temperature=0).accuracy == pytest.approx(sum(right) / 60)


def test_confident_rules_cannot_see_parity():
    row = measured("parity", 5, "confident:threshold=0.5")
    assert (row.accuracy, row.forwards) == pytest.approx((0.5, 1))
    row = measured("parity", 5, "confident:threshold=0.51")
    assert (row.accuracy, row.forwards) == pytest.approx((1, 5))


def test_too_many_branches_are_drawn_instead():
    row = measured("shuffle", 4, schedule(3), k=3, branches=20, texts=100)
    assert not row.enumerated
    assert row.divergence is None
    assert abs(row.accuracy - row.ideal) < 4 * math.sqrt(row.ideal / 100)
    again = measured("shuffle", 4, schedule(3), k=3, branches=20, texts=100)
    assert again == row  # same seed, same rows


# ---- nats and rounds


def test_rounds_cannot_undercut_the_information():
    assert FilledCanvas((1, 2, 3), 3, (1.0, 1.0, 1.0)).least == 3
    assert FilledCanvas((1, 2, 3), 3, (2.0, 0.5, 0.0)).least == 2
    assert FilledCanvas((1, 2), 2, (0.0, 0.0)).least == 1
    assert FilledCanvas((1, 2), 2, (0.1, 0.2)).information == pytest.approx(0.3)


@pytest.mark.parametrize("method", ["confident:threshold=0.7", "factor", "entropy_bound", "one", "quota:steps=2"])
def test_rows_keep_to_bits_and_rounds(method):
    for name in ("insert_random", "chain"):
        row = measured(name, 3, method, texts=20, branches=200)
        assert row.forwards >= row.least - RIGHT
        assert row.fullest * row.forwards >= row.information - RIGHT


def test_a_threshold_bounds_what_a_round_tells():
    bench = Bench({"oracle": oracle()}, texts=40, temperature=0.0)
    prompts = [task("insert_random").prompt(8, Random(seed)) for seed in range(40)]
    from unspool.recipes.methods import method

    for told in bench._drawn("oracle", method("confident:threshold=0.6"), prompts):
        # a round of sure tokens holds |S|·(−ln τ) at most; a forced one is alone, and greedy takes its best of three
        assert all(nats <= max(9 * -math.log(0.6), math.log(3)) for nats in told.nats)
        assert len(told.nats) <= told.forwards


# ---- the pupil


def test_the_pupil_is_small_and_answers_looks():
    assert WEIGHTS.stat().st_size < 2_000_000
    model = Pupil.load()
    assert isinstance(model, Infill)
    prompts = [task(name).prompt(5, Random(3)) for name in ("copy", "words", "shuffle")]
    looks = [Look(Canvas.blank(p, answers(p).size)) for p in prompts]
    together = model.look([LookRequest(None, each) for each in looks])
    for each, field in zip(looks, together, strict=True):
        alone = model.look([LookRequest(None, each)])[0]
        assert list(field) == each.canvas.holes
        assert (alone.scores.softmax(1) - field.scores.softmax(1)).abs().max() < 1e-5


def test_the_pupil_never_reads_the_place_it_is_asked_about():
    prompt = task("copy").prompt(4, Random(3))
    model = Pupil.load()
    right = look(model, prompt, prompt[1:], at=(6, 7))
    wrong = look(model, prompt, (*prompt[1:3], 31, prompt[4]), at=(7,))
    assert (right[7].p - wrong[7].p).abs().max() < 1e-6
    assert [right[i].best for i in (6, 7)] == list(prompt[2:4])
    along = look(model, prompt, prompt[1:], along=(8, 5))
    assert (along[5].p - look(model, prompt, (HOLE, *prompt[2:]))[5].p).abs().max() < 1e-6


def test_the_pupil_learnt_to_copy_and_nearly_sits_on_the_closed_forms():
    assert measured("copy", 5, schedule(5), model="pupil", k=5).accuracy > 0.9
    for name, k in (("replace_random", 2), ("shuffle", 5)):
        row = measured(name, 5, schedule(k), model="pupil", k=k, texts=150)
        assert abs(row.accuracy - row.ideal) < 4 * math.sqrt(row.ideal * (1 - row.ideal) / 150) + 0.05


def test_weights_that_are_none(tmp_path):
    with pytest.raises(BadRequest, match="does not hold a pupil's weights"):
        Pupil.load(tmp_path / "missing.safetensors")


@pytest.mark.slow
def test_a_lesson_lowers_the_loss_and_repeats_itself():
    from unspool_bench.lesson import Lesson

    lesson = Lesson(steps=12, batch=16, warm=2)
    first, second = lesson.begin(), lesson.begin()
    losses = list(lesson(first))
    assert sum(losses[-3:]) < sum(losses[:3])
    assert list(lesson(second)) == losses
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))


# ---- the command


@pytest.fixture
def here(capsys, monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")

    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["bench", "parallel", *arguments])
        out, err = capsys.readouterr()
        return end.value.code, out, err

    return call


def test_a_table_with_ideal_and_measured_side_by_side(here):
    code, out, err = here("one", "--task", "parity", "--n", "3", "--k", "1,3", "--model", "oracle")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "task n model method tokens/forward accuracy ideal KL bound nats rounds ≥"
    assert lines[1] == "parity 3 oracle quota:steps=1,block=1 1.00 1.000 1.000 0.000 0.000 1.39 2.0"
    assert lines[2] == "parity 3 oracle quota:steps=1,block=3 3.00 0.500 0.500 0.693 0.693 2.08 1.0"
    assert lines[3] == "parity 3 oracle one 1.00 1.000 0.000 1.39 2.0"
    assert len(lines) == 4


def test_rows_as_data_and_as_a_picture(here, tmp_path):
    arguments = ("factor", "--task", "words", "--task", "latin", "--n", "2", "--texts", "5")
    code, out, _ = here(*arguments, "--json", "--svg", str(tmp_path / "a.svg"))
    rows = json.loads(out)
    assert code == 0
    assert {row["model"] for row in rows} == {"oracle", "pupil"}
    assert {row["k"] for row in rows if row["task"] == "latin"} == {None, 1, 2, 4}
    picture = ElementTree.parse(tmp_path / "a.svg").getroot()
    words = {element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert {"words, n = 2", "latin, n = 2", "factor", "tokens per forward"} <= words
    code, out, _ = here(*arguments, "--csv")
    assert [row["accuracy"] for row in csv.DictReader(io.StringIO(out))] == [str(row["accuracy"]) for row in rows]


def test_an_interrupt_leaves_what_was_measured(here, monkeypatch):
    module = sys.modules["unspool_bench.parallel"]
    measure = module.Bench._measured

    def interrupted(self, plan):
        if plan.k == 2:
            raise KeyboardInterrupt
        return measure(self, plan)

    monkeypatch.setattr(module.Bench, "_measured", interrupted)
    code, out, err = here("--task", "copy", "--n", "3", "--model", "oracle")
    assert code == 130
    assert [line.split()[3] for line in out.splitlines()[1:]] == ["quota:steps=1,block=1"]
    assert "interrupted; 1 rows were measured" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--task", "dance"), "no task is called 'dance'; there are: copy"),
        (("confidence",), "no method is called 'confidence'"),
        (("--k", "0,2"), "'0,2' is not a list of numbers from 1 to 16"),
        (("--k", "two"), "'two' is not a list of numbers"),
        (("--n", "9"), "9 is not in the range"),
        (("--json", "--csv"), "--json, --csv and --format exclude each other"),
        (("--svg", "nowhere/at/all.svg"), "does not exist"),
        (("--weights", "nothing.safetensors"), "does not hold a pupil's weights"),
        (("plain", "--task", "copy", "--model", "oracle", "--k", "1"), "plain on copy, n = 6, with the oracle: "),
    ],
)
def test_bad_requests_say_what_to_do(here, arguments, said):
    code, _, err = here(*arguments)
    assert code == 2
    assert said in err
    assert len(err.splitlines()) == 1


def test_plans_do_not_repeat_a_schedule():
    cells = plans([task("copy"), task("latin")], 5, ["oracle"], ["one"], (1, 2, 4, 8, 16))
    assert [plan.k for plan in cells if plan.task.name == "copy"] == [1, 2, 4, 5, None]
    assert [(plan.n, plan.k) for plan in cells if plan.task.name == "latin"][-2:] == [(4, 16), (4, None)]


def test_every_task_has_a_token_of_its_own():
    assert len({each.token for each in TASKS.values()}) == len(TASKS) <= VOCAB - TASK


def test_the_page_shows_what_the_code_prints(capsys):
    page = ROOT / "docs" / "parallel.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"# (.*)", code)
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        assert target.startswith("https://arxiv.org/") or (page.parent / target).exists(), target
    for name in TASKS:
        assert f"`{name}`" in page.read_text("utf-8")
