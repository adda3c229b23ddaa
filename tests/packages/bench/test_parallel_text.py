"""ParallelBench's questions in words: how they are read, what is right, and a run of the command."""

from __future__ import annotations

import gzip
import json
from types import SimpleNamespace

import pytest

from unspool.core.errors import BadRequest
from unspool_bench.parallel_text import BEST, alike, covered, is_latin, listed, may_be, measured, questions

ROWS = [
    {
        "task": "waiting_line/copy",
        "input": {
            "context": '["A B", "C D"]',
            "icl_examples": [{"input": {"context": '["E F"]'}, "answer": '["E F"]'}],
        },
        "answer": '["A B", "C D"]',
    },
    {
        "task": "waiting_line/insert_random",
        "input": {"context": '["a", "b"]', "word": "c"},
        "answer": {"input": ["a", "b"], "word": "c", "example": "[]"},
    },
    {"task": "puzzle/sudoku_n4_12", "input": {"sudoku": "0042"}, "answer": "1342\n2431\n4123\n3214"},
    {"task": "puzzle/latin_square_n4", "input": {"size": 2, "symbols": "[x, y]"}, "answer": {"symbols": ["x", "y"]}},
    {"task": "words_to_sentence/easy", "input": {"words": "dog and park"}, "answer": {"words": ["dog", "park"]}},
    {"task": "words_to_sentence/easy_n3", "input": {"words": "dog"}, "answer": {"words": ["dog"]}},
    {
        "task": "paraphrase_summarize/chatgpt-paraphrases",
        "input": {"text": "Is it free?"},
        "answer": {"text": "Is it free?", "examples": "['Does it cost nothing?']"},
    },
]
CONFIG = "".join(f"{row['task']}:\n  prompt: 'About {{{next(iter(row['input']))}}}\\n.'\n" for row in ROWS)


class Telling:
    """A model that tells the right answer if it is told to take its time."""

    def asked(self, text):
        return text

    def encode(self, prompt):
        return prompt

    def generate(self, prompt, settings, method):
        slow = "threshold=2" in method
        text = '["A B", "C D"]' if slow or "park" in prompt else "dog"
        return SimpleNamespace(text=text, tokens=(1,) * 6, trace=SimpleNamespace(forwards={"target": 6 if slow else 2}))


@pytest.fixture
def folder(tmp_path):
    lines = "".join(json.dumps(row) + "\n" for row in ROWS for _ in range(3))
    (tmp_path / "tasks.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "task_config.all.yaml").write_text(CONFIG)
    return tmp_path


def test_questions_are_read_with_their_examples_and_scored(folder):
    asked = questions(folder, (), 2)
    assert [question.task for question in asked] == [
        row["task"] for row in ROWS if "_n3" not in row["task"] for _ in "12"
    ]
    copy, random, sudoku, latin, words, other = asked[::2]
    assert [turn["role"] for turn in copy.messages] == ["user", "assistant", "user"]
    assert copy.messages[0]["content"] == 'About ["E F"]\n.'
    assert copy.prompt == 'About ["A B", "C D"]\n.'
    right = {
        copy: 'Here: ["A B", "C D"]',
        random: '["a", "c", "b"]',
        sudoku: "1342 2431 4123 3214",
        latin: "x,y\ny,x",
        words: "Dogs like parks.",
    }
    for question, text in right.items():
        assert question.score(text) == 1
        assert question.score("no") == 0
    assert 0 < other.score("Does it cost money?") < 1
    assert other.score("Is it free?") == 0
    assert {question.task for question in questions(folder, ("easy_n3", "copy"), 5)} == {
        "words_to_sentence/easy_n3",
        "waiting_line/copy",
    }


def test_what_random_changes_may_give():
    before = ["a", "b", "c"]
    assert may_be(["a", "c", "b"], before, "", "shuffle")
    assert not may_be(before, before, "", "shuffle")
    assert may_be(["a", "c"], before, "", "remove")
    assert not may_be(["c", "a"], before, "", "remove")
    assert may_be(["a", "d", "c"], before, "d", "replace")
    assert not may_be(["a", "b", "c", "d", "d"], before, "d", "insert")
    assert may_be(["a", "b", "c", "d"], before, "d", "insert")
    assert not may_be(None, before, "d", "insert")
    assert listed("say [not] a list") is None
    assert listed('["a", "b"') is None
    assert is_latin("ab ba", "ab")
    assert not is_latin("ab ab", "ab")
    assert covered("The dogs run", ["dog", "cat"]) == 0.5
    assert alike("a b", "c", ["a b", "d"]) == 1


def test_the_best_threshold_of_each_question_is_the_fastest_that_does_best(folder):
    slow, fast = "confident:threshold=2", "confident:threshold=0.1"
    told = []
    found = measured(Telling(), questions(folder, ("copy", "easy"), 2), [slow, fast], None, lambda: told.append(1))
    assert found["waiting_line/copy"] == {
        slow: {"score": 1, "tokens_per_forward": 1, "questions": 2},
        fast: {"score": 0, "tokens_per_forward": 3, "questions": 2},
        BEST: {"score": 1, "tokens_per_forward": 1, "questions": 2},
    }
    easy = found["words_to_sentence/easy"]
    assert easy[BEST] == easy[fast]  # both are wrong, and it is faster
    assert len(told) == 8


def test_a_folder_without_questions_is_refused(tmp_path, folder):
    with pytest.raises(BadRequest, match="no questions of chess"):
        questions(folder, ("chess",), 1)
    with pytest.raises(BadRequest, match=r"has no tasks\.jsonl\.gz"):
        questions(tmp_path / "none", (), 1)
