"""--nuisance and --queries of rpml fit, compare and recommend."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from rpml import RPML, compare, recommend
from rpml.cli.options.knowledge import read_nuisance_columns
from rpml.cli.options.reading import LabeledReadingOptions
from rpml.io.features import Features
from tests.languages import translations

NAMES = np.array(["de", "en", "fr", "tr"])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("languages")
    X, _, v = translations()
    X = X.astype(np.float32)
    np.save(folder / "x.npy", X)
    (folder / "language.txt").write_text("\n".join(NAMES[v]) + "\n")
    (folder / "named.csv").write_text("language\n" + "\n".join(NAMES[v]) + "\n")
    table = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    table["language"] = NAMES[v]
    table["length"] = np.random.default_rng(0).standard_normal(len(X))
    table.to_parquet(folder / "x.parquet")
    np.save(folder / "q.npy", X[::7] + 2)
    return folder, X, NAMES[v], table["length"].to_numpy()


def same_map(path, library, X):
    model = RPML.load(path)
    assert model.whitening_.nuisance == library.whitening_.nuisance
    np.testing.assert_allclose(model.transform(X), library.transform(X), atol=1e-5)


@pytest.mark.parametrize(
    ("vectors", "given"),
    [("x.npy", "language.txt"), ("x.npy", "named.csv"), ("x.parquet", "language")],
)
def test_a_nuisance_from_a_file_or_a_column(rpml, files, tmp_path, vectors, given):
    folder, X, language, _ = files
    nuisance = given if given == "language" else folder / given
    more = ("--columns", "x*") if given == "language" else ()
    args = ("fit", folder / vectors, "-o", tmp_path / "m.rpml", "--dim", 16, *more)
    result = rpml(*args, "--nuisance", nuisance)
    same_map(tmp_path / "m.rpml", RPML(16, random_state=0).fit(X, nuisance=language), X)
    assert "of nearest neighbors share the nuisance" in result.stdout
    assert "3 directions removed" in result.stdout
    assert "higher than without it" in result.stdout
    assert "were nearest neighbors and are not among" in result.stdout


def test_several_columns_and_numbers(rpml, files, tmp_path):
    folder, X, language, length = files
    args = ("fit", folder / "x.parquet", "-o", tmp_path / "m.rpml", "--dim", 16)
    rpml(*args, "--nuisance", "language,length")
    known = pd.DataFrame({"language": language, "length": length})
    same_map(tmp_path / "m.rpml", RPML(16, random_state=0).fit(X, nuisance=known), X)


def test_a_matrix_is_several_columns_of_numbers(rpml, files, tmp_path):
    folder, X, _, length = files
    numbers = np.stack([length, np.sin(length)], axis=1)
    np.save(tmp_path / "numbers.npy", numbers)
    args = ("fit", folder / "x.npy", "-o", tmp_path / "m.rpml", "--dim", 16)
    rpml(*args, "--nuisance", tmp_path / "numbers.npy")
    same_map(tmp_path / "m.rpml", RPML(16, random_state=0).fit(X, nuisance=numbers), X)
    np.save(tmp_path / "few.npy", numbers[1:])
    refused = rpml.refused(*args, "--quiet", "--force", "--nuisance", tmp_path / "few.npy")
    assert f"({len(X) - 1}, 2) are not numbers for each of {len(X)} rows" in refused


MINUTES = np.arange(60)


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("minutes.npy", MINUTES.astype(np.float32), "f"),
        ("minutes.parquet", MINUTES.astype(float), "f"),
        ("missing.parquet", np.where(MINUTES > 0, MINUTES, np.nan), "f"),
        ("minutes.csv", [f"{m}.0" for m in MINUTES], "f"),
        ("cameras.npy", MINUTES, "i"),
        ("cameras.csv", MINUTES, "i"),
        ("few.npy", (MINUTES % 3).astype(float), "i"),
        ("padded.csv", [f"{m:02}" for m in MINUTES], "U"),
    ],
)
def test_floats_of_a_file_are_numbers_and_codes_are_categories(tmp_path, name, values, kind):
    """As in Python, also where the numbers of a file happen to be whole."""
    path, table = tmp_path / name, pd.DataFrame({"label": values})
    if name.endswith("npy"):
        np.save(path, values)
    elif name.endswith("csv"):
        table.to_csv(path, index=False)
    else:
        table.to_parquet(path)
    data = Features(np.zeros((60, 2), np.float32))
    (found,) = read_nuisance_columns(str(path), data, LabeledReadingOptions()).values()
    assert found.dtype.kind == kind
    np.testing.assert_array_equal(found, np.asarray(values, found.dtype))


def test_queries_from_a_file(rpml, files, tmp_path):
    folder, X, *_ = files
    args = ("fit", folder / "x.npy", "-o", tmp_path / "m.rpml", "--dim", 16)
    fields = rpml.json(*args, "--queries", folder / "q.npy")
    same_map(tmp_path / "m.rpml", RPML(16, random_state=0).fit(X, queries=X[::7] + 2), X)
    assert fields["output"] == str(tmp_path / "m.rpml")
    assert len(fields["separated"]) == 3
    assert all(0 <= row < len(X) for pair in fields["separated"] for row in pair)


def test_queries_with_the_columns_in_another_order_are_refused(rpml, files, tmp_path):
    X = files[1][:, :20]
    table = pd.DataFrame(X, columns=[f"f{i}" for i in range(20)])
    turned = table[table.columns[::-1]]
    for name, rows in {
        "x": table,
        "q": turned,
        "other": turned.set_axis(range(20), axis=1),
    }.items():
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    args = ("fit", tmp_path / "x.csv", "-o", tmp_path / "m.rpml", "--dim", 4, "-q", "--queries")
    refused = rpml.refused(*args, tmp_path / "q.csv")
    assert "queries have the columns of the vectors in another order" in refused
    rpml(*args, tmp_path / "other.csv")
    for ask in (RPML(4).fit, partial(recommend, bytes=2), compare):
        with pytest.raises(ValueError, match="columns of X in another order"):
            ask(table, queries=turned)


def test_recommend_names_the_command_with_the_knowledge(rpml, files):
    folder, *_ = files
    fields = rpml.json("recommend", folder / "x.parquet", "--dim", 16, "--nuisance", "language")
    assert (fields["choice"], fields["known"]) == ("rpml-known", ["nuisance"])
    assert fields["next"].endswith("x.parquet --dim 16 --nuisance language -o model.rpml")
    assert len(fields["separated"]) == 3
    shown = rpml("recommend", folder / "x.npy", "--dim", 16, "--queries", folder / "q.npy").stdout
    assert "of queries are queries" in shown


def test_compare_fits_with_and_without(rpml, files, tmp_path):
    folder, *_ = files
    arguments = ("compare", folder / "x.npy", "--dim", 16, "--methods", "pca", "--seeds", 1)
    language = ("--nuisance", folder / "language.txt")
    fields = rpml.json(*arguments, *language)
    assert [row["method"] for row in fields["measured"]] == ["pca", "rpml-known"]
    assert fields["verdict"]["choice"] == "rpml-known"
    refused = rpml.refused("compare", folder / "x.npy", "--bytes", 8, *language)
    assert "leave out --nuisance and --queries" in refused


def test_wrong_knowledge_is_refused_in_one_sentence(rpml, files, tmp_path):
    folder, X, *_ = files
    args = ("fit", folder / "x.npy", "-o", tmp_path / "m.rpml", "--dim", 16, "--quiet")
    np.save(tmp_path / "narrow.npy", X[:, :5])
    (tmp_path / "one.txt").write_text("a\n" * len(X))
    refused = rpml.refused(*args, "--queries", tmp_path / "narrow.npy")
    assert "narrow.npy has 5 columns" in refused
    (tmp_path / "few.txt").write_text("de\nen\n")
    refused = rpml.refused(*args, "--nuisance", tmp_path / "few.txt")
    assert f"--nuisance {tmp_path}/few.txt: " in refused
    assert "has 2 values, the features have" in refused
    assert "label" not in refused
    assert "one value for all rows" in rpml.refused(*args, "--nuisance", tmp_path / "one.txt")
    assert "no such file" in rpml.refused(*args, "--nuisance", "language")
    assert not (tmp_path / "m.rpml").exists()


def test_a_missing_nuisance_is_named(rpml, files, tmp_path):
    args = ("fit", files[0] / "x.npy", "-o", tmp_path / "m.rpml", "--quiet")
    assert "there is no such file, and" in rpml.refused(*args, "--nuisance", "none.csv")
    assert list(tmp_path.iterdir()) == []
