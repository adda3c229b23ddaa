// A request: what the form says, as the server wants it.
const FORMS = {
  json_schema: ["Schema", '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}}, "required": ["name", "age"], "additionalProperties": false}'],
  regex: ["Regular expression", "The answer is [0-9]{1,4}\\."],
  choices: ["One answer per line", "yes\nno\nperhaps"],
};

export function formOf(kind) {
  return FORMS[kind] ?? ["", ""];
}

export function formatOf(kind, text) {
  if (!kind) return null;
  if (kind === "regex") return { type: kind, regex: text };
  if (kind === "choices") return { type: kind, choices: text.split("\n").filter((each) => each.trim()) };
  try {
    return { type: kind, json_schema: { name: "answer", schema: JSON.parse(text) } };
  } catch (error) {
    throw new Error(`The schema is not JSON: ${error.message}`);
  }
}

export function bodyOf(given, method) {
  const asked = given.chat ? { messages: [{ role: "user", content: given.prompt }] } : { prompt: given.prompt };
  return {
    ...asked, max_tokens: given.tokens, temperature: given.temperature, seed: given.seed, decoding: { method },
    ...(given.format ? { response_format: given.format } : {}),
  };
}

export function settingsSaid(given) {
  const parts = [given.chat ? "a message to answer" : "a text to go on from", `at most ${given.tokens} tokens`, `temperature ${given.temperature}`, `seed ${given.seed}`];
  if (given.format) parts.push(`answer: ${JSON.stringify(given.format.json_schema?.schema ?? given.format.regex ?? given.format.choices)}`);
  return parts.join(" · ");
}
