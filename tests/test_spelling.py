"""One spelling across the product: American, as in scikit-learn's names."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ENDINGS = {".py", ".js", ".html", ".css", ".md", ".toml", ".yml"}
BRITISH = re.compile(
    r"neighbour|labell(?:ed(?!by)|ing)|colour|centre|centring|grey|licence|behaviour|favour"
    r"|judgement|acknowledgement"
    r"|(?:recogn|normal|optim|general|standard|minim|maxim|regular|vector|quant|serial|summar|factor"
    r"|initial|random|visual)is(?:e[ds]?|ers?|ing|ations?)(?![a-z])",
    re.IGNORECASE,
)


def british(text):
    """The words, and the lines they stand in."""
    return [
        f"{number}: {found[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for found in BRITISH.finditer(line)
    ]


def written():
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md"]
    for folder in ("src", "docs"):
        pages += [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in ENDINGS]
    return pages


def test_src_and_docs_are_american():
    found = {path: british(path.read_text(encoding="utf8")) for path in written()}
    assert len(found) > 200
    assert not [
        f"{path.relative_to(ROOT)}:{word}" for path, words in found.items() for word in words
    ]


@pytest.mark.parametrize("word", ["Neighbours kept", "_generalised_mean", "unlabelled", "centring"])
def test_british_words_are_found(word):
    assert british(f"fine\n{word}") == [f"2: {BRITISH.search(word)[0]}"]


@pytest.mark.parametrize(
    "word", ["aria-labelledby", "optimistic", "centers", "normalizes", "raise"]
)
def test_other_words_are_not(word):
    assert british(word) == []
