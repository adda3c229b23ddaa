"""What answers are worth: programs by their tests, sums by their number, instructions by what a text can show."""

import gzip
import json
import os
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from unspool.core.errors import BadRequest
from unspool_bench.code import MBPP, HumanEval, code_of, read_humaneval, read_mbpp
from unspool_bench.instructions import CHECKS, Instructed, read_instructed, sentences
from unspool_bench.sandbox import Sandbox, SandboxLimits
from unspool_bench.sums import last, marked, read_sums, solved, sum_of

SANDBOX = Sandbox(SandboxLimits(seconds=10))

# Made for these tests, in the form of the data sets.
HALF = {
    "task_id": "Own/0",
    "prompt": 'def near(a, b):\n    return abs(a - b) < 1e-6\n\n\ndef half(x):\n    """ Half of x. """\n',
    "entry_point": "half",
    "canonical_solution": "    return x / 2\n",
    "test": "def check(candidate):\n    for x in range(4):\n        assert near(candidate(2 * x), x)\n",
}
HEIGHT = {
    "task_id": 7,
    "text": "Write a function to find the height of a tree.",
    "code": "import sys\nPLAIN = '\\w'\nclass Node:\n    def __init__(self, *kids):\n        self.kids = kids\n"
    "def height(node):\n    return 1 + max(map(height, node.kids), default=0)\ndef sum(a, b):\n    return a + b",
    "test_setup_code": "root = Node(Node(), Node(Node()))",
    "test_list": ["assert height(root) == 3", "assert height(Node(Node())) == 2", "assert sum(sys.maxsize, -1) > 0"],
}


@pytest.fixture(scope="module", autouse=True)
def walls():
    try:
        SANDBOX.run("")
    except BadRequest as error:
        pytest.skip(f"no walls here: {error}")


if not sys.platform.startswith("linux"):
    pytest.skip("the sandbox is Linux's", allow_module_level=True)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("    return x / 2\n", True),
        ("    return x // 3\n", False),
        ("Here it is:\n```python\ndef half(x):\n    return x * 0.5\n```\nDone. ```x```", True),
        ("```\ndef near(a, b):\n    return True\ndef half(x):\n    return 0\n```", False),  # it moves the goal
        ("    return (", False),
        ("", False),
    ],
)
def test_a_completion_is_worth_what_its_tests_say(answer, right):
    assert HumanEval.of(HALF).case(answer).tried(SANDBOX).passed is right


def test_objects_of_the_program_stay_there_and_can_be_passed_on():
    problem = MBPP.of(HEIGHT)
    assert problem.case(problem.solution).tried(SANDBOX).passed
    flat = problem.solution.replace("1 + max", "2 + 0 * max")
    assert problem.case(flat).tried(SANDBOX).outcome == "failed"


def test_an_unclosed_fence_holds_the_rest():
    assert code_of("text\n```python\nx = 1\n") == "x = 1\n"
    assert code_of("x = 1") == "x = 1"


def test_files_of_the_data_sets_are_read(tmp_path):
    for name, text in (
        ("he", json.dumps(HALF)),
        ("mbpp", json.dumps(HEIGHT)),
        ("hand", json.dumps([{k: v for k, v in HEIGHT.items() if k != "text"} | {"prompt": "Write."}])),
    ):
        with gzip.open(tmp_path / name, "wt") as file:
            file.write(text)
    assert read_humaneval(tmp_path / "he") == [HumanEval.of(HALF)]
    assert read_mbpp(tmp_path / "mbpp") == [MBPP.of(HEIGHT)]
    assert read_mbpp(tmp_path / "hand")[0].text == "Write."
    assert "assert height(root) == 3" in MBPP.of(HEIGHT).prompt


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("so 3 + 4 = 7\n#### 7", "7"),
        ("#### 5\nno: #### $1,234.50.", "1234.5"),
        ("#### -3 apples and 9 pears", "-3"),
        ("#### none", None),
        ("7", None),
    ],
)
def test_a_marked_number_is_found(text, number):
    assert marked(text) == (None if number is None else Decimal(number))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("She has 3 left, so the answer is 12.", "12"),
        ("It costs $1,000,000.", "1000000"),
        ("between 5-7", "7"),
        ("from 2 to −4 degrees", "-4"),
        ("that is .5 of it", "0.5"),
        ("on floor B2", None),
        ("none", None),
    ],
)
def test_the_last_number_is_found(text, number):
    assert last(text) == (None if number is None else Decimal(number))


def test_a_sum_is_solved_by_its_value():
    problem = sum_of("How many?", "He has 2*3=<<2*3=6>>6.\n#### 6")
    assert problem.worked == "He has 2*3=6.\n#### 6"
    assert solved("The answer is 6.00.", problem)
    assert solved("#### 6\nThat took 5 minutes.", problem)
    assert not solved("#### 60", problem)
    with pytest.raises(ValueError, match="####"):
        sum_of("How many?", "six")


FOLLOWED = [  # kind, what it is given, a text that follows, one that does not
    (
        "change_case:capital_word_frequency",
        {"capital_relation": "at least", "capital_frequency": 2},
        "I SAY so",
        "i SAY",
    ),
    ("change_case:english_capital", {}, "HELLO, 1.", "HELLo"),
    ("change_case:english_lowercase", {}, "hello, 1.", "Hello"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say it."}, "say it. It.", "I say it."),
    ("combination:two_responses", {}, "a\n******\nb", "a\n******\na"),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[name] of [place]", "[name]"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye.\nP.P.S. more", "Bye.\nP.S. more"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\nP. S. more", "Bye. PS"),
    ("detectable_format:constrained_response", {}, "Well: My answer is no.", "No."),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "{a: 1}"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "PART", "num_sections": 2},
        "PART 1 a PART 2",
        "PART 1",
    ),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n  - b", "* a\n* b\n* c"),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*a* and **b**", "**a** * *"),
    ("detectable_format:title", {}, "<<A title>>\ntext", "<< >>"),
    ("keywords:existence", {"keywords": ["Owl", "cat"]}, "the owl and a CAT", "the owl"),
    ("keywords:forbidden_words", {"forbidden_words": ["cat"]}, "a category", "a Cat."),
    ("keywords:frequency", {"relation": "less than", "keyword": "cat", "frequency": 2}, "a cat", "cat Cat"),
    ("keywords:letter_frequency", {"let_relation": "at least", "letter": "A", "let_frequency": 2}, "aA", "a"),
    ("language:response_language", {"language": "th"}, "สวัสดีชาวโลก ok", "hello"),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a\n***\n***\nb"),
    (
        "length_constraints:number_sentences",
        {"relation": "at least", "num_sentences": 2},
        "One. Two",
        "Dr. No is here.",
    ),
    ("length_constraints:number_words", {"relation": "less than", "num_words": 3}, "two words", "now three words"),
    ("punctuation:no_comma", {}, "a b", "a, b"),
    ("startend:end_checker", {"end_phrase": "The end."}, 'So.\n"the end."', "The end. Or not"),
    ("startend:quotation", {}, ' "all of it" ', '"not" all'),
]
THIRD = {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "weekend"}
FOLLOWED.append(("length_constraints:nth_paragraph_first_word", THIRD, 'a\n\n"Weekend, b', "weekend\n\nb"))


@pytest.mark.parametrize(("kind", "given", "good", "bad"), FOLLOWED, ids=[row[0] for row in FOLLOWED])
def test_an_instruction_is_followed_or_not(kind, given, good, bad):
    assert CHECKS[kind](good, given) is True
    assert CHECKS[kind](bad, given) is False


def test_every_kind_is_tested():
    assert {row[0] for row in FOLLOWED} == set(CHECKS)


def test_a_language_that_a_script_does_not_tell_is_not_judged():
    prompt = Instructed(1, "", (("language:response_language", {"language": "de"}), ("punctuation:no_comma", {})))
    assert prompt.strict("Guten Tag") == (None, True)
    assert prompt.strict("Добрый день") == (False, True)
    assert prompt.strict(" ") == (False, False)


def test_loose_forgives_an_opening_line_and_asterisks():
    prompt = Instructed(1, "", (("startend:quotation", {}), ("startend:end_checker", {"end_phrase": "the end"})))
    text = 'Sure! Here it is:\n"and so on, **the end**"'
    assert prompt.strict(text) == (False, False)
    assert prompt.loose(text) == (True, True)


def test_sentences_end_where_people_end_them():
    assert sentences('Mr. Fox ran 3.5 miles! "Why?" he asked... Nobody knew.') == 4
    assert sentences("no end") == 1
    assert sentences("") == 0


DATA = os.environ.get("UNSPOOL_DATA")


@pytest.mark.slow
@pytest.mark.skipif(DATA is None, reason="UNSPOOL_DATA names no folder with the data sets")
def test_every_model_solution_passes_and_every_file_is_read():
    data = Path(DATA)
    problems = [*read_humaneval(data / "humaneval/HumanEval.jsonl.gz"), *read_mbpp(data / "mbpp/mbpp.jsonl.gz")]
    assert len(problems) > 700
    assert [p.task for p in problems if not p.case(p.solution).tried(SANDBOX).passed] == []
    sums = read_sums(data / "gsm8k/test.jsonl.gz")
    assert all(solved(problem.worked, problem) for problem in sums)
    for prompt in read_instructed(data / "ifeval/input_data.jsonl"):
        assert len(prompt.strict("A text.")) == len(prompt.instructions)
