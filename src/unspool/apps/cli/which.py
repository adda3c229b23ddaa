"""`unspool which`: from what somebody has and wants to a few commands, instead of a hundred methods."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass

import click

from .terminal import dump, write

WANTS = ("speed", "json", "search", "diffusion", "serve", "research")


@dataclass(frozen=True)
class Advice:
    """What to type in one situation, and why; `exact` says whether the text is plain decoding's, or its law."""

    wants: str
    have: str
    command: str
    why: str
    exact: bool = True
    draft: bool = False  # whether it needs a second model
    gpu: bool | None = None  # only on a GPU, only on a CPU, or on both


ADVICE = (
    Advice(
        "speed", "any model", "unspool compare auto", "drafts what pays on this machine, and nothing where nothing does"
    ),
    Advice(
        "speed",
        "answers that repeat the prompt (editing, code, summaries)",
        "unspool compare lookup suffix",
        "copies from the text; no second model",
    ),
    Advice(
        "speed",
        "a CPU, and weights that are not in the blocks of a quantised .gguf",
        'unspool run "…" --dtype fast',
        "the precision this CPU is faster in; blocks are multiplied as they are without asking",
        exact=False,
        gpu=False,
    ),
    Advice(
        "speed",
        "a small model of the same family",
        "unspool compare chain --model BIG --draft SMALL",
        "the small one drafts, the big one verifies; the law is kept",
        draft=True,
    ),
    Advice(
        "speed",
        "a draft model with another tokenizer",
        "unspool compare slem --model BIG --draft SMALL",
        "drafts as text, tokens again for the big one",
        draft=True,
    ),
    Advice(
        "speed",
        "no second model, but heads",
        "unspool compare heads",
        "Medusa's heads; smollm2 has some, `unspool train heads` makes others",
    ),
    Advice("speed", "a GPU", 'unspool run "…" --method on_device', "drafts stay on the GPU, in CUDA graphs", gpu=True),
    Advice(
        "speed",
        "texts that may differ a little",
        "unspool methods --family verify --claim HEURISTIC",
        "verifiers that accept more than they may, and their gaps",
        exact=False,
        draft=True,
    ),
    Advice(
        "json",
        "a JSON Schema",
        'unspool run "…" --json-schema schema.json',
        "every token keeps to it (structured output, JSON mode)",
    ),
    Advice(
        "json",
        "a regular expression, a grammar, a few choices",
        "unspool run \"…\" --regex '[0-9]+'",
        "or --grammar FILE, or --choices A,B,C",
    ),
    Advice(
        "json",
        "a schema, and texts drawn in proportion",
        'unspool run "…" --json-schema schema.json --method smc -t 1',
        "particles weighed towards the model's own law given that the text fits; `cars` is exact, where such texts are "
        "likely",
        exact=False,
    ),
    Advice(
        "search",
        "a model whose likelihood you trust",
        'unspool run "…" --method beam:width=4',
        "the likeliest of many texts",
        exact=False,
    ),
    Advice(
        "search",
        "a function that rates texts",
        'unspool run "…" --method mcts:reward=FILE.py:NAME',
        "a tree of beginnings, grown where texts below were good",
        exact=False,
    ),
    Advice(
        "diffusion",
        "a model that fills holes",
        "unspool compare confident entropy_bound --model smollm2-diffusion",
        "tokens per forward, and how likely the texts are",
        exact=False,
    ),
    Advice(
        "diffusion",
        "a model that fills holes and reads",
        'unspool run "…" --model smollm2-diffusion --method masks',
        "it drafts for itself; same seed, same text",
    ),
    Advice(
        "serve",
        "programs that speak OpenAI's interface",
        "unspool serve --method auto",
        "/v1 on 127.0.0.1:8000, and a window to watch methods at /",
    ),
    Advice(
        "serve", "a file of requests", "unspool batch in.jsonl out.jsonl", "survives any kill; with --ray on a cluster"
    ),
    Advice(
        "research",
        "a rule of your own",
        "unspool prove mine.py:method",
        "its exact law, enumerated; the smallest case where it is wrong",
    ),
    Advice(
        "research",
        "a method's name, paper or a word about it",
        "unspool methods WORD",
        "what it does, claims and needs",
    ),
)


@click.command(short_help="From what you have and want to a command.")
@click.argument("wants", type=click.Choice(WANTS), required=False, metavar="[WANTS]")
@click.option("--exact", is_flag=True, help="Only what writes plain decoding's text, or keeps its law.")
@click.option("--draft/--no-draft", default=None, help="You have, or have not, a second, smaller model.")
@click.option("--gpu/--cpu", "gpu", default=None, help="The machine that it is for.")
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
def which(wants: str | None, exact: bool, draft: bool | None, gpu: bool | None, as_json: bool) -> None:
    """Say what to type for what somebody WANTS: speed, json, search, diffusion, serve or research.

    json is structured output. Without WANTS it tells of all of them.
    """
    found = advice(wants, exact, draft, gpu)
    if as_json:
        dump([asdict(each) for each in found])
        return
    lines = []
    for each in found:
        lines += [f"{each.wants}, with {each.have}:" if wants is None else f"with {each.have}:", f"    {each.command}"]
        lines += textwrap.wrap(each.why, 76, initial_indent="    ", subsequent_indent="    ")
    write("\n".join(lines or ["Nothing is known for that; leave out an option."]) + "\n")


def advice(wants: str | None, exact: bool, draft: bool | None, gpu: bool | None) -> list[Advice]:
    """What fits."""
    return [
        each
        for each in ADVICE
        if wants in (None, each.wants)
        and (each.exact or not exact)
        and (draft is not False or not each.draft)
        and (gpu is None or each.gpu in (None, gpu))
    ]
