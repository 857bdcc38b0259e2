import os

import numpy as np
import pytest

from rpml.io.checkpoint import Checkpoint, remove_checkpoint
from rpml.io.container import write_container
from rpml.runtime.context import data_digest
from rpml.runtime.errors import InputError
from tests.faults.shim import NOT_REACHED, run_forked

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


def test_what_a_killed_save_left_is_replaced(tmp_path):
    def save_and_die():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("rpml.io.checkpoint.publish", lambda *_, **__: os.kill(os.getpid(), 9))
            store(tmp_path).save("graph", ARRAYS)

    assert run_forked(save_and_die, tmp_path, None, "kill") == -9
    (left,) = (tmp_path / "ckpt").iterdir()
    store(tmp_path).save("graph", ARRAYS)
    (stage,) = (tmp_path / "ckpt").iterdir()
    assert left != stage
    assert store(tmp_path).load("graph") is not None


def test_resume_of_nothing_is_an_empty_checkpoint(tmp_path):
    assert store(tmp_path).load("graph") is None
    assert not (tmp_path / "ckpt").exists()


def test_without_resume_finished_stages_are_not_lost(tmp_path):
    store(tmp_path).save("graph", ARRAYS)
    with pytest.raises(InputError, match="--resume"):
        store(tmp_path, resume=False)


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"data": "other"}, "other data"), ({"dim": 9}, "dim=8, not 9"), ({"new": 1}, "new=None")],
)
def test_other_data_or_settings_are_refused(tmp_path, change, reason):
    store(tmp_path).save("graph", ARRAYS)
    with pytest.raises(InputError, match=reason):
        store(tmp_path, **change)


def test_damaged_stage_is_computed_again(tmp_path, caplog):
    store(tmp_path).save("graph", ARRAYS)
    path = tmp_path / "ckpt" / "graph.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    assert store(tmp_path).load("graph") is None
    assert "computed again" in caplog.text


def test_a_stage_of_another_run_is_computed_again(tmp_path, caplog):
    """Two runs that got past the check at the same time cannot mix their stages."""
    ours, theirs = store(tmp_path), store(tmp_path, data="other")
    ours.save("whiten", ARRAYS)
    theirs.save("graph", ARRAYS)
    assert ours.load("whiten") is not None
    assert ours.load("graph") is None
    assert "of another run" in caplog.text


def test_a_model_is_no_stage(tmp_path):
    (tmp_path / "ckpt").mkdir()
    path = tmp_path / "ckpt" / "graph.safetensors"
    write_container(path, ARRAYS, {}, "model", 1)
    with pytest.raises(InputError, match="not a checkpoint"):
        store(tmp_path)
    remove_checkpoint(tmp_path / "ckpt")
    assert path.is_file()


def test_a_foreign_folder_is_refused_and_never_emptied(tmp_path):
    (tmp_path / "ckpt").mkdir()
    store(tmp_path, resume=False)  # an empty folder is nobody's
    (tmp_path / "ckpt" / "bert.safetensors").write_text("weights")
    for resume in (True, False):
        with pytest.raises(InputError, match="left as it is"):
            store(tmp_path, resume=resume)
    remove_checkpoint(tmp_path / "ckpt")
    assert (tmp_path / "ckpt" / "bert.safetensors").read_text() == "weights"


def test_a_file_in_the_way_is_noticed_at_once(tmp_path):
    (tmp_path / "ckpt").write_text("mine")
    with pytest.raises(InputError, match="in the way"):
        store(tmp_path)


def test_an_empty_folder_that_a_kill_has_left_goes(tmp_path):
    (tmp_path / "ckpt").mkdir()
    remove_checkpoint(tmp_path / "ckpt")
    assert list(tmp_path.iterdir()) == []


def test_remove(tmp_path):
    store(tmp_path).save("graph", ARRAYS)
    remove_checkpoint(tmp_path / "ckpt")
    assert list(tmp_path.iterdir()) == []
    remove_checkpoint(tmp_path / "ckpt")


def test_remove_spares_what_is_not_ours(tmp_path):
    store(tmp_path).save("graph", ARRAYS)
    (tmp_path / "ckpt" / "bert.safetensors").write_text("weights")
    remove_checkpoint(tmp_path / "ckpt")
    assert [p.name for p in (tmp_path / "ckpt").iterdir()] == ["bert.safetensors"]


def test_a_kill_at_any_moment_leaves_something_to_resume(tmp_path):
    """Saving two stages and removing everything, killed at each call that changes the disk."""

    def run():
        checkpoint = store(tmp_path)
        checkpoint.save("graph", ARRAYS)
        checkpoint.save("labels", ARRAYS)
        remove_checkpoint(tmp_path / "ckpt")

    for moment in range(100):
        if run_forked(run, tmp_path, moment, "kill") == NOT_REACHED:
            break
        found = store(tmp_path).load("graph")
        assert found is None or found[0]["labels"].tolist() == [0, 1, 2, 3, 4]
    assert moment > 12
    assert list(tmp_path.iterdir()) == []


def test_digest_follows_values_types_and_shapes():
    X = np.arange(12, dtype=np.float32).reshape(3, 4)
    changed = X.copy()
    changed[2, 3] += 1
    digests = [data_digest(a) for a in (X, changed, X.astype("f8"), X.reshape(4, 3), X.T)]
    assert len(set(digests)) == 5
    assert data_digest(X.copy(order="F")) == digests[0]
    assert data_digest(X, None) != digests[0]
