"""README and docs: every code block runs, every name and file they mention exists."""

import ast
import importlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rpml
from rpml.cli.app import app
from tests import postgresql

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
FENCE = re.compile(
    r"(?:<!-- (?:needs: (?P<needs>[\w., ]+)|(?P<output>output)) -->\n)?"
    r"^```(?P<language>\w*)(?P<info>[^\n]*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
SHELL = {"bash", "sh", "shell", "console"}
INSTALLS = re.compile(r"(pip install|git clone|make |cd )")


@dataclass(frozen=True)
class Block:
    language: str
    info: str
    code: str
    needs: tuple[str, ...]
    is_output: bool = False  # what the block before it prints

    @property
    def missing(self):
        return [name for name in self.needs if not installed(name)]


def installed(name):
    """Whether there is a Python module, or one of two programs, of that name."""
    if name == "postgresql":
        return postgresql.binaries() is not None
    return shutil.which(name) if name == "node" else importlib.util.find_spec(name) is not None


def blocks(page):
    for match in FENCE.finditer(page.read_text(encoding="utf8")):
        needs = tuple(n.strip() for n in (match["needs"] or "").split(",") if n.strip())
        yield Block(match["language"], match["info"], match["code"], needs, bool(match["output"]))


def runnable(page):
    return any(b.language == "python" or b.language in SHELL for b in blocks(page))


def run_shell(code, folder):
    """Plain rpml lines in this process, which saves an import each; the rest in bash."""
    for line in re.sub(r"\\\n\s*", " ", code).splitlines():
        line = line.strip().removeprefix("$ ")
        if not line or line.startswith("#") or INSTALLS.match(line):
            continue
        words = shlex.split(line, comments=True)
        if words[0] == "rpml" and not set("|<>&;$") & set(line):
            result = CliRunner().invoke(app, words[1:])
            assert result.exit_code == 0, f"{line}\n{result.stderr}"
            continue
        env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        script = ["bash", "-euo", "pipefail", "-c", line]
        done = subprocess.run(script, cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


NUMBER = re.compile(r"\d[\d,]*\.?\d*")


def same_output(printed, shown):
    """The same words, and numbers within 3%: another processor rounds differently."""
    if NUMBER.sub("0", printed).split() != NUMBER.sub("0", shown).split():
        return False
    values = [[float(n.replace(",", "")) for n in NUMBER.findall(s)] for s in (printed, shown)]
    return values[0] == pytest.approx(values[1], rel=0.03)


def run_block(block, names, folder, page):
    title = re.search(r'title="([^"]+)"', block.info)
    if title:
        (folder / title[1]).write_text(block.code, encoding="utf8")
    elif block.language == "python":
        exec(compile(block.code, str(page), "exec"), names)
    elif block.language in SHELL:
        run_shell(block.code, folder)


@pytest.fixture
def database():
    with postgresql.server() as environment:
        yield environment


@pytest.mark.parametrize(
    "page", [p for p in PAGES if runnable(p)], ids=lambda p: str(p.relative_to(ROOT))
)
def test_page(page, tmp_path, monkeypatch, request, capsys):
    monkeypatch.chdir(tmp_path)
    if importlib.util.find_spec("sentence_transformers"):
        local_encoder(monkeypatch)
    names = {"__name__": "docs"}
    missing = []
    if any("postgresql" in block.needs and not block.missing for block in blocks(page)):
        for name, value in request.getfixturevalue("database").items():
            monkeypatch.setenv(name, value)
    for block in blocks(page):
        if block.missing:
            missing += block.missing
        elif block.is_output:
            printed = capsys.readouterr().out
            assert same_output(printed, block.code), f"printed:\n{printed}"
        else:
            capsys.readouterr()  # only what the block before an output prints
            run_block(block, names, tmp_path, page)
    if missing:
        pytest.skip(f"ran but for the blocks that need {', '.join(missing)}")


def local_encoder(monkeypatch):
    """A small random encoder in place of the one the recipe downloads."""
    import sentence_transformers
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    original = sentence_transformers.SentenceTransformer
    words = ["[UNK]", "question", "number", "about", "cards", "loans", "how", "get", "card"]
    vocabulary = {word: i for i, word in enumerate([*words, *map(str, range(40))])}

    def make(name=None, *args, **options):
        if name != "sentence-transformers/all-MiniLM-L6-v2":
            return original(name, *args, **options)
        tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
        tokenizer.pre_tokenizer = Whitespace()
        return original(modules=[StaticEmbedding(tokenizer, embedding_dim=32)], device="cpu")

    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", make)


def test_the_parser_finds_the_blocks(tmp_path):
    page = tmp_path / "p.md"
    page.write_text('<!-- needs: a, b -->\n```python\nx\n```\n\n```toml title="t"\ny\n```\n')
    first, second = blocks(page)
    assert (first.language, first.code, first.needs) == ("python", "x\n", ("a", "b"))
    assert (second.language, second.code) == ("toml", "y\n")


def test_outputs_are_compared():
    assert same_output("raw: 77.9%\n1,331 rows\n", "raw: 77.8%\n1,330 rows\n")
    assert not same_output("raw: 70.0%", "raw: 77.8%")
    assert not same_output("PCA: 77.8%", "raw: 77.8%")


def test_an_output_block_is_found(tmp_path):
    page = tmp_path / "p.md"
    page.write_text("```python\nprint(1)\n```\n\n<!-- output -->\n```text\n1\n```\n")
    assert [block.is_output for block in blocks(page)] == [False, True]


def test_a_failing_block_fails(tmp_path):
    with pytest.raises(AssertionError):
        run_shell("rpml inspect absent.npy", tmp_path)
    with pytest.raises(AssertionError):
        run_shell("false | cat", tmp_path)


def resolve(dotted):
    """The module, or the attribute of one, that a dotted name stands for."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for name in parts[end:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(dotted)


def mentioned(page):
    """Names of the package in backticks; those of method.md are relative to rpml.method."""
    text = FENCE.sub("", page.read_text(encoding="utf8"))
    dotted = re.findall(r"`([a-z_]+(?:\.\w+)+)[`(]", text)
    files = (".json", ".toml")
    names = {n for n in dotted if n.startswith("rpml.") and not n.endswith(files)}
    if page.name == "method.md":
        stages = {path.stem for path in (ROOT / "src/rpml/method").iterdir()}
        names |= {f"rpml.method.{name}" for name in dotted if name.split(".")[0] in stages}
    return sorted(names)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_names_and_files_exist(page):
    for name in mentioned(page):
        resolve(name)
    text = page.read_text(encoding="utf8")
    for path in re.findall(r"`((?:src|tests|benchmarks|scripts|docs)/[\w/.-]+\.\w+)`", text):
        assert (ROOT / path).exists(), path
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        source = (ROOT / path).read_text(encoding="utf8")
        assert f"\ndef {name}(" in source, f"{path} has no {name}"
    assert not re.findall(r"`(?!tests/)[^`\s]*\btest_\w+`", text)  # a test is named with its file


def test_the_api_reference_has_every_public_name():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf8")
    listed = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    for name in listed:
        resolve(name)
    public = {f"rpml.{name}" for name in rpml.__all__ if not name.startswith("_")}
    assert public <= set(listed)


def string_constants():
    """The text of all strings in the source; parts of an f-string are separated."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_the_messages_of_troubleshooting_exist():
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf8")
    source = "\n".join(string_constants())
    messages = [" ".join(m.split()) for m in re.findall(r"\*\*`([^`]+)`\*\*", text)]
    assert len(messages) > 15
    for message in messages:
        for part in message.split("…"):
            assert part.strip() in source, f"no such message: {part} of {message}"


UNIDIOMATIC = re.compile(
    r"\b(?:numbers|values?|labels?|figures?|pairs?|rows?|points?|files?|lines?|heaps?|bytes|bits"
    r"|seconds|dimensions|queries|neighbors|steps|images|clusters|GB|MB|ms) an? "
    r"(?:vector|row|class|line|partition|pair|cluster|set|image|instance|command|thing|query|second"
    r"|dimension|page|worker|iteration|thread|triplet|byte|split|seed|method)\b"
    r"|\bR@1 less\b|\bless PCA's\b|\basked size\b|\bmost telling\b"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_per_row_not_a_row(page):
    assert not UNIDIOMATIC.findall(page.read_text(encoding="utf8"))


STUMBLES = re.compile(r"\b(?:mates|told|foreign|beside|stepped back)\b|\d[eE]\+\d")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_word_that_strangers_stumble_over(page):
    prose = re.sub(r"`[^`]*`", "", FENCE.sub("", page.read_text(encoding="utf8")))
    assert not STUMBLES.findall(prose)


def test_no_message_has_a_word_that_strangers_stumble_over():
    assert not [text for text in string_constants() if STUMBLES.search(text)]


def test_per_row_not_a_row_in_the_source():
    found = {path.name: UNIDIOMATIC.findall(path.read_text(encoding="utf8")) for path in SOURCES}
    assert not {name: words for name, words in found.items() if words}


def anchors(page):
    """What a link to a heading of the page may end in."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf8")), re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", title).strip().lower() for title in titles)
    return {re.sub(r"[-\s]+", "-", title) for title in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_resolve(page):
    text = FENCE.sub("", page.read_text(encoding="utf8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert "://" in link or target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("folder", ["benchmarks", "scripts"])
def test_what_commands_outside_the_package_import_exists(folder):
    for path in (ROOT / folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rpml"):
                module = importlib.import_module(node.module)
                missing = [name.name for name in node.names if not hasattr(module, name.name)]
                assert not missing, f"{path}: {node.module} has no {missing}"


@pytest.mark.parametrize("made_by", ["cli_reference", "gallery_figure"])
def test_generated_pages_and_pictures_are_up_to_date(made_by):
    script = ROOT / "scripts" / f"{made_by}.py"
    done = subprocess.run([sys.executable, script, "--check"])
    assert done.returncode == 0, f"run scripts/{made_by}.py"


def test_the_navigation_has_every_page():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf8")
    listed = set(re.findall(r"[:-] (\S+\.md)$", text, re.MULTILINE))
    docs = ROOT / "docs"
    assert listed == {str(page.relative_to(docs)) for page in docs.rglob("*.md")}


def generated():
    """The commands of `make pages`."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Makefile").read_text(encoding="utf8"))
    return re.search(r"^PAGES\s*:= (.+)$", text, re.MULTILINE)[1].split()


@pytest.mark.thorough
def test_generated_figures_are_those_of_the_results(tmp_path):
    """Nobody edits a generated figure, and no result changes without its pages."""
    (tmp_path / "benchmarks").mkdir()
    for path in (ROOT / "benchmarks").glob("*.py"):
        shutil.copy(path, tmp_path / "benchmarks")
    (tmp_path / "benchmarks" / "results").symlink_to(ROOT / "benchmarks" / "results")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    for name in generated():
        subprocess.run([sys.executable, tmp_path / "benchmarks" / f"{name}.py"], check=True)
    old = [
        str(page.relative_to(ROOT))
        for page in PAGES
        if page.read_bytes() != (tmp_path / page.relative_to(ROOT)).read_bytes()
    ]
    assert not old, "run make pages"


def test_every_page_command_is_run_by_make_pages():
    written = {path.stem for path in (ROOT / "benchmarks").glob("*_page.py")}
    assert written <= set(generated())
