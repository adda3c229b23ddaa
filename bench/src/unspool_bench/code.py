"""HumanEval and MBPP: what a model is asked, and which program its answer makes, as the data sets define it."""

from __future__ import annotations

import ast
import builtins
import gzip
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .sandbox import Sandbox, Trial

FENCE = re.compile(r"^[ \t]*```[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class TestedProgram:
    """A program to be tried: its text, the tests, what they may use of trusted code, and what they call of it."""

    program: str
    tests: str
    given: str
    names: tuple[str, ...]

    def tried(self, sandbox: Sandbox) -> Trial:
        """How it ends in a sandbox."""
        return sandbox.run(self.program, self.tests, self.given, self.names)


def code_of(answer: str) -> str:
    """The code in an answer: its first fenced block, or all of it if there is none."""
    found = FENCE.search(answer)
    return found.group(1) if found else answer


@dataclass(frozen=True)
class HumanEval:
    """A function to be completed after its signature and docstring; its tests are a function of the function."""

    task: str
    prompt: str
    entry: str
    test: str
    solution: str

    stops = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")  # where a completion has left the function

    @staticmethod
    def of(record: Mapping[str, Any]) -> HumanEval:
        """From a line of the file."""
        names = ("task_id", "prompt", "entry_point", "test", "canonical_solution")
        return HumanEval(*(record[name] for name in names))

    def case(self, answer: str) -> TestedProgram:
        """The program that an answer makes: the prompt with it, whether it goes on or writes the function anew.

        What the prompt itself defines is trusted, so tests that use it as a measure do not ask the answer.
        """
        code = code_of(answer)
        whole = self.entry in _defined(code)
        return TestedProgram(
            program=f"{self.prompt}\n{code}" if whole else self.prompt + code,
            tests=f"{self.test}\ncheck({self.entry})",
            given=self.prompt,  # it is complete: a docstring is a body
            names=(self.entry,),
        )


@dataclass(frozen=True)
class MBPP:
    """A function to be written after a sentence and some asserts; these are its tests."""

    task: int
    text: str
    tests: tuple[str, ...]
    setup: str
    solution: str

    @staticmethod
    def of(record: Mapping[str, Any]) -> MBPP:
        """From a line of the file, or an entry of the hand-checked one."""
        text = record.get("text") or record["prompt"]
        setup = record.get("test_setup_code") or "\n".join(record.get("test_imports", ()))
        return MBPP(record["task_id"], text, tuple(record["test_list"]), setup, record["code"])

    @property
    def prompt(self) -> str:
        """What is asked: the sentence, and the asserts, which tell the name of the function."""
        return f"{self.text} Your code should pass these tests:\n\n" + "\n".join(self.tests) + "\n"

    def case(self, answer: str) -> TestedProgram:
        """The program that an answer makes.

        What the set-up does is done by the program, as it may use what that defines; the tests then call it by name.
        Its imports, and those of the model solution, are for the tests too.
        """
        tests = "\n".join(self.tests)
        given = _imports(f"{self.setup}\n{self.solution}")
        return TestedProgram(
            f"{code_of(answer)}\n{self.setup}", tests, given, _wanted(tests, given, _defined(self.solution))
        )


def read_humaneval(path: Path) -> list[HumanEval]:
    """The problems of HumanEval.jsonl.gz."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [HumanEval.of(json.loads(line)) for line in lines]


def read_mbpp(path: Path) -> list[MBPP]:
    """The problems of mbpp.jsonl.gz, or of sanitized-mbpp.json.gz."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        text = file.read()
    records = json.loads(text) if text.lstrip().startswith("[") else map(json.loads, text.splitlines())
    return [MBPP.of(record) for record in records]


def _parsed(code: str) -> ast.Module:
    """The code as a tree, without warnings: its escapes are not ours to mend."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(code)


def _defined(code: str) -> set[str]:
    """The functions that a code defines, none if it is no code by itself."""
    try:
        body = _parsed(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    return {line.name for line in body if isinstance(line, (ast.FunctionDef, ast.AsyncFunctionDef))}


def _imports(code: str) -> str:
    """The imports at the top level of a code."""
    return "\n".join(ast.unparse(x) for x in _parsed(code).body if isinstance(x, (ast.Import, ast.ImportFrom)))


def _wanted(tests: str, given: str, sought: set[str]) -> tuple[str, ...]:
    """The names that tests use and that are neither Python's, unless sought, nor their own."""
    nodes = list(ast.walk(_parsed(f"{given}\n{tests}")))
    own = {alias.asname or alias.name.split(".")[0] for node in nodes for alias in getattr(node, "names", ())}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    own |= {argument.arg for node in nodes if isinstance(node, ast.Lambda) for argument in node.args.args}
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    return tuple(sorted(name for name in used - own if name in sought or not hasattr(builtins, name)))
