"""JSON that a schema accepts, and that is closed before the tokens run out."""

import json

import unspool

person = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
lm = unspool.load("smollm2")
form = unspool.json_schema(person).within(40)
output = lm.generate("Invent a person, as JSON.", constraint=form, max_tokens=40, temperature=0.8, seed=1)
print(json.loads(output.text))
