"""How a model's conversations are framed: what opens one, what stands before an answer, and what ends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unspool.core.errors import BadRequest
from unspool.models.chat_template import Dialogue
from unspool.models.vocabulary import Vocabulary

from .token_corpus import TokenCorpus

END = 2  # of documents of which none has ended
_LOOK = 500  # documents that show what conversations have in common
_ASKED, _SAID = ("apple", "42 trees?"), "yes"  # what is put into a chat template to see what it adds


@dataclass(frozen=True)
class Framing:
    """The tokens that every conversation begins with, those that every question ends with, and what ends an answer."""

    opening: list[int]
    bridge: list[int]
    end: int

    def prompt(self, vocabulary: Vocabulary, question: str) -> list[int]:
        """A question as a conversation asks it; what begins a text is not said twice."""
        tokens = vocabulary.encode(question, special=False)
        begun = vocabulary.bos is not None and tokens[:1] == (vocabulary.bos,) and self.opening[:1] == [vocabulary.bos]
        return [*self.opening, *tokens[1 if begun else 0 :], *self.bridge]


def of_documents(corpus: TokenCorpus) -> Framing:
    """What documents show: what all prompts share at either end, and the last token of an answer that has ended."""
    shown = [corpus[i] for i in range(min(len(corpus), _LOOK))]
    prompts = [one.tokens[: one.prompt].tolist() for one in shown]
    ends = (int(one.tokens[-1]) for one in shown if one.closed)
    return Framing(_common(prompts), _common([prompt[::-1] for prompt in prompts])[::-1], next(ends, END))


def of_template(vocabulary: Vocabulary) -> Framing:
    """What the model's own chat template adds to a question and to an answer."""
    if vocabulary.chat_template is None:
        raise BadRequest("the model has no chat template; name documents that show how it converses with --like.")
    questions = [[{"role": "user", "content": text}] for text in _ASKED]
    prompts = [list(vocabulary.encode_chat(Dialogue(messages))) for messages in questions]
    answered = [*questions[0], {"role": "assistant", "content": _SAID}]
    behind = vocabulary.encode_chat(Dialogue(answered), reply=False)[len(prompts[0]) :]
    end = next((token for token in behind if token in vocabulary.eos), None)
    if end is None:
        raise BadRequest("the model's chat template ends no answer; name documents that do with --like.")
    return Framing(_common(prompts), _common([prompt[::-1] for prompt in prompts])[::-1], end)


def _common(texts: Sequence[Sequence[int]]) -> list[int]:
    shared = []
    for column in zip(*texts, strict=False):
        if len(set(column)) > 1:
            break
        shared.append(int(column[0]))
    return shared
