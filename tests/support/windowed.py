"""What one does with the window in a browser, for tests of it."""

from __future__ import annotations

import re

from patience import until

PROMPT = "abcabcabc"


def run(view, first="plain", second="lookup", options="ngram=1,least=1", tokens=24, prompt=PROMPT):
    view.wait_for_selector("#run:enabled")
    view.fill("#prompt", prompt)
    view.select_option("#method-a", first)
    view.select_option("#method-b", second)
    if second and options:
        view.fill("#options-b", options)
    view.fill("#tokens", str(tokens))
    view.select_option("#manner", "text")
    view.click("#run")
    view.wait_for_selector("#save:enabled")
    until(lambda: all(re.match("Finished|Stopped", said) for said in view.locator(".status").all_inner_texts()))


def texts(view):
    """What the panes show, without the marks of line ends."""
    read = "(box) => [...box.querySelectorAll('.cell:not(.silent)')].map((cell) => cell.textContent).join('')"
    return [box.evaluate(read).replace("↵", "") for box in view.locator(".cells").all()]


def scrub(view, to):
    view.evaluate(
        "(to) => { const s = document.getElementById('scrub'); s.value = to; s.dispatchEvent(new Event('input')) }", to
    )


def brightness(view):
    ground = view.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", ground)[:3])) / 3


def completed(httpx, address, method, tokens):
    """The text and the figures that OpenAI's interface gives."""
    asked = {"prompt": PROMPT, "temperature": 0, "max_tokens": tokens, "decoding": {"method": method}}
    answer = httpx.post(f"{address}/v1/completions", json=asked, headers={"authorization": "Bearer secret"}).json()
    return answer["choices"][0]["text"], answer["usage"]["unspool"]
