"""Report file and function sizes; fail on what DESIGN sets as the limit."""

from __future__ import annotations

import ast
import statistics
import sys
from pathlib import Path

FILE_LINES, FUNCTION_LINES, PARAMETERS = 500, 60, 6


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def body_length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of code: from the first statement after the docstring to the end."""
    body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
    return (node.end_lineno or 0) - body[0].lineno + 1


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    args = node.args
    names = [a.arg for a in args.posonlyargs + args.args + args.kwonlyargs]
    return len([n for n in names if n not in ("self", "cls")])


def main() -> int:
    problems, lengths = [], []
    paths = sorted(Path("src").rglob("*.py"))
    for path in paths:
        text = path.read_text(encoding="utf8")
        lines = text.count("\n")
        if lines > FILE_LINES:
            problems.append(f"{path}: {lines} lines (limit {FILE_LINES})")
        for node in functions(ast.parse(text)):
            length = body_length(node)
            lengths.append(length)
            if length > FUNCTION_LINES:
                problems.append(f"{path}:{node.lineno} {node.name}: {length} lines")
            public_call = node.name == "__init__" or "cli" in path.parts
            if parameters(node) > PARAMETERS and not public_call:
                count = parameters(node)
                print(f"note: {path}:{node.lineno} {node.name} takes {count} parameters")
    median = statistics.median(lengths) if lengths else 0
    print(f"{len(paths)} files, {len(lengths)} functions, median {median:g} lines a function")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
