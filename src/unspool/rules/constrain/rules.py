"""The rules of a grammar in Lark's notation, read just far enough to tell whether they derive anything finite."""

from __future__ import annotations

import re

from .finite import ALWAYS, AndOrGraph

_TOKENS = re.compile(
    r"""(?P<space>[ \t\r]+|//[^\n]*|\#[^\n]*)
    | (?P<line>\n)
    | (?P<known>"(?:\\.|[^"\\\n])*"i?|/(?:\\.|[^/\\\n])+/[a-z]*|<[^>\n]*>|@[\w-]+)
    | (?P<name>[?!]?[A-Za-z_]\w*)
    | (?P<count>~[ ]*[0-9]+(?:[ ]*\.\.[ ]*[0-9]+)?|\{[ ]*[0-9]*[ ]*(?:,[ ]*[0-9]*[ ]*)?\})
    | (?P<alias>->[ ]*\w+)
    | (?P<range>\.\.)
    | (?P<sign>[:|()\[\]?*+])""",
    re.VERBOSE,
)


class _Unknown(Exception):
    """A notation that is not read here."""


def endless(source: str) -> tuple[str, ...]:
    """If nothing finite comes of `start`, the rules of which that is true; () if something does, or if in doubt."""
    try:
        rules = _rules(source)
        graph = AndOrGraph()
        nodes = {name: graph.later() for name in rules}
        for name, body in rules.items():
            graph.settle(nodes[name], _Reader(body, nodes, graph).whole())
    except (_Unknown, RecursionError):
        return ()
    fine = graph.productive()
    if nodes.get("start", ALWAYS) in fine:
        return ()
    return tuple(name for name, node in nodes.items() if node not in fine)


def _rules(source: str) -> dict[str, list[tuple[str, str]]]:
    """Every rule's name with the tokens of its body; a line that begins with | goes on with the rule before it."""
    rules: dict[str, list[tuple[str, str]]] = {}
    body: list[tuple[str, str]] | None = None
    for line in _lines(source):
        if line[0] == ("sign", "|") and body is not None:
            body += line
            continue
        if len(line) < 2 or line[0][0] != "name" or line[1] != ("sign", ":"):
            raise _Unknown
        name = line[0][1].lstrip("?!")
        if name in rules:
            raise _Unknown
        body = rules[name] = line[2:]
    return rules


def _lines(source: str) -> list[list[tuple[str, str]]]:
    """The tokens of every line that is not blank and no directive; what stands in brackets may go over several."""
    lines: list[list[tuple[str, str]]] = [[]]
    at, deep = 0, 0
    while at < len(source):
        if source[at] == "%":
            directive = re.compile(r"%(import|ignore|declare|llguidance)\b[^\n]*").match(source, at)
            if directive is None or lines[-1]:
                raise _Unknown
            at = directive.end()
            continue
        found = _TOKENS.match(source, at)
        if found is None or found.lastgroup is None:
            raise _Unknown
        at = found.end()
        deep += found[0] in ("(", "[")
        deep -= found[0] in (")", "]")
        if found.lastgroup == "line":
            lines += [] if deep else [[]]
        elif found.lastgroup != "space":
            lines[-1].append((found.lastgroup, found[0]))
    return [line for line in lines if line]


class _Reader:
    """The body of a rule as nodes: alternatives of sequences of parts, each of them once, optional or several times."""

    def __init__(self, body: list[tuple[str, str]], nodes: dict[str, int], graph: AndOrGraph) -> None:
        self._body, self._nodes, self._graph, self._at = body, nodes, graph, 0

    def whole(self) -> int:
        node = self._alternatives()
        if self._at < len(self._body):
            raise _Unknown
        return node

    def _next(self) -> tuple[str, str]:
        return self._body[self._at] if self._at < len(self._body) else ("end", "")

    def _take(self) -> tuple[str, str]:
        token = self._next()
        self._at += 1
        return token

    def _alternatives(self) -> int:
        ways = [self._sequence()]
        while self._next() == ("sign", "|"):
            self._take()
            ways.append(self._sequence())
        return self._graph.some(ways)

    def _sequence(self) -> int:
        parts: list[int] = []
        while self._next()[0] in ("known", "name", "alias") or self._next()[1] in ("(", "["):
            kind, text = self._take()
            if kind == "alias":
                continue
            node = ALWAYS if kind == "known" else self._nodes.get(text, ALWAYS)
            if kind == "sign":
                node = self._alternatives()
                if self._take() != ("sign", ")" if text == "(" else "]"):
                    raise _Unknown
                node = node if text == "(" else ALWAYS
            elif self._next()[0] == "range":
                self._at += 2  # "a".."z"
            parts.append(self._repeated(node))
        return self._graph.every(parts)

    def _repeated(self, node: int) -> int:
        while True:
            kind, text = self._next()
            if text in ("?", "*") or (kind == "count" and re.search(r"\{[ ]*,|[~{][ ]*0+\b", text)):
                node = ALWAYS
            elif text != "+" and kind != "count":
                return node
            self._take()
