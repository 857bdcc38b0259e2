import numpy as np
import pytest


@pytest.fixture(scope="module")
def files(tmp_path_factory, vectors):
    folder, X = tmp_path_factory.mktemp("bridge"), vectors[0]
    turn = np.random.default_rng(0).normal(size=(12, 9))
    np.save(folder / "old.npy", X)
    np.save(folder / "new.npy", X @ turn)
    names = np.array([f"item {i}" for i in range(240)])
    np.savez(folder / "old.npz", X=X, ids=names)
    np.savez(folder / "new.npz", X=(X @ turn)[::-1][:200], ids=names[::-1][:200])
    return folder


def test_learn_map_and_inspect(rpml, files, tmp_path):
    out, mapped = tmp_path / "b.rpml", tmp_path / "mapped.npy"
    result = rpml.json("bridge", files / "old.npy", files / "new.npy", "-o", out)
    assert (result["pairs"], result["features"], result["dim"]) == (240, 9, 12)
    assert 0 <= result["encoder_overlap"] <= 1
    assert result["neighbors_kept"] > 0.4
    for name in ("neighbors_kept", "encoder_overlap"):
        assert result[f"{name}_low"] <= result[name] <= result[f"{name}_high"]
    rpml("embed", out, files / "new.npy", "-o", mapped)
    assert np.load(mapped).shape == (240, 12)
    described = rpml.json("inspect", out)
    assert described["decisions"]["training"].startswith("bridge between encoders by")
    assert rpml("inspect", out).stdout.split("\n")[0].split(": ")[1].strip().startswith("bridge")
    assert described["trained_on"] == str(files / "new.npy")


def test_rows_are_paired_by_id(rpml, files, tmp_path):
    rpml("bridge", files / "old.npz", files / "new.npz", "-o", tmp_path / "ids.rpml")
    np.save(tmp_path / "old.npy", np.load(files / "old.npy")[40:])
    np.save(tmp_path / "new.npy", np.load(files / "new.npy")[40:])
    rpml("bridge", tmp_path / "old.npy", tmp_path / "new.npy", "-o", tmp_path / "order.rpml")
    for name in ("ids", "order"):
        rpml("embed", tmp_path / f"{name}.rpml", files / "new.npy", "-o", tmp_path / f"{name}.npy")
    by_id, by_order = (np.load(tmp_path / f"{name}.npy") for name in ("ids", "order"))
    np.testing.assert_allclose(by_id, by_order, atol=1e-5)


def test_refusals(rpml, files, tmp_path):
    np.save(tmp_path / "few.npy", np.eye(9))
    np.savez(tmp_path / "others.npz", X=np.eye(30), ids=[f"other {i}" for i in range(30)])
    out = tmp_path / "b.rpml"
    old, few = files / "old.npy", tmp_path / "few.npy"
    assert "240 old and 9 new rows" in rpml.refused("bridge", old, few, "-o", out)
    assert "at least 20" in rpml.refused("bridge", few, few, "-o", out)
    others = ("bridge", files / "old.npz", tmp_path / "others.npz", "-o", out)
    assert "no id in common" in rpml.refused(*others)
    assert "data file" in rpml.refused("bridge", old, old, "-o", tmp_path / "x.npy")
    assert not out.exists()
    out.write_text("mine")
    assert "--force" in rpml.refused("bridge", old, files / "new.npy", "-o", out)
