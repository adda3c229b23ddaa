"""The window in a browser, against a server of its own: what one does with it, whatever the model writes."""

# ruff: noqa: F811 (fixtures are asked for by name)

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest
from browsing import browser  # noqa: F401
from hostile import HOSTILE, hostile_model
from patience import PATIENCE, until
from windowed import PROMPT, brightness, completed, run, scrub, texts

import unspool

pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")
httpx = pytest.importorskip("httpx")

FITS = "document.scrollingElement.scrollWidth <= innerWidth"
HERE = "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return hostile_model(tmp_path_factory.mktemp("window") / "little")


@pytest.fixture(scope="module")
def address(folder, browser):
    """The server as users start it, with a key."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "unspool", "serve", "--model", folder, "--port", str(port), "--api-key", "secret"]
    command += ["--max-tokens", "4000"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as process:
        at = f"http://127.0.0.1:{port}"
        try:
            until(lambda: process.poll() is not None or ready(at))
            assert process.poll() is None
            yield at
        finally:
            process.terminate()


def ready(at):
    try:
        return httpx.get(f"{at}/readyz").status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def opened(browser):
    """Open a page at a width; whatever the browser complains about fails the test, unless it was expected."""
    complaints, contexts = [], []

    def at(where, width=1280, scheme="light", key="secret", expected=None, **more):
        context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme, **more)
        contexts.append(context)
        context.set_default_timeout(1000 * PATIENCE)
        view = context.new_page()
        said = complaints.append
        view.on("console", lambda m: None if expected and re.search(expected, m.text) else said(m.text))
        view.on("pageerror", lambda error: said(str(error)))
        if key:
            view.add_init_script(f"sessionStorage.setItem('unspool-key', '{key}')")
        view.goto(where)
        return view

    yield at
    for context in contexts:
        context.close()
    assert complaints == []


def test_two_methods_decode_beside_each_other(opened, address):
    view = opened(address)
    run(view)
    text, spent = completed(httpx, address, "lookup:ngram=1,least=1", 24)
    assert texts(view) == [text, text]
    assert any(each in text for each in HOSTILE)
    assert view.title() == "unspool"  # and not what the text would make it
    assert view.locator(".cells *:not(span)").count() == 0
    figures = view.locator(".pane >> nth=1").locator("dd").all_inner_texts()
    forwards = spent["forwards"]["target"]
    assert figures[:3] == ["24", str(forwards), f"{24 / forwards:.2f}"]
    assert view.locator(".pane >> nth=1").locator(".cell.drafted").count() == spent["accepted"] > 0
    assert view.locator(".pane >> nth=0").locator(".cell.added").count() == 24

    scrub(view, 3)
    assert view.locator(".where").inner_text() == "round 3 of 24"
    assert view.locator(".pane >> nth=0").locator(".cell").count() == 3
    pane, counts = view.locator(".pane >> nth=1"), []
    for moment in (spent["rounds"] - 1, spent["rounds"], 24):
        scrub(view, moment)
        counts.append(pane.locator(".cell").count())
        fresh = pane.locator(".cell.fresh").count()
    assert counts == [24 - fresh, 24, 24]
    scrub(view, 3)
    token = view.locator(".pane >> nth=0").locator(".cell >> nth=1")
    token.hover()
    rows = view.locator(".pane >> nth=0").locator(".law li").all_inner_texts()
    assert len(rows) >= 8
    assert "round 2" in view.locator(".pane >> nth=0").locator("[aria-label=Law] .of").inner_text()
    view.locator("#clock").check()
    assert re.fullmatch(r"[\d.]+ m?s of [\d.]+ m?s", view.locator(".where").inner_text())
    view.locator(".dock .play").click()
    until(lambda: view.evaluate("document.getElementById('scrub').value === document.getElementById('scrub').max"))
    assert texts(view) == [text, text]


def test_the_tree_of_a_round_is_drawn(opened, address):
    view = opened(address)
    run(view, "merge", "")
    assert view.locator(".pane").count() == 1
    for moment in range(1, 25):
        scrub(view, moment)
        if view.locator(".node.stood").count():
            break
    said = view.locator("[aria-label='Draft of this round'] .of").inner_text()
    stood, of = map(int, re.match(r"(\d+) of (\d+) drafted tokens? stood", said).groups())
    assert (view.locator(".node.stood").count(), view.locator(".node.own").count()) == (stood, 1)
    assert view.locator(".node").count() == of + 1


def test_a_saved_trace_opens_anywhere(opened, address, tmp_path):
    view = opened(address)
    evil = HOSTILE[2] + HOSTILE[3] + PROMPT
    run(view, tokens=40, prompt=evil)
    before = texts(view)
    with view.expect_download() as waiting:
        view.click("#save")
    assert re.fullmatch(r"unspool-plain-lookup-.*\.html", waiting.value.suggested_filename)
    waiting.value.save_as(tmp_path / "saved.html")
    assert "secret" not in (tmp_path / "saved.html").read_text("utf-8")
    alone = opened((tmp_path / "saved.html").as_uri(), key=None, offline=True, expected="Content Security Policy")
    assert texts(alone) == before
    assert alone.title().startswith("unspool: plain, lookup")
    assert alone.locator("#prompt").inner_text() == evil
    alone.keyboard.press("Home")
    assert alone.locator(".where").inner_text() == "round 0 of 40"
    for _ in range(3):
        alone.keyboard.press("ArrowRight")
    assert alone.locator(".pane >> nth=0").locator(".cell").count() == 3
    alone.locator(".pane >> nth=1").locator(".cell >> nth=0").hover()
    assert alone.locator(".law li").count() >= 16
    alone.evaluate("fetch('http://127.0.0.1:1/').catch(() => document.title = 'kept in')")
    until(lambda: alone.title() == "kept in")


def test_all_of_it_can_be_done_with_keys(opened, address):
    view = opened(address, key=None, expected="401")
    view.wait_for_selector("#key:focus")  # the server asks for a key, and the page for it
    assert "asks for an API key" in view.locator("#wrong").inner_text()
    view.keyboard.type("wrong")
    view.keyboard.press("Tab")
    until(lambda: "key is missing or wrong" in view.locator("#wrong").inner_text())
    view.locator("#key").fill("")
    view.keyboard.type("secret")
    view.keyboard.press("Tab")
    view.wait_for_selector("#method-a")
    assert view.locator("#wrong").is_hidden()
    view.reload()  # the tab remembers the key
    view.wait_for_selector("#method-a")
    order = []
    for _ in range(13):
        view.keyboard.press("Tab")
        order.append(view.evaluate(HERE))
        if order[-1] in ("prompt", "tokens"):
            view.keyboard.press("Control+A")
            view.keyboard.type({"prompt": PROMPT, "tokens": "12"}[order[-1]])
    fields = ["method-a", "method-b", "options-b", "tokens", "temperature", "seed", "manner", "format"]
    assert order == ["skip", "theme", "prompt", *fields, "run", "turns"]
    view.keyboard.press("Shift+Tab")
    view.keyboard.press("Enter")
    view.wait_for_selector("#save:enabled")
    until(lambda: "12 tokens in" in view.locator("#said").inner_text())
    cells = view.locator("#cells-a")
    cells.focus()
    view.keyboard.press("ArrowRight")
    view.keyboard.press("ArrowRight")
    chosen = cells.locator("[aria-selected=true]")
    assert cells.get_attribute("aria-activedescendant") == chosen.get_attribute("id") == "cells-a-1"
    assert "Most probable" in view.locator("#said").inner_text()
    view.keyboard.press("Tab")
    assert view.evaluate("document.activeElement.closest('.pane') !== null")
    view.locator("#scrub").focus()
    view.keyboard.press("Home")
    view.keyboard.press("ArrowRight")
    assert view.locator(".where").inner_text() == "round 1 of 12"
    assert view.locator("#scrub").get_attribute("aria-valuetext") == "round 1 of 12"
    outline = view.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"


def test_stopping_and_leaving_free_the_request(opened, address):
    def live():
        told = httpx.get(f"{address}/metrics", headers={"authorization": "Bearer secret"}).text
        return int(re.search(r"^unspool_live_requests (\d+)", told, re.MULTILINE)[1])

    view = opened(address)
    for leave in (lambda: view.click("#stop"), lambda: view.goto(f"{address}/healthz")):
        view.wait_for_selector("#run:enabled")
        view.select_option("#manner", "text")
        view.fill("#tokens", "4000")
        view.click("#run")
        view.wait_for_selector(".cell")
        until(lambda: live() == 2)
        leave()
        until(lambda: live() == 0)
        if not view.url.endswith("/healthz"):
            until(lambda: "Stopped after" in view.locator(".status").first.inner_text())
            assert view.locator("#save").is_enabled()


def test_what_the_server_refuses_is_said_in_words(opened, address):
    view = opened(address, expected="400")
    view.wait_for_selector("#run:enabled")
    view.select_option("#manner", "text")
    view.select_option("#method-b", "lookup")
    view.fill("#options-b", "<img/onerror/src=x>")
    view.click("#run")
    until(lambda: "has no option" in view.locator("#wrong").inner_text())
    assert "<img/onerror/src" in view.locator("#wrong").inner_text()
    assert view.locator("img").count() == 0
    view.fill("#options-b", "")
    view.select_option("#format", "json_schema")
    view.fill("#form", "{")
    view.click("#run")
    assert "not JSON" in view.locator("#wrong").inner_text()


def test_tokens_that_a_form_forces_are_seen(opened, address):
    pytest.importorskip("llguidance")
    view = opened(address)
    view.wait_for_selector("#run:enabled")
    view.select_option("#format", "regex")
    view.fill("#form", "yes, [ab]+z")
    run(view, second="", options="", tokens=12)
    assert texts(view)[0].startswith("yes, ")
    assert view.locator(".cell.forced").count() >= 5 + 1  # five in the text, one in the legend
    assert "forced by the form" in view.locator(".legend").inner_text()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_its_screen_in_light_and_dark(opened, address, width, scheme):
    view = opened(address, width, scheme)
    assert view.evaluate(FITS)
    run(view, second="merge", options="")
    assert view.evaluate("document.getElementById('stage').getBoundingClientRect().top < 0.7 * innerHeight")
    scrub(view, 12)
    assert view.evaluate(FITS)
    outside = """[...document.querySelectorAll('main *')].filter((part) => !part.closest('.scroll')
        && part.getBoundingClientRect().right > innerWidth + 1).map((part) => part.className)"""
    assert view.evaluate(outside) == []
    assert (brightness(view) < 60) == (scheme == "dark")
    view.locator("#theme").click()
    assert (brightness(view) < 60) == (scheme == "light")


@pytest.mark.slow
def test_the_default_model_is_watched(opened, smollm2, monkeypatch):
    from unspool.apps.server import Limits, ServerConfig, Worker, application

    monkeypatch.setattr("unspool.apps.server.handler.log", lambda event, record: None)
    app = application(Worker(smollm2, Limits()), ServerConfig("smollm2", grace=1))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        view = opened(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", key=None)
        view.wait_for_selector("#run:enabled")
        view.fill("#prompt", "Say: one two three, one two three.")
        view.fill("#tokens", "12")
        view.click("#run")
        view.wait_for_selector("#save:enabled")
        until(lambda: all("Finished" in said for said in view.locator(".status").all_inner_texts()))
        shown = texts(view)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
    chat = [{"role": "user", "content": "Say: one two three, one two three."}]
    assert shown == [smollm2.generate(chat, unspool.Settings(max_tokens=12)).text] * 2
