"""Keys with names and limits: each client has its own, and no key is ever told."""

# ruff: noqa: F811 (fixtures are asked for by name)

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from serving import LIMITS, LONG, folder, lm, serving, told  # noqa: F401

from unspool.apps.batch.line_writer import LineDefaults
from unspool.apps.server.clients import Client, RateLimit, clients
from unspool.apps.server.counts import SECONDS, ServerMetrics
from unspool.apps.server.limits import Limits
from unspool.apps.server.refusal import Refusal
from unspool.apps.server.server_config import ServerConfig
from unspool.apps.server.worker import Worker
from unspool.core.errors import BadRequest

KEYS = """
[anna]
key = "sécret-a"
parallel = 1

[the-batch]
key = "secret-b"
tokens_per_minute = 60
"""


def test_a_file_of_keys(tmp_path):
    path = tmp_path / "keys.toml"
    path.write_text(KEYS, encoding="utf-8")
    anna, batch = clients(path)
    assert anna == Client("anna", "sécret-a", parallel=1)
    assert batch == Client("the-batch", "secret-b", tokens_per_minute=60)
    assert "secret" not in repr(batch)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("", "nobody"),
        ('[a]\nkey = "secret', "not TOML"),
        ("a = 1", "needs key"),
        ("[a]\nparallel = 2", "needs key"),
        ('[a]\nkey = "secret"\nlimit = 2', "needs key"),
        ('[a]\nkey = " "', "the key of a"),
        ("[a]\nkey = 5", "the key of a"),
        ('[a]\nkey = "secret"\nparallel = 0', "parallel of a"),
        ('[a]\nkey = "secret"\ntokens_per_minute = 1.5', "tokens_per_minute of a"),
        ('["a b"]\nkey = "secret"', "name"),
        ('[a]\nkey = "secret"\n[b]\nkey = "secret"', "another's"),
    ],
)
def test_files_that_let_nobody_in(tmp_path, text, words):
    path = tmp_path / "keys.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(BadRequest, match=words) as caught:
        clients(path)
    assert "secret" not in str(caught.value)


def test_tokens_come_back_with_time():
    now = [0.0]
    rate_limit = RateLimit(Client("a", "k", tokens_per_minute=60), lambda: now[0])
    rate_limit.enter()
    rate_limit.spend(90)  # what was begun is finished, even beyond the limit
    rate_limit.leave()
    for at, wait in ((0.0, 30), (10.5, 20), (29.5, 1)):
        now[0] = at
        with pytest.raises(Refusal) as caught:
            rate_limit.enter()
        assert (caught.value.status, caught.value.headers["Retry-After"]) == (429, str(wait))
    now[0] = 30.5
    rate_limit.enter()
    rate_limit.spend(1)
    now[0] = 10_000.0  # no more than a minute's worth is saved up
    rate_limit.enter()
    rate_limit.spend(60)
    with pytest.raises(Refusal):
        rate_limit.enter()
    assert (rate_limit.inside, rate_limit.requests, rate_limit.refused, rate_limit.tokens) == (2, 7, 4, 151)


SPELT = ("Bearer {}", "bearer {}", "BEARER   {}")


def asked(served, authorization, **body):
    """An answer; several values of the header are sent as so many headers."""
    sent = [authorization] if isinstance(authorization, str) else authorization
    heads = [("authorization", value) for value in sent]
    usual = {"prompt": "It was a dark and stormy night", "max_tokens": 2, "temperature": 0}
    return served.http.post("/v1/completions", json={**usual, **body}, headers=heads)


def cached(served, authorization, **body):
    return asked(served, authorization, **body).json()["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("share", [False, True])
def test_a_key_finds_its_own_prompts_in_the_cache_and_nobody_elses(lm, share):
    lm.model.forget()
    anna, whole = Client("anna", "a"), len("It was a dark and stormy nigh")
    with serving(lm, replace(LIMITS, share_prefixes=share), keys=("first", "second"), clients=(anna,)) as served:
        for number, key in enumerate(("first", "second", "a")):
            assert cached(served, f"Bearer {key}") == (whole if share and number else 0)
            assert {cached(served, spelt.format(key)) for spelt in SPELT} == {whole}
    lm.model.forget()


def test_a_memory_belongs_to_the_key_that_fitted_and_not_to_what_was_sent(lm):
    """Neither another spelling of a key nor a second header makes another client of it."""
    made, spec = [], "recycle@process"
    with serving(lm, method=spec, keys=("first", "second")) as served:
        config, ask = ServerConfig.made, {"decoding": {"method": spec}}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                ServerConfig, "made", lambda self, name, client: made.append(client) or config(self, name, client)
            )
            for sent in (
                *(spelt.format("first") for spelt in SPELT),
                ("Bearer first", "Bearer wrong"),
                "Bearer second",
            ):
                assert asked(served, sent, **ask).status_code == 200
    *first, second = made
    assert len({*first}) == 1
    assert second not in first
    assert not any("first" in client or "second" in client for client in made)


def test_a_session_on_a_server_is_refused_at_its_start():
    with pytest.raises(BadRequest, match="@process"):
        ServerConfig("little", "recycle@session")
    with pytest.raises(BadRequest, match="@process"):
        ServerConfig("little", methods=("lookup", "stand@session"))
    with pytest.raises(BadRequest, match="@process"):
        LineDefaults("little", "recycle@session")


def test_each_key_has_its_own_limits_and_its_name_in_log_and_metrics(lm, told):
    anna, batch = Client("anna", "sécret-a", parallel=1), Client("the-batch", "secret-b", tokens_per_minute=60)
    heads = {c.name: {"authorization": f"Bearer {c.key}".encode()} for c in (anna, batch)}
    other = {"authorization": "Bearer plain"}
    short = {"prompt": "abc", "max_tokens": 3, "temperature": 0, "logit_bias": {"1": -100}}
    with serving(lm, keys=("plain",), clients=(anna, batch)) as served:

        def figures():
            return served.http.get("/metrics", headers=other).text

        def post(headers, path="/v1/completions", **body):
            """An answer, once nothing of the request is left; clients hear of its end a moment before."""
            answer = served.http.post(path, json={**short, **body}, headers=headers)
            served.until(lambda: 'unspool_key_inside{key="the-batch"} 0' in figures())
            return answer

        assert post({}).status_code == post({"authorization": "Bearer secret"}).status_code == 401
        with served.http.stream("POST", "/v1/completions", json=LONG, headers=heads["anna"]) as answer:
            lines = answer.iter_lines()
            next(lines)
            refused = post(heads["anna"])
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
            assert int(refused.headers["retry-after"]) > 0
            assert served.http.get("/v1/models", headers=heads["anna"]).status_code == 200  # which costs nothing
            assert post(heads["the-batch"]).status_code == post(other).status_code == 200
        for path in ("/v1/completions", "/window/decode"):  # whoever leaves frees the place
            served.until(lambda path=path: post(heads["anna"], path).status_code == 200)
        assert post(heads["the-batch"], max_tokens=80).status_code == 200
        late = post(heads["the-batch"])
        assert late.status_code == 429
        assert 1 < int(late.headers["retry-after"]) <= 60
        assert post(other).status_code == 200
        served.until(lambda: 'unspool_key_inside{key="anna"} 0' in figures())
        counted = figures()
    assert 'unspool_key_refused_total{key="the-batch"} 1' in counted
    assert f'unspool_key_tokens_total{{key="the-batch"}} {3 + 3 + 3 + 80}' in counted
    shown = int(re.search(r'unspool_key_tokens_total{key="anna"} (\d+)', counted)[1])
    assert shown >= 4 + 2 * (3 + 3)  # the prompt of the long one, and what the short ones read and wrote
    assert {line.get("key") for line in told[-7:]} == {"anna", "the-batch", None}
    assert "cret-" not in counted + str(told)


def test_who_has_a_named_key_sees_no_other_in_the_figures(lm):
    """The operator's own key, which has no name, sees all; there is nothing of keys where there are none."""
    anna, batch = Client("anna", "a"), Client("the-batch", "b")
    with serving(lm, keys=("plain",), clients=(anna, batch)) as served:

        def names(key):
            told = served.http.get("/metrics", headers={"authorization": f"Bearer {key}"}).text
            assert "unspool_queue_length" in told
            return {*re.findall('key="(.*?)"', told)}

        assert [names(key) for key in ("a", "b", "plain")] == [{"anna"}, {"the-batch"}, {"anna", "the-batch"}]
        assert served.http.get("/metrics").status_code == 401
        for path in ("/metrics", "/window/methods", "/openapi.json", "/v1/models", "/v1/models/x", "/x"):
            assert "the-batch" not in served.http.get(path, headers={"authorization": "Bearer a"}).text
    with serving(lm) as served:
        assert "_key_" not in served.http.get("/metrics").text


def test_each_server_counts_for_itself_up_to_the_bounds(lm):
    """Of several servers in one process, each has its own figures; those of a metric are named as they always were."""
    busy, idle = ServerMetrics(Worker(lm, Limits())), ServerMetrics(Worker(lm, Limits()))
    for seconds, tokens in ((SECONDS[0], 1), (2 * SECONDS[0], 2), (0.0011, 1), (3e9, 3)):
        busy.more_tokens(seconds, tokens)
    told = busy.text().decode().splitlines()
    assert "# TYPE unspool_token_seconds histogram" in told
    for expected in ('bucket{le="0.001"} 3.0', 'bucket{le="0.0025"} 4.0', 'bucket{le="+Inf"} 7.0', "count 7.0"):
        assert f"unspool_token_seconds_{expected}" in told
    assert 'unspool_requests_total{outcome="busy"} 0.0' in told
    assert "unspool_token_seconds_count 0.0" in idle.text().decode().splitlines()
    assert not [line for line in told if "_created" in line]


def test_keys_of_a_file_on_the_command_line(tmp_path, folder):
    from click.testing import CliRunner

    from unspool.apps.cli.root import root

    path = tmp_path / "keys.toml"
    path.write_text('[a]\nkey = ""', encoding="utf-8")
    ran = CliRunner().invoke(root, ["serve", "-m", str(folder), "--keys", str(path)], standalone_mode=False)
    assert "the key of a is empty" in str(ran.exception)
    assert "starting" not in ran.output
