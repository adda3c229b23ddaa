"""Forwarded addresses: where a request came from before it came through the operator's own proxies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

from ...core.errors import BadRequest, cut

HOP = 64  # characters of one address in the header; the longest that there is has 51, with brackets and a port
Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network


def trusted_networks(given: Iterable[str]) -> tuple[Network, ...]:
    """The networks of proxies that an operator names, each by an address or a network, also joined by commas."""
    return tuple(_network(part.strip()) for each in given for part in each.split(","))


def _network(given: str) -> Network:
    try:
        network = ip_network(given)
    except ValueError:
        raise BadRequest(
            f"--trusted-proxies: {cut(given)!r} is no address and no network; expected 127.0.0.1 or 10.1.2.0/24, say"
        ) from None
    if not network.prefixlen:
        raise BadRequest(f"--trusted-proxies: {given} is everybody, who could then say any address; name proxies")
    return network


@dataclass(frozen=True)
class ForwardedClient:
    """Puts the client's address, as trusted proxies forward it, in place of the last proxy's.

    Each proxy adds to the header X-Forwarded-For whom it was called by, at the right end. So the list is read from
    there, for as long as who says it is trusted; what stands further left may be made up by the client. Where a trusted
    proxy says what is no address, that proxy is the client. From anybody else the header is not read at all.
    """

    app: ASGIApp
    trusted: tuple[Network, ...]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope.get("client"):
            seen = _read(scope["client"][0])
            if seen is not None and (found := self._origin(seen, scope)) != seen:
                scope = {**scope, "client": (str(found), 0)}
        await self.app(scope, receive, send)

    def _origin(self, peer: Address, scope: Scope) -> Address:
        hops = _hops(scope)
        while any(peer in network for network in self.trusted):
            before = _read(next(hops, ""))
            if before is None:
                break
            peer = before
        return peer


def _hops(scope: Scope) -> Iterator[str]:
    """Who is said to have called, the last one first; of several headers the last line."""
    for name, value in reversed(scope["headers"]):
        if name == b"x-forwarded-for":
            left = value.decode("latin-1")
            while left:
                left, _, hop = left.rpartition(",")
                yield hop.strip()


def _read(hop: str) -> Address | None:
    """An address, with or without brackets and port; None if it is none. One of IPv4 inside IPv6 is that of IPv4."""
    if len(hop) > HOP:
        return None
    if hop.startswith("["):
        hop = hop[1:].partition("]")[0]
    elif hop.count(":") == 1:
        hop = hop.partition(":")[0]
    try:
        address = ip_address(hop.partition("%")[0])  # behind which anything may stand
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address
