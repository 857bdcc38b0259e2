"""Report sizes of files, functions and pages of the documentation; fail on what is too long."""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LINES, FUNCTION_LINES, PARAMETERS, PAGE_LINES = 400, 60, 6, 200
# may take more parameters: estimators as in scikit-learn (by their bases), commands and compiled
# kernels (by decorator), and these public functions
ESTIMATORS = {"BaseEstimator", "RPML"}
DECORATORS = {"command", "compiled"}
PUBLIC = {"fit_triplets", "compare", "recommend", "embed"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(
    tree: ast.AST, bases: frozenset[str] = frozenset()
) -> Iterator[tuple[frozenset[str], Function]]:
    """Every function, with the bases of the class around it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield bases, node
        own = bases
        if isinstance(node, ast.ClassDef):
            own = frozenset(ast.unparse(base) for base in node.bases)
        yield from functions(node, own)


def body_length(node: Function) -> int:
    """Lines of code: from the first statement after the docstring to the end."""
    body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    return (node.end_lineno or 0) - body[0].lineno + 1


def parameters(node: Function) -> int:
    args = node.args
    names = [a.arg for a in args.posonlyargs + args.args + args.kwonlyargs]
    return len([n for n in names if n not in ("self", "cls")])


def may_take_more(bases: frozenset[str], node: Function) -> bool:
    calls = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    decorated = any(isinstance(d, ast.Name) and d.id in DECORATORS for d in calls)
    return decorated or bool(bases & ESTIMATORS) or node.name in PUBLIC


def main() -> int:
    problems, lengths = [], []
    paths = sorted(Path("src").rglob("*.py"))
    for path in paths:
        text = path.read_text(encoding="utf8")
        lines = text.count("\n")
        if lines > FILE_LINES:
            problems.append(f"{path}: {lines} lines (limit {FILE_LINES})")
        for bases, node in functions(ast.parse(text)):
            place = f"{path}:{node.lineno} {node.name}"
            length, count = body_length(node), parameters(node)
            lengths.append(length)
            if length > FUNCTION_LINES:
                problems.append(f"{place}: {length} lines (limit {FUNCTION_LINES})")
            if count > PARAMETERS and not may_take_more(bases, node):
                problems.append(f"{place}: {count} parameters (limit {PARAMETERS})")
    for page in sorted([Path("README.md"), *Path("docs").rglob("*.md")]):
        lines = page.read_text(encoding="utf8").count("\n") if page.exists() else 0
        if lines >= PAGE_LINES:
            problems.append(f"{page}: {lines} lines (a page has fewer than {PAGE_LINES})")
    median = statistics.median(lengths) if lengths else 0
    print(f"{len(paths)} files, {len(lengths)} functions, median {median:g} lines per function")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
