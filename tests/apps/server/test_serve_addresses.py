"""Whose address counts: the connection's, unless proxies that the operator trusts say who called them."""

import asyncio

import pytest

pytest.importorskip("fastapi")

from serving import folder, lm, serving, told  # noqa: F401 (fixtures)

from unspool.apps.server.counts import client, subscriber
from unspool.apps.server.forwarded import ForwardedClient, trusted_networks
from unspool.apps.server.limits import Limits
from unspool.apps.server.running import configured
from unspool.core.errors import BadRequest

TRUSTED = ("127.0.0.1, 10.0.0.0/8", "fd00::/8")


def origin(peer, *lines, trusted=TRUSTED):
    """The address that an application is told of."""
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["client"])

    heads = [(b"x-forwarded-for", line.encode("latin-1")) for line in lines]
    scope = {"type": "http", "client": (peer, 5), "headers": [(b"host", b"a"), *heads]}
    asyncio.run(ForwardedClient(app, trusted_networks(trusted))(scope, None, None))
    return seen[0][0]


@pytest.mark.parametrize(
    ("peer", "lines", "expected"),
    [
        ("192.0.2.7", ["198.51.100.1"], "192.0.2.7"),  # nobody whom the operator has named
        ("127.0.0.2", ["198.51.100.1"], "127.0.0.2"),
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", ["203.0.113.9, 198.51.100.1"], "198.51.100.1"),  # what stands left of it, the client made up
        ("127.0.0.1", ["203.0.113.9, 198.51.100.1, 10.2.3.4"], "198.51.100.1"),
        ("127.0.0.1", ["203.0.113.9", "198.51.100.1", "10.2.3.4"], "198.51.100.1"),  # a list in several lines
        ("127.0.0.1", ["198.51.100.1:4711"], "198.51.100.1"),
        ("127.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("127.0.0.1", ["2001:DB8:0::1"], "2001:db8::1"),
        ("::ffff:127.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"),  # of a server that listens on ::
        ("fd00::5", ["198.51.100.1"], "198.51.100.1"),
        ("127.0.0.1", ["10.0.0.5"], "10.0.0.5"),  # one of the proxies itself
        ("127.0.0.1", ["198.51.100.1, unknown"], "127.0.0.1"),  # whoever it was, it was not the one before
        ("127.0.0.1", ["198.51.100.1, 10.2.3.4, "], "127.0.0.1"),
        ("127.0.0.1", ["198.51.100.1, 10.2.3.4\x1b[31m"], "127.0.0.1"),
        ("127.0.0.1", ["1" * 60_000], "127.0.0.1"),
        ("127.0.0.1", ["10.0.0.1," * 5000], "127.0.0.1"),
        ("127.0.0.1", ["fe80::1%\x1b[2J"], "fe80::1"),
        ("testclient", ["198.51.100.1"], "testclient"),
    ],
)
def test_the_last_address_that_no_trusted_proxy_has_counts(peer, lines, expected):
    assert origin(peer, *lines) == expected


@pytest.mark.parametrize("given", ["*", "", "proxy.example", "10.0.0.1/8", "0.0.0.0/0", "::/0", "127.0.0.1,,10.0.0.1"])
def test_what_names_no_proxies_is_refused(given):
    with pytest.raises(BadRequest, match="--trusted-proxies"):
        trusted_networks([given])


def test_a_local_process_may_not_say_where_it_comes_from(lm, told, monkeypatch):  # noqa: F811
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # which uvicorn would heed
    assert not configured(None, Limits(), 1.0).proxy_headers
    spoofed = {"X-Forwarded-For": "203.0.113.5", "X-Real-IP": "203.0.113.5", "Forwarded": "for=203.0.113.5"}
    body = {"prompt": "abc", "max_tokens": 1}
    for proxies, expected in (((), "127.0.0.1"), (trusted_networks(["127.0.0.1"]), "203.0.113.5")):
        with serving(lm, proxies=proxies) as served:
            assert served.http.post("/v1/completions", json=body, headers=spoofed).status_code == 200
            assert served.http.post("/v1/completions", content=b"{", headers=spoofed).status_code == 415
        assert [line["client"] for line in told[-2:]] == [expected] * 2


@pytest.mark.parametrize(
    ("one", "another", "same"),
    [
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),  # anybody has all of these
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("::ffff:198.51.100.1", "198.51.100.1", True),
        ("::ffff:198.51.100.1", "::ffff:198.51.100.2", False),
        ("198.51.100.1", "198.51.100.2", False),
        ("", "testclient", False),
        ("a:b", "a:c", False),
    ],
)
def test_who_has_a_network_of_addresses_is_one_client(one, another, same):
    assert (subscriber(one) == subscriber(another)) is same
    assert (client({"client": (one, 1)}) == client({"client": (another, 2)})) is same
