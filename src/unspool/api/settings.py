"""What users say of a request: the prompt, with a word for all that people try as one, and settings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from ..core import warp as warps
from ..core.canvas import Frame
from ..core.errors import BadRequest
from ..core.option import expect, real, whole
from ..core.stop import Stop
from ..core.warp.forbid import MinTokens, NoRepeatNgram
from ..core.warp.warp import Same, Temperature, Warp
from ..models.chat_template import Dialogue
from ..rules import constrain

if TYPE_CHECKING:
    from ..rules.constrain.constraint import Constraint
    from ..rules.constrain.form import Form, FormVocabulary

Prompt: TypeAlias = str | Sequence[int] | Sequence[Mapping[str, str]] | Dialogue
_THEIRS = {"max_new_tokens": "max_tokens", "num_return_sequences": "n", "stop_strings": "stop"}  # transformers'
_ALIKE = {"max_length": "max_tokens"}  # counts the prompt too, which ours does not
_FORMS = {"json_schema": "json_schema", "schema": "json_schema", "response_format": "json_schema", "regex": "regex"}
_FORMS |= {"form": "json_schema", "pydantic": "json_schema"}
_FORMS |= {"grammar": "grammar", "choices": "choices", "guided_json": "json_schema", "guided_regex": "regex"}
MOST_PARTS, MOST_HOLES = 64, 1024  # of what stands behind a text, and places of each hole
KINDS = "a text, a list of messages {role, content}, or a list of tokens"


class Given(TypedDict, total=False):
    """What can be said of a request by keyword: the fields of `Settings`."""

    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical: float | None
    eta: float | None
    epsilon: float | None
    top_n_sigma: float | None
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    no_repeat_ngram_size: int
    logit_bias: Mapping[int, float]
    bad_words: Sequence[str]
    constraint: Form | Constraint | None
    suffix: str | Sequence[str | int | tuple[int, ...]]
    heal: bool
    min_tokens: int
    max_tokens: int
    stop: str | Sequence[str]
    stop_tokens: Sequence[int]
    ignore_eos: bool
    seconds: float | None
    seed: int
    n: int
    logprobs: int | None


def settled(settings: Settings, given: Given) -> Settings:
    """The settings with what is given by keyword, by our names or transformers'; others get the nearest known."""
    if not isinstance(settings, Settings):
        meant = "method='lookup'" if isinstance(settings, str) else "max_tokens=20"
        how = f"give them by name, as in generate(prompt, {meant}), or an unspool.Settings"
        raise BadRequest(f"the settings are {settings!r}; {how}", param="settings")
    told: dict[str, Any] = {}
    for name, value in given.items():
        own = _THEIRS.get(name, name)
        if own in told:
            raise BadRequest(f"{name!r} and {own!r} are the same setting; give one of them", param=name)
        told[own] = value
    for name in told:
        if name not in Given.__annotations__:
            near = _ALIKE.get(name) or next(iter(get_close_matches(name, Given.__annotations__, n=1)), None)
            form = _FORMS.get(name)
            if form is not None:
                raise BadRequest(f"{name!r} is no setting; give the form as constraint=unspool.{form}(…)", param=name)
            hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(Given.__annotations__)}"
            raise BadRequest(f"{name!r} is no setting; {hint}", param=name)
    return replace(settings, **told) if told else settings


def for_one(settings: Settings, given: Given) -> Settings:
    """The same for one text; several that are asked for by keyword are refused, for they would be dropped unseen."""
    found = settled(settings, given)
    if "n" in given and found.n != 1:
        raise BadRequest(f"n is {found.n}, but this writes one text; `samples` writes several", param="n")
    return replace(found, n=1)


@dataclass(frozen=True)
class Settings:
    """How to draw, how long, and what to report; settings that cannot be used cannot be made.

    Temperature 0, the default, is greedy decoding. It takes the best token whatever the truncations say, so they are
    left out; penalties, biases and prohibitions still hold. None turns an option off, and so does its neutral value
    (top_k 0, top_p 1, min_p 0, typical 1, eta 0, epsilon 0, repetition_penalty 1, frequency_penalty 0, presence_penalty
    0, no_repeat_ngram_size 0).
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical: float | None = None
    eta: float | None = None
    epsilon: float | None = None
    top_n_sigma: float | None = None

    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    no_repeat_ngram_size: int = 0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: tuple[str, ...] = ()

    constraint: Form | Constraint | None = None  # what json_schema(…), regex(…) and such give, or a pydantic class

    # What stands behind the text, as texts or tokens; numbers are more holes, of so many tokens.
    suffix: str | tuple[str | int | tuple[int, ...], ...] = ()
    heal: bool = False  # the prompt may end inside a token: its last tokens are written anew, by the same letters

    min_tokens: int = 0  # until then no token can end the text; a stop string still does
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()
    ignore_eos: bool = False
    seconds: float | None = None

    seed: int = 0
    n: int = 1
    logprobs: int | None = None  # None: off; k: of every token, and of the k best alternatives

    def __post_init__(self) -> None:
        if hasattr(self.constraint, "model_json_schema"):  # a class of pydantic's
            object.__setattr__(self, "constraint", constrain.json_schema(self.constraint))
        for name in ("stop", "bad_words"):
            if isinstance(one := getattr(self, name), str):
                object.__setattr__(self, name, (one,))
        if isinstance(self.suffix, str):
            object.__setattr__(self, "suffix", (self.suffix,) if self.suffix else ())
        self.validate()
        object.__setattr__(self, "suffix", tuple(self.suffix))
        for name in ("bad_words", "stop", "stop_tokens"):
            object.__setattr__(self, name, tuple(getattr(self, name)))  # JSON has lists
        object.__setattr__(self, "logit_bias", dict(self.logit_bias))  # a copy: the caller's may change

    def validate(self) -> None:
        """Refuse what cannot be used, with BadRequest: what was given, what was expected, what to do."""
        biased = isinstance(self.logit_bias, Mapping)
        expect(biased, "logit_bias", self.logit_bias, "a mapping from token to number, as in {42: -1.5}")
        self._penalties()  # each part refuses what is out of its range
        self._truncations()
        Temperature(self.temperature)
        expect(
            whole(self.no_repeat_ngram_size, 0),
            "no_repeat_ngram_size",
            self.no_repeat_ngram_size,
            "a whole number, 0 for off",
        )
        _expect_strings("stop", self.stop)
        _expect_strings("bad_words", self.bad_words)
        listed = isinstance(self.stop_tokens, (tuple, list))
        expect(listed, "stop_tokens", self.stop_tokens, "a tuple of tokens, as in (2, 7)")
        expect(whole(self.min_tokens, 0), "min_tokens", self.min_tokens, "a whole number from 0 on")
        for token in self.stop_tokens:
            expect(whole(token, 0), "a stop token", token, "a whole number from 0 on")
        expect(whole(self.max_tokens, 1), "max_tokens", self.max_tokens, "a whole number from 1 on")
        limit = f"at most max_tokens, which is {self.max_tokens}; raise that, or ask for less"
        expect(self.min_tokens <= self.max_tokens, "min_tokens", self.min_tokens, limit)
        expect(isinstance(self.ignore_eos, bool), "ignore_eos", self.ignore_eos, "True or False")
        expect(isinstance(self.heal, bool), "heal", self.heal, "True or False")
        long = self.seconds is None or (real(self.seconds, 0) and self.seconds > 0)
        expect(long, "seconds", self.seconds, "a finite number above 0, or None for no limit")
        expect(whole(self.seed, 0, 2**64 - 1), "seed", self.seed, "a whole number from 0 to 2**64 - 1")
        expect(whole(self.n, 1), "n", self.n, "a whole number from 1 on: how many texts to write")
        self._validate_constraint()
        self._validate_suffix()
        counted = self.logprobs is None or whole(self.logprobs, 0)
        expect(counted, "logprobs", self.logprobs, "None for off, or how many alternatives to report, from 0 on")

    def warp(self, vocabulary: FormVocabulary, never: Collection[int] = ()) -> Warp:
        """All that shapes a law: the constraint, biases, penalties, prohibitions, temperature, truncations.

        Tokens that are `never` to be written are among the prohibitions.

        The constraint comes first, so that truncations see the law of what may really follow. The order of the others
        is that of transformers. What it lacks: Frequency and Presence follow Repetition; TopNSigma is the first
        truncation, as it measures the noise of the whole vocabulary.
        """
        if self.logit_bias:
            _expect_token("logit_bias", max(self.logit_bias), vocabulary)
        shaped = self._constraint(vocabulary) | self._penalties()
        if self.no_repeat_ngram_size:
            shaped |= NoRepeatNgram(self.no_repeat_ngram_size)
        if self.bad_words:
            shaped |= warps.NeverSay(tuple(word.encode() for word in self.bad_words), warps.pieces_of(vocabulary))
        if self.min_tokens:
            shaped |= MinTokens(self.min_tokens, self._stop_tokens(vocabulary))
        if never:
            shaped |= warps.Forbid(never)
        if self.temperature == 0:
            return shaped | Temperature(0)
        if self.temperature != 1:
            shaped |= Temperature(self.temperature)
        return shaped | self._truncations()

    def stop_rule(self, vocabulary: FormVocabulary) -> Stop:
        """Where the text ends."""
        return Stop(
            tokens=self._stop_tokens(vocabulary),
            strings=self.stop,
            most=self.max_tokens,
            seconds=self.seconds,
            piece=vocabulary.piece,
        )

    def _validate_constraint(self) -> None:
        made: Any = self.constraint
        fits = made is None or isinstance(made, constrain.Form) or callable(getattr(made, "start", None))
        expect(fits, "constraint", made, "None, or what json_schema(…), regex(…), grammar(…) or choices(…) give")
        if made is not None and self.ignore_eos:
            raise BadRequest("ignore_eos cannot be used with a constraint: a text that meets it ends with that token")

    def _validate_suffix(self) -> None:
        parts: Any = self.suffix
        listed = isinstance(parts, (tuple, list)) and len(parts) <= MOST_PARTS
        told = f"a text, or at most {MOST_PARTS} texts and numbers of holes, as in (' and ', 4, '.')"
        expect(listed and all(_stands(part) for part in parts), "suffix", parts, told)

    def frame(self, vocabulary: FormVocabulary) -> Frame:
        """What stands behind the prompt: `max_tokens` holes, and all that `suffix` says."""
        return (self.max_tokens, *self.behind(vocabulary))

    def behind(self, vocabulary: FormVocabulary) -> Frame:
        """What `suffix` says, with its texts as tokens."""
        for part in self.suffix:
            if isinstance(part, tuple):
                _expect_token("suffix", max(part), vocabulary)
        if not any(isinstance(part, str) for part in self.suffix):
            return self.suffix  # type: ignore[return-value]  # as there is no text in it
        lead = len(vocabulary.encode("", special=False))  # a beginning-of-text token is no part of it
        return tuple(vocabulary.encode(p, special=False)[lead:] if isinstance(p, str) else p for p in self.suffix)

    def _constraint(self, vocabulary: FormVocabulary) -> Warp:
        made = self.constraint
        if made is None:
            return Same()
        return constrain.Constrained(made.fit(vocabulary) if isinstance(made, constrain.Form) else made)

    def _penalties(self) -> Warp:
        parts: list[Warp] = [warps.LogitBias(self.logit_bias)] if self.logit_bias else []
        parts += [warps.Repetition(self.repetition_penalty)] if self.repetition_penalty != 1 else []
        parts += [warps.Frequency(self.frequency_penalty)] if self.frequency_penalty != 0 else []
        parts += [warps.Presence(self.presence_penalty)] if self.presence_penalty != 0 else []
        return _all(parts)

    def _truncations(self) -> Warp:
        parts: list[Warp] = [] if self.top_n_sigma is None else [warps.TopNSigma(self.top_n_sigma)]
        parts += [warps.TopK(self.top_k)] if self.top_k not in (None, 0) else []
        parts += [warps.TopP(self.top_p)] if self.top_p not in (None, 1) else []
        parts += [warps.MinP(self.min_p)] if self.min_p not in (None, 0) else []
        parts += [warps.Typical(self.typical)] if self.typical not in (None, 1) else []
        parts += [warps.Epsilon(self.epsilon)] if self.epsilon not in (None, 0) else []
        parts += [warps.Eta(self.eta)] if self.eta not in (None, 0) else []
        return _all(parts)

    def _stop_tokens(self, vocabulary: FormVocabulary) -> frozenset[int]:
        for token in self.stop_tokens:
            _expect_token("stop_tokens", token, vocabulary)
        own = frozenset(self.stop_tokens)
        return own if self.ignore_eos else own | vocabulary.eos


def _all(parts: list[Warp]) -> Warp:
    whole: Warp = Same()
    for part in parts:
        whole = whole | part
    return whole


def _expect_strings(name: str, given: object) -> None:
    listed = isinstance(given, (tuple, list)) and all(isinstance(text, str) for text in given)
    expect(listed, name, given, f"a string or several, as in {name}=('like', 'this')")
    for text in given if isinstance(given, (tuple, list)) else ():
        expect(text != "", f"a string of {name}", text, "at least one character")
        whole = not any("\ud800" <= x <= "\udfff" for x in text)
        expect(whole, f"a string of {name}", text, "text without lone surrogates, which no token can spell")


def _stands(part: object) -> bool:
    """Whether it can be a part of what stands behind a text: a text that tokens spell, tokens, a number of holes."""
    if isinstance(part, str):
        return part != "" and not any("\ud800" <= x <= "\udfff" for x in part)
    if isinstance(part, tuple):
        return part != () and all(whole(token, 0) for token in part)
    return whole(part, 1, MOST_HOLES)


def _expect_token(name: str, token: int, vocabulary: FormVocabulary) -> None:
    known = f"a token of this model: 0 to {vocabulary.size - 1}"
    expect(token < vocabulary.size, f"a token of {name}", token, known, name)


def understood(given: Any) -> str | Dialogue | tuple[int, ...]:
    """A prompt as a text, a dialogue or tokens; refuses what is none of them, and says which call takes it."""
    if isinstance(given, (str, Dialogue)):
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        raise _no_prompt("the prompt is bytes; decode them first, as in data.decode('utf-8')")
    if isinstance(given, Mapping):
        raise _no_prompt(f"the prompt is one mapping; give {KINDS}, as in [{{'role': 'user', 'content': 'Hello'}}]")
    if hasattr(given, "tolist"):
        raise _no_prompt(f"the prompt is a {type(given).__name__}; give its tokens as a list: .tolist()")
    if not isinstance(given, Sequence):
        raise _no_prompt(f"the prompt is {given!r:.80} ({type(given).__name__}); expected {KINDS}")
    return _listed(given)


def several(given: Any) -> list[Any]:
    """The prompts of a batch; refuses what is one prompt, or none."""
    one = isinstance(given, (str, bytes, bytearray, Mapping, Dialogue))
    if one or not isinstance(given, Iterable):
        found = f"a {type(given).__name__}" if one else f"{given!r:.80} ({type(given).__name__})"
        raise _no_prompt(f"the prompts of a batch are {found}; give a list of them, or one prompt to `generate`")
    return list(given)


def _listed(given: Sequence[Any]) -> Dialogue | tuple[int, ...]:
    if not given:
        raise _no_prompt("the prompt is empty: give some text to go on from")
    if set(map(type, given)) == {int} or all(isinstance(part, int) and not isinstance(part, bool) for part in given):
        return tuple(given)
    if all(isinstance(part, Mapping) for part in given):
        return Dialogue(given)
    if all(isinstance(part, (str, Sequence, Dialogue)) and not isinstance(part, bytes) for part in given):
        raise _no_prompt("the prompt is a list of prompts; `batch` answers each of them, `generate` and `stream` one")
    odd = [part for part in given if not isinstance(part, (str, int, Mapping)) or isinstance(part, bool)]
    about = f"{odd[0]!r:.80} ({type(odd[0]).__name__}) in it" if odd else "parts of different kinds"
    raise _no_prompt(f"the prompt is a list with {about}; expected {KINDS}")


def _no_prompt(why: str) -> BadRequest:
    return BadRequest(why, param="prompt")
