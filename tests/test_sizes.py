"""The limits on files, functions and parameters hold, and the check can fail."""

import ast
import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parent.parent / "scripts" / "sizes.py"
spec = importlib.util.spec_from_file_location("sizes", PATH)
sizes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sizes)


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ("def f(a, b, c, d, e, f, g): ...", False),
        ("class C:\n def f(self, a, b, c, d, e, f, g): ...", False),
        ("class C(BaseEstimator):\n def fit(self, a, b, c, d, e, f, g): ...", True),
        ("@compiled()\ndef f(a, b, c, d, e, f, g): ...", True),
        ("@command\ndef run(a, b, c, d, e, f, g): ...", True),
    ],
)
def test_who_may_take_more_than_six_parameters(source, allowed):
    ((bases, node),) = sizes.functions(ast.parse(source))
    assert sizes.parameters(node) == 7
    assert sizes.may_take_more(bases, node) is allowed


def test_long_files_and_functions_fail(tmp_path, monkeypatch, capsys):
    (tmp_path / "src").mkdir()
    body = "\n".join("    x = 1" for _ in range(61))
    (tmp_path / "src" / "long.py").write_text(f"def f():\n{body}\n" + "y = 2\n" * 400)
    monkeypatch.chdir(tmp_path)
    assert sizes.main() == 1
    out = capsys.readouterr().out
    assert "462 lines (limit 400)" in out
    assert "f: 61 lines (limit 60)" in out


def test_a_long_page_of_the_documentation_fails(tmp_path, monkeypatch, capsys):
    (tmp_path / "docs" / "decisions").mkdir(parents=True)
    (tmp_path / "docs" / "decisions" / "short.md").write_text("x\n" * 199)
    monkeypatch.chdir(tmp_path)
    assert sizes.main() == 0
    (tmp_path / "docs" / "decisions" / "long.md").write_text("x\n" * 200)
    assert sizes.main() == 1
    out = capsys.readouterr().out
    assert "long.md: 200 lines" in out
    assert "short.md" not in out
