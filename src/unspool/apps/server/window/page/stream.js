// The stream: a request, and what the server tells in answer, one object at a time. Leaving it ends the request.
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function answerTo(path, key, body = null, signal = null) {
  const headers = { ...(key ? { authorization: `Bearer ${key}` } : {}), ...(body ? { "content-type": "application/json" } : {}) };
  const asked = { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal, cache: "no-store" };
  const answer = await fetch(path, asked);
  if (answer.ok) return answer;
  let why = `the server answered ${answer.status}`;
  try { why = (await answer.json()).error.message; } catch { /* no JSON: somebody between us and the server */ }
  throw new Refused(answer.status, why);
}

export async function* newsOf(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  while (true) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (held + value).split("\n\n");
    held = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}
