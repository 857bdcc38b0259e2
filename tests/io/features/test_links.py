"""Pairs and triplets of rows in text files."""

import numpy as np
import pytest

from rpml.io.features.labels import read_links
from rpml.runtime.errors import InputError


def written(tmp_path, text, name="pairs.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf8")
    return path


def test_row_numbers_with_and_without_names_and_weights(tmp_path):
    links, lines = read_links(written(tmp_path, "0,3\n\n2,1,0.5\n"), 2, 4)
    np.testing.assert_array_equal(links, [[0, 3, 1], [2, 1, 0.5]])
    assert lines == [1, 3]
    named, order = read_links(written(tmp_path, "a\tb\tc\n0\t1\t2\n", "order.tsv"), 3, 4)
    np.testing.assert_array_equal(named, [[0, 1, 2, 1]])
    assert order == [2]


def test_ids_of_the_features(tmp_path):
    ids = np.array(["7", "owl", "jay"])
    links, _ = read_links(written(tmp_path, "one,two\nowl,7\njay,owl,2\n"), 2, 3, ids)
    np.testing.assert_array_equal(links, [[1, 0, 1], [2, 1, 2]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,b\n", "line 1: 'a' is not a row number from 0 to 3"),
        ("0,1\n2\n", "line 2: 2 rows and perhaps a weight are expected, not 1 field"),
        ("0,1\n2,9\n", "line 2: '9' is not a row number from 0 to 3"),
        ("0,1\n2,1.5\n", "line 2: '1.5' is not a row number"),
        ("0,1\n2,1,-1\n", "line 2: the weight '-1' is not a positive number"),
        ("0,1\n2,1,much\n", "line 2: the weight 'much' is not"),
    ],
)
def test_errors_name_file_and_line(tmp_path, text, message):
    path = written(tmp_path, text)
    with pytest.raises(InputError) as error:
        read_links(path, 2, 4)
    assert str(path) in str(error.value)
    assert message in str(error.value)


def test_unknown_ids_are_named(tmp_path):
    with pytest.raises(InputError, match="line 2: 'owlet' is not an id of the features"):
        read_links(written(tmp_path, "owl,jay\nowl,owlet\n"), 2, 2, np.array(["owl", "jay"]))
