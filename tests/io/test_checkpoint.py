import numpy as np
import pytest

from rpml.io.checkpoint import Checkpoint, data_digest, remove_checkpoint
from rpml.runtime.errors import CheckpointError

ARRAYS = {"labels": np.arange(5)}


def store(tmp_path, data="abc", resume=True, **settings):
    return Checkpoint(tmp_path / "ckpt", data, {"dim": 8, **settings}, resume)


def test_what_is_saved_is_loaded_by_the_next_process(tmp_path):
    store(tmp_path).save("graph", ARRAYS, {"step": 3})
    arrays, metadata = store(tmp_path).load("graph")
    np.testing.assert_array_equal(arrays["labels"], ARRAYS["labels"])
    assert metadata == {"step": 3}
    assert store(tmp_path).load("triplets") is None


def test_a_later_save_replaces(tmp_path):
    checkpoint = store(tmp_path)
    for step in range(3):
        checkpoint.save("optimizer", {"L": np.full(2, step)})
    assert checkpoint.load("optimizer")[0]["L"][0] == 2


def test_resume_of_nothing_is_an_empty_checkpoint(tmp_path):
    assert store(tmp_path).load("graph") is None
    assert not (tmp_path / "ckpt").exists()


def test_without_resume_finished_stages_are_not_lost(tmp_path):
    store(tmp_path).save("graph", ARRAYS)
    with pytest.raises(CheckpointError, match="--resume"):
        store(tmp_path, resume=False)


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"data": "other"}, "other data"), ({"dim": 9}, "dim=8, not 9"), ({"new": 1}, "new=None")],
)
def test_other_data_or_settings_are_refused(tmp_path, change, reason):
    store(tmp_path).save("graph", ARRAYS)
    with pytest.raises(CheckpointError, match=reason):
        store(tmp_path, **change)


def test_damaged_stage_is_computed_again(tmp_path, caplog):
    store(tmp_path).save("graph", ARRAYS)
    path = tmp_path / "ckpt" / "graph.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    assert store(tmp_path).load("graph") is None
    assert "computed again" in caplog.text


def test_damaged_manifest_is_refused(tmp_path):
    store(tmp_path).save("graph", ARRAYS)
    (tmp_path / "ckpt" / "manifest.json").write_text("[")
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        store(tmp_path)


def test_remove(tmp_path):
    store(tmp_path).save("graph", ARRAYS)
    remove_checkpoint(tmp_path / "ckpt")
    assert list(tmp_path.iterdir()) == []
    remove_checkpoint(tmp_path / "ckpt")


def test_stage_names_stay_inside_the_folder(tmp_path):
    with pytest.raises(ValueError, match="stage"):
        store(tmp_path).save("../x", ARRAYS)


def test_digest_follows_values_types_and_shapes():
    X = np.arange(12, dtype=np.float32).reshape(3, 4)
    changed = X.copy()
    changed[2, 3] += 1
    digests = [data_digest(a) for a in (X, changed, X.astype("f8"), X.reshape(4, 3), X.T)]
    assert len(set(digests)) == 5
    assert data_digest(X.copy(order="F")) == digests[0]
    assert data_digest(X, None) != digests[0]
