"""How a rule is run: on the command line, and in Python."""

from __future__ import annotations

import inspect

from unspool.core.claim import Entry
from unspool.core.errors import UnspoolError
from unspool.recipes.methods import fills

OPTIONS = {  # where a bare name does little or nothing
    "insert": "words=dog+river",
    "judged": "head=FILE",
    "mcts": "reward=tests.py:passed,enough=1",
    "neurologic": "words=dog/dogs+river",
    "retrieve": "store=FILE",
    "rewarded": "reward=grade.py:short,beta=3",
    "specdecpp": "head=FILE",
    "template": "words=dog+river",
}
FORM = "[A-Z][^0-9]*"
SETTINGS = {  # of a request without which the method is plain decoding
    "asap": f"--regex '{FORM}' --temperature 1",
    "awrs": f"--regex '{FORM}' --temperature 1",
    "cars": f"--regex '{FORM}' --temperature 1",
    "several": "--temperature 0.8",
    "smc": f"--regex '{FORM}' --temperature 1",
}
PROMPT = "What is the capital of Italy?"
REPEATING = (
    "Repeat word for word: the museum opens at nine, the museum closes at six."  # gives a drafter something to copy
)

COUNTING = "Write the numbers from 1 to 20, separated by commas."  # many holes of which one is sure


def asked(entry: Entry) -> str:
    """A prompt on which the method has something to do."""
    if fills(entry):
        return COUNTING
    return REPEATING if entry.family == "draft" and not entry.needs else PROMPT


def spec(entry: Entry) -> str:
    """The method as it is named, with the options that it cannot do without."""
    return f"{entry.name}:{OPTIONS[entry.name]}" if entry.name in OPTIONS else entry.name


def refusal(entry: Entry) -> str:
    """What the method says if it is named without options; nothing if it runs."""
    try:
        if entry.build is not None:
            entry.build()
    except UnspoolError as error:
        return str(error)
    return ""


def commands(entry: Entry) -> str:
    """Run it, compare it with plain decoding where that can be said of it, and enumerate its claim."""
    lines = []
    if entry.build is not None:
        models = " ".join(
            [
                *([f"--model {_target(entry)}"] if _target(entry) != "smollm2" else []),
                *(["--draft smollm2"] if entry.needs == ("draft",) else []),
                *(["--draft ./medium.gguf --small smollm2"] if "small" in entry.needs else []),
            ]
        )
        how = " ".join(filter(None, [f"--method {spec(entry)}", SETTINGS.get(entry.name, ""), models]))
        lines.append(f'unspool run {how} \\\n  "{asked(entry)}"')  # in a line of its own, so that both can be seen
        if entry.name not in OPTIONS and entry.family in ("draft", "verify"):
            lines.append(" ".join(filter(None, [f"unspool compare {entry.name}", models])))
    lines.append(f"unspool prove {entry.name}")
    return "\n".join(lines)


def python(entry: Entry) -> str:
    """The same in Python."""
    if entry.build is None:
        return _part(entry)
    draft = {(): "", ("heads",): "", ("draft",): ', draft=unspool.load("smollm2")'}.get(
        entry.needs, ', draft=unspool.load("./medium.gguf", draft=unspool.load("smollm2"))'
    )
    _, drawn, heat = SETTINGS.get(entry.name, "").partition("--temperature ")
    heat = f", temperature={heat}" if drawn else ""
    kept = FORM in SETTINGS.get(entry.name, "")
    form = f'form = unspool.regex("{FORM}")\n' if kept else ""
    return (
        "import unspool\n\n"
        f'lm = unspool.load("{_target(entry)}"{draft})\n'
        f"{form}settings = unspool.Settings(max_tokens=64{heat}{', constraint=form' if kept else ''})\n"
        f'prompt = "{asked(entry)}"\n'
        f'print(lm.generate(prompt, settings, method="{spec(entry)}").text)'
    )


def _target(entry: Entry) -> str:
    """A model that the method can run; MODEL where the catalogue has none."""
    if entry.name == "insert":
        return "MODEL"
    return "smollm2-diffusion" if fills(entry) else "./large.gguf" if "draft" in entry.needs else "smollm2"


def _part(entry: Entry) -> str:
    """A part that methods are made of: verifiers in the loop of speculation, others where they are imported from."""
    name = entry.rule.__name__
    given = f"from unspool.rules.{entry.family} import {name}"
    if entry.family != "verify":
        return given
    drafter, made = ("SpecInfer", "SpecInfer(paths=2, depth=3)") if _independent(entry) else ("Chain", "Chain(depth=4)")
    rule = f"{name}()" if inspect.isclass(entry.rule) else name
    return (
        "import unspool\n"
        f"from unspool.rules.draft import {drafter}\n{given}\n\n"
        'lm = unspool.load("./large.gguf", draft=unspool.load("smollm2"))\n'
        f"method = unspool.Speculate({made}, {rule})\n"
        f'print(lm.generate("{PROMPT}", unspool.Settings(temperature=0.8, seed=7), method).text)'
    )


def _independent(entry: Entry) -> bool:
    """Whether the verifier is enumerated with siblings of one law first, as those do that are about them."""
    first = next(iter(entry.trials(entry.rule)))
    return type(getattr(first, "draft", None)).__name__ == "SpecInfer"
