"""Every public method says what it does, or a base or a protocol says it for all that have it."""

import ast

from repository import ROOT


def classes() -> list[tuple[str, ast.ClassDef]]:
    return [
        (f"{file.relative_to(ROOT)}:{node.name}", node)
        for folder in ("src", "bench/src", "packages")
        for file in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    ]


def methods(node: ast.ClassDef) -> dict[str, str | None]:
    """The docstring of every public method."""
    functions = [each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return {each.name: ast.get_docstring(each) for each in functions if not each.name.startswith("_")}


def bases(node: ast.ClassDef) -> set[str]:
    named = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    return {base.attr if isinstance(base, ast.Attribute) else base.id for base in named}


def test_a_method_without_a_docstring_is_described_where_it_is_declared():
    found = classes()
    inherited = {base for _, node in found for base in bases(node)}
    declaring = [node for _, node in found if node.name in inherited or "Protocol" in bases(node)]
    described = {name for node in declaring for name, docstring in methods(node).items() if docstring}
    silent = [
        f"{place}.{name}"
        for place, node in found
        if not node.name.startswith("_")
        for name, docstring in methods(node).items()
        if not docstring and name not in described
    ]
    assert not silent, "\n".join(silent)
