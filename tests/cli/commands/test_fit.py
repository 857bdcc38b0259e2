import json

import numpy as np
import pytest

from rpml import RPML
from tests.problems import dying_after_two_stages


def test_same_model_as_the_library(rpml, shared, vectors, tmp_path):
    X, _ = vectors
    model = RPML.load(shared / "model.rpml")
    library = RPML(4, n_neighbors=10, random_state=0).fit(X)
    np.testing.assert_allclose(model.transform(X), library.transform(X), atol=1e-6)


def test_same_seed_same_bytes_and_nothing_left_behind(rpml, shared, tmp_path):
    out = tmp_path / "again.rpml"
    rpml("fit", shared / "x.npy", "-o", out, "--dim", 4, "--neighbors", 10,
         "--seed", 0, "--keep-exemplars")  # fmt: skip
    assert out.read_bytes() == (shared / "model.rpml").read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["again.rpml"]


def test_json_is_one_object_and_the_rest_is_on_standard_error(rpml, shared, tmp_path):
    result = rpml(
        "fit", shared / "x.npy", "-o", tmp_path / "m.rpml", "--dim", 3, "--json", "--max-iter", 1,
        "--set", "training=always",
    )  # fmt: skip
    fields = json.loads(result.stdout)
    assert fields["rows"] == 240
    assert fields["dim"] == 3
    assert fields["converged"] is False
    assert any("stopped before it converged" in w for w in fields["warnings"])
    assert "nearest neighbors: 240/240, done in" in result.stderr
    assert "warning: RPML stopped" in result.stderr


def test_quiet(rpml, shared, tmp_path):
    result = rpml("fit", shared / "x.npy", "-o", tmp_path / "m.rpml", "--dim", 3, "-q", "--json")
    assert result.stderr == ""


def test_settings_reach_the_model_and_are_written_into_it(rpml, shared, tmp_path):
    out = tmp_path / "m.rpml"
    rpml(
        "fit", shared / "x.npy", "-o", out, "--dim", 2, "--weight", "constant",
        "--set", "whiten=none", "--set", "tol=1e-4", "--set", "alpha=40", "--seed", 7,
    )  # fmt: skip
    model = RPML.load(out)
    assert (model.weight, model.whiten, model.alpha) == ("constant", None, 40)
    assert model.tol == 1e-4
    used = rpml.json("inspect", out)["settings"]
    assert used["random_state"] == 7
    assert used["n_components"] == 2


def test_config_file_holds_any_option_and_the_command_line_wins(rpml, shared, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text(
        f'features = "{shared / "x.npy"}"\noutput = "{tmp_path / "m.rpml"}"\nseed = 3\n'
        '[fit]\ndim = 5\nweight = "constant"\nforce = true\nset = { alpha = 30.0, tol = 0.01 }\n'
        "[embed]\ndim = 2\n"
    )
    rpml("fit", "--config", config)
    rpml("fit", "--config", config, "--dim", 6)
    model = RPML.load(tmp_path / "m.rpml")
    assert (model.n_components, model.random_state, model.weight) == (6, 3, "constant")
    assert (model.alpha, model.tol) == (30.0, 0.01)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dimm = 3", "no option 'dimm', did you mean 'dim'?"),
        ("dim = ", "not TOML"),
        ("dim = 'many'", "'--dim': Input should be a valid integer"),
        ("config = 'x'", "no option 'config'"),
    ],
)
def test_wrong_config(rpml, shared, tmp_path, text, message):
    (tmp_path / "run.toml").write_text(text)
    result = rpml(
        "fit", shared / "x.npy", "-o", tmp_path / "m", "--config", tmp_path / "run.toml", code=2
    )
    assert message in result.stderr
    assert result.stderr.startswith(f"rpml: {tmp_path / 'run.toml'}")
    assert result.stderr.count("\n") == 1  # no usage lines
    fields = rpml.json("fit", shared / "x.npy", "-o", tmp_path / "m", "--config",
                       tmp_path / "run.toml", code=2)  # fmt: skip
    assert fields == {"error": result.stderr.strip().removeprefix("rpml: "), "exit_code": 2}


def test_paper_settings(rpml, shared, tmp_path):
    rpml("fit", shared / "x.npy", "-o", tmp_path / "m.rpml", "--dim", 3, "--paper", "-q")
    model = RPML.load(tmp_path / "m.rpml")
    assert model.weight_ridge is None
    assert model.normalize is False
    assert model.clustering.epsilon == 0.65


def test_given_pseudo_labels(rpml, shared, tmp_path):
    out = tmp_path / "m.rpml"
    rpml("fit", shared / "x.npy", "-o", out, "--dim", 3, "--pseudo-labels", shared / "y.npy")
    assert len(set(RPML.load(out).labels_.tolist())) == 8


def test_groups_and_a_few_labels(rpml, shared, vectors, tmp_path):
    X, y = vectors
    groups = np.where(np.arange(240) < 120, np.arange(240) % 60, -1)
    np.save(tmp_path / "g.npy", groups)
    few = np.where(np.arange(240) < 24, y, -1)
    np.save(tmp_path / "few.npy", few)
    out = tmp_path / "m.rpml"
    rpml("fit", shared / "x.npy", "-o", out, "--dim", 4, "--neighbors", 10, "-q",
         "--groups", tmp_path / "g.npy", "--labels", tmp_path / "few.npy")  # fmt: skip
    library = RPML(4, n_neighbors=10, random_state=0, use_labels=True).fit(X, few, groups=groups)
    np.testing.assert_allclose(RPML.load(out).transform(X), library.transform(X), atol=1e-6)


def test_existing_model_needs_force(rpml, shared, tmp_path):
    out = tmp_path / "m.rpml"
    out.write_text("precious")
    assert "--force" in rpml.refused("fit", shared / "x.npy", "-o", out)
    assert out.read_text() == "precious"
    rpml("fit", shared / "x.npy", "-o", out, "--dim", 2, "--force")
    assert RPML.load(out).n_features_in_ == 12


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--dim", "13"], "--dim 13 must not exceed the 12 features"),
        (["--weight", "heavy"], "--weight must be one of bilinear"),
        (["--set", "alpha=120"], "--set alpha must be a number"),
        (["--set", "alhpa=20"], "did you mean 'alpha'"),
        (["--set", "alpha"], "NAME=VALUE"),
        (["--set", "alpha=40", "--set", "alpha=50"], "alpha is set twice, leave one out"),
        (["--dim", "8", "--set", "n_components=3"], "--dim sets the same, leave one out"),
        (["--seed", "1", "--set", "random_state=2"], "--seed sets the same"),
        (["--max-iter", "9", "--set", "max_iter=8"], "--max-iter sets the same"),
    ],
)
def test_wrong_settings(rpml, shared, tmp_path, args, message):
    said = rpml.refused("fit", shared / "x.npy", "-o", tmp_path / "m.rpml", "-q", *args)
    assert message in said
    assert list(tmp_path.iterdir()) == []


def test_output_named_like_data(rpml, shared, tmp_path):
    said = rpml.refused("fit", shared / "x.npy", "-o", tmp_path / "m.npy")
    assert "name of a data file" in said


def test_a_fit_of_named_columns_warns_of_nothing(rpml, tmp_path, vectors):
    columns = [f"f{i}" for i in range(vectors[0].shape[1])]
    np.savetxt(tmp_path / "a.csv", vectors[0], delimiter=",", header=",".join(columns), comments="")
    whitened = ("--set", "whiten=1", "-o", tmp_path / "m.rpml", "--dim", 2)
    assert rpml.json("fit", tmp_path / "a.csv", *whitened)["warnings"] == []


def test_feature_names_are_kept_and_checked(rpml, tmp_path, vectors):
    X, _ = vectors
    names = [f"f{i}" for i in range(12)]
    for file, order in (("a.csv", names), ("b.csv", names[::-1])):
        rows = "\n".join(",".join(map(str, row)) for row in X[:60].tolist())
        (tmp_path / file).write_text(",".join(order) + "\n" + rows + "\n")
    rpml("fit", tmp_path / "a.csv", "-o", tmp_path / "m.rpml", "--dim", 2)
    assert rpml.json("inspect", tmp_path / "m.rpml")["feature_names"] == names
    rpml("embed", tmp_path / "m.rpml", tmp_path / "a.csv", "-o", tmp_path / "e.npy")
    said = rpml.refused("embed", tmp_path / "m.rpml", tmp_path / "b.csv", "-o", tmp_path / "f.npy")
    assert "feature 0" in said


class TestResume:
    @pytest.fixture
    def killed(self, rpml, shared, tmp_path, monkeypatch):
        """A fit that died after a few stages."""
        out = tmp_path / "m.rpml"
        self.args = ["fit", shared / "x.npy", "-o", out, "--dim", 4, "--neighbors", 10,
                     "--keep-exemplars", "--set", "training=always"]  # fmt: skip
        with dying_after_two_stages(monkeypatch):
            assert "killed" in rpml.refused(*self.args, "-q", code=1)
        return out

    @pytest.fixture
    def whole(self, rpml, killed, tmp_path_factory):
        """The bytes of the model of a fit that did not die."""
        out = tmp_path_factory.mktemp("whole") / "m.rpml"
        rpml(*[out if argument == killed else argument for argument in self.args])
        return out.read_bytes()

    def test_ends_with_the_same_model(self, rpml, killed, whole):
        rpml(*self.args, "--resume")
        assert killed.read_bytes() == whole
        assert [p.name for p in killed.parent.iterdir()] == ["m.rpml"]

    def test_without_resume_the_checkpoint_is_not_lost(self, rpml, killed):
        assert "--resume" in rpml.refused(*self.args, "-q")

    def test_force_starts_over(self, rpml, killed, whole):
        rpml(*self.args, "--force")
        assert killed.read_bytes() == whole

    def test_other_settings_are_refused(self, rpml, killed):
        said = rpml.refused(*self.args, "--resume", "-q", "--seed", 1)
        assert "--seed 0, not 1" in said

    def test_other_data_is_refused(self, rpml, killed, tmp_path, vectors):
        np.save(tmp_path / "other.npy", vectors[0][1:])
        said = rpml.refused("fit", tmp_path / "other.npy", *self.args[2:], "--resume", "-q")
        assert "other data" in said

    def test_inspect_names_the_stages(self, rpml, killed):
        assert "neighbors" in rpml.json("inspect", f"{killed}.ckpt")["stages"]


def test_resume_of_a_finished_fit_changes_nothing(rpml, shared, tmp_path):
    args = ["fit", shared / "x.npy", "-o", tmp_path / "m.rpml", "--dim", 4]
    rpml(*args)
    before = (tmp_path / "m.rpml").read_bytes()
    assert "already complete" in rpml(*args, "--resume").stdout
    assert (tmp_path / "m.rpml").read_bytes() == before


def test_resume_does_not_replace_another_model(rpml, shared, tmp_path):
    rpml("fit", shared / "x.npy", "-o", tmp_path / "m.rpml", "--dim", 4)
    said = rpml.refused("fit", shared / "x.npy", "-o", tmp_path / "m.rpml", "--resume", "-q")
    assert "not from this fit" in said


def test_too_little_memory_is_refused(rpml, shared, tmp_path):
    line = ("fit", shared / "x.npy", "-o", tmp_path / "m.rpml", "-q", "--memory-limit")
    assert "--memory-limit 1048576" in rpml.refused(*line, "1MB")
    assert "such as 800MB or 4GB" in rpml.refused(*line, "much")
    assert not (tmp_path / "m.rpml").exists()
    rpml(*line, "2GB")
    assert RPML.load(tmp_path / "m.rpml").memory_limit == 2 * 2**30


def test_a_fit_of_a_subsample(rpml, shared, tmp_path):
    line = ("fit", shared / "x.npy", "-o", tmp_path / "m.rpml", "--dim", 4, "--subsample", 120)
    line += ("--set", "training=always", "--keep-training")
    assert "learned from 120 of 240 rows" in rpml(*line).stdout
    assert (RPML.load(tmp_path / "m.rpml").labels_ >= 0).sum() == 120


def test_constraints_are_the_librarys(rpml, shared, vectors, tmp_path):
    (tmp_path / "same.csv").write_text("one,two\n0,4\n4,8,2\n")
    (tmp_path / "other.csv").write_text("0,1\n")
    (tmp_path / "order.csv").write_text("0,4,1\n")
    args = ("fit", shared / "x.npy", "--dim", 4, "-o", tmp_path / "m.rpml")
    files = ("--cannot-link", tmp_path / "other.csv", "--comparisons", tmp_path / "order.csv")
    rpml(*args, "--must-link", tmp_path / "same.csv", *files)
    library = RPML(4, random_state=0).fit(
        vectors[0], must_link=[(0, 4), (4, 8)], cannot_link=[(0, 1)], comparisons=[(0, 4, 1)]
    )
    found, expected = (m.transform(vectors[0]) for m in (RPML.load(tmp_path / "m.rpml"), library))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_pairs_are_the_librarys_and_reported(rpml, shared, vectors, tmp_path):
    X, y = vectors
    mate = np.roll(np.argsort(y, kind="stable"), 1)[np.argsort(np.argsort(y, kind="stable"))]
    pairs = np.stack([np.arange(len(y)), mate], axis=1)
    np.savetxt(tmp_path / "pairs.csv", pairs, "%d", ",", header="one,two", comments="")
    args = ("fit", shared / "x.npy", "--dim", 4, "-o", tmp_path / "m.rpml")
    rpml(*args, "--pairs", tmp_path / "pairs.csv")
    model, library = RPML.load(tmp_path / "m.rpml"), RPML(4, random_state=0).fit(X, pairs=pairs)
    np.testing.assert_allclose(model.transform(X), library.transform(X), atol=1e-6)
    assert model.whitening_ == library.whitening_
    assert "right" in rpml.json("inspect", tmp_path / "m.rpml")["decisions"]["pairs"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3,3", "pairs.csv: line 2 = [3, 3] links a row to itself"),
        ("0,240", "pairs.csv: line 2: '240' is not a row number from 0 to 239"),
        ("0,2,1", "pairs.csv: line 2: 2 rows are expected, not 3 fields"),
    ],
)
def test_wrong_pairs_name_file_and_line(rpml, shared, tmp_path, line, message):
    (tmp_path / "pairs.csv").write_text(f"0,1\n{line}\n")
    args = ("fit", shared / "x.npy", "--dim", 4, "-o", tmp_path / "m.rpml", "-q")
    assert message in rpml.refused(*args, "--pairs", tmp_path / "pairs.csv")
    assert not list(tmp_path.glob("m.rpml*"))


def test_labels_of_no_row_are_refused(rpml, shared, tmp_path):
    np.save(tmp_path / "none.npy", np.full(240, -1))
    args = ("fit", shared / "x.npy", "-o", tmp_path / "m.rpml", "-q")
    assert "none.npy: no row has a label" in rpml.refused(*args, "--labels", tmp_path / "none.npy")
    assert not list(tmp_path.glob("m.rpml*"))


def test_contradictions_name_file_and_line(rpml, shared, tmp_path):
    (tmp_path / "same.csv").write_text("a,b\n0,1\n1,2\n")
    (tmp_path / "other.csv").write_text("3,4\n0,2\n")
    args = ("fit", shared / "x.npy", "--dim", 4, "-o", tmp_path / "m.rpml")
    args = (
        *args,
        "--must-link",
        tmp_path / "same.csv",
        "--cannot-link",
        tmp_path / "other.csv",
        "-q",
    )
    message = rpml.refused(*args)
    assert "other.csv: line 2 (0, 2) parts rows linked by must_link" in message
    assert "--conflicts weight" in message
    assert not list(tmp_path.glob("m.rpml*"))
    assert "choose from raise, weight" in rpml.refused(*args, "--conflicts", "ignore")
    assert "choose from raise, weight" in rpml.refused(*args[:6], "-q", "--conflicts", "ignore")
    (told,) = rpml.json(*args, "--conflicts", "weight")["warnings"]
    assert "1 constraint left out: cannot_link[1] (0, 2) parts rows" in told
    (tmp_path / "same.csv").write_text("0,1\n1,999999\n")
    assert "same.csv: line 2: '999999' is not a row number" in rpml.refused(*args, "--force")


def test_labels_in_the_file_of_the_vectors_are_no_feature(rpml, vectors, tmp_path):
    X, y = vectors
    np.savetxt(tmp_path / "x.csv", np.c_[X, y], delimiter=",", comments="",
               header=",".join([*(f"f{i}" for i in range(12)), "species"]))  # fmt: skip
    labels = ("--labels", tmp_path / "x.csv", "--label-column", "species")
    rpml("fit", tmp_path / "x.csv", "-o", tmp_path / "m.rpml", "--dim", 3, *labels)
    model = RPML.load(tmp_path / "m.rpml")
    assert model.n_features_in_ == 12
    assert model.n_classes_ == 8
