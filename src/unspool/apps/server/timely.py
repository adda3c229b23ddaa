"""Forms that are closed in time: the text of a request is complete before its last token, or the request is refused."""

from __future__ import annotations

from dataclasses import dataclass

from ...rules.constrain import Constraint, Form
from ...rules.constrain.form import FormVocabulary
from ...rules.constrain.within import in_time
from .refusal import Refusal

REACH = 256  # tokens in which an end is looked for: everybody waits for that search


@dataclass(frozen=True)
class Timely(Form):
    """Texts of a form that are complete within `most` tokens, as `Within` has them.

    Where no end is found in `REACH` tokens and more are allowed, the text may be cut off instead (`optional`) or the
    request is refused. `param` is the field that such a refusal names, `what` the text that was looked for.
    """

    form: Form
    most: int
    param: str = "decoding.within"
    what: str = "text of this form"
    optional: bool = False

    def fit(self, words: FormVocabulary) -> Constraint:
        fitted, reach = self.form.fit(words), min(self.most, REACH)
        if (found := in_time(fitted, self.most, reach, words)) is not None:
            return found
        if self.most > REACH and self.optional:
            return fitted
        advice = "allow more" if self.most <= REACH else "leave it out"
        told = f"no {self.what} was found that ends within {reach} tokens; {advice}"
        raise Refusal(400, told, param=self.param, code="integer_below_min_value")
