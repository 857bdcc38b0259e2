"""The table behind the page: rows that pass, their order, their cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rpml.pages.explorer.answers import Answers, RequestError
from rpml.pages.explorer.catalog import Catalog


@pytest.fixture(scope="module")
def answers(catalog: Catalog) -> Answers:
    n = len(catalog)
    metadata = {
        "price": ["" if i % 3 == 0 else str(i / 10) for i in range(n)],
        "ink": [["Red", "blue", "", "GREEN"][i % 4] for i in range(n)],
        "label": [f"twice {i}" for i in range(n)],
    }
    shown = replace(catalog, items=replace(catalog.items, metadata=metadata))
    return Answers(shown)


def rows(answers: Answers, **query: str) -> list[int]:
    named = {name.replace("__", "."): value for name, value in query.items()}
    found: list[int] = np.frombuffer(answers.table_rows(named), "<u4").tolist()
    return found


def test_columns(answers: Answers) -> None:
    columns = answers.table({})["columns"]
    numeric = {column["name"]: column["numeric"] for column in columns}
    assert list(numeric) == ["id", "label", "cluster", "price", "ink", "label (metadata)"]
    assert [name for name, is_numeric in numeric.items() if is_numeric] == ["cluster", "price"]


def test_empty_cells_are_last_in_both_directions(answers: Answers) -> None:
    up, down = rows(answers, by="price"), rows(answers, by="-price")
    assert up[:3] == [1, 2, 4]
    assert down[:3] == [299, 298, 296]
    assert up[200:] == down[200:] == list(range(0, 300, 3))


def test_text_is_sorted_without_case(answers: Answers) -> None:
    first = rows(answers, by="ink")
    assert [first[i] % 4 for i in (0, 75, 150, 225)] == [1, 3, 0, 2]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"where__price": "> 29.5"}, [296, 298, 299]),
        ({"where__price": ">=0.1 <= 0.4"}, [1, 2, 4]),
        ({"where__price": "= 29.8"}, [298]),
        ({"where__price": "9.9"}, [199, 299]),
        ({"where__price": "< 0.5", "where__ink": "gre"}, []),
        ({"where__price": "< 0.9", "where__ink": "=blue"}, [1, 5]),
        ({"where__ink": "=gre"}, []),
        ({"q": "twice 29", "where__ink": "RED"}, [292, 296]),
        ({"q": "Armenian/000", "by": "-price"}, None),
    ],
)
def test_filters(answers: Answers, query: dict[str, str], expected: list[int] | None) -> None:
    found = rows(answers, **query)
    assert found == expected if expected is not None else len(found) == 20


def test_labels_are_searched(answers: Answers, catalog: Catalog) -> None:
    wanted = [i for i, label in enumerate(catalog.items.labels or []) if label == "Armenian 7"]
    assert rows(answers, q="ARMENIAN 7") == wanted


def test_cells_are_of_the_rows_asked_for(answers: Answers, catalog: Catalog) -> None:
    first, second = answers.table_cells({"rows": "7,3"})["cells"]
    assert first[0] == catalog.items.ids[7]
    assert second[3:] == ["", "GREEN", "twice 3"]


@pytest.mark.parametrize("asked", ["", "x", "-1", "300", ",".join(["1"] * 201)])
def test_wrong_rows_are_refused(answers: Answers, asked: str) -> None:
    with pytest.raises(RequestError):
        answers.table_cells({"rows": asked})


@pytest.mark.parametrize("query", [{"by": "no"}, {"where__no": "1"}])
def test_an_unknown_column_is_refused(answers: Answers, query: dict[str, str]) -> None:
    with pytest.raises(RequestError) as error:
        rows(answers, **query)
    assert "there is no column 'no'" in error.value.sentence
