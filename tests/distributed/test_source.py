"""Rows from files and arrays; a bad shard is named."""

import numpy as np
import pytest

from rpml.runtime.errors import InputError


def values_of(batches):
    return np.concatenate([batch.values for batch in batches])


def gather(cluster, source):
    return np.concatenate(cluster.values(source.each(values_of)))


@pytest.mark.parametrize("kind", ["npy", "npz", "parquet"])
def test_kinds(cluster, rows, tmp_path, kind):
    from rpml.distributed import open_rows
    from rpml.io.features import Layout
    from rpml.io.features.writing import write_table

    if kind == "parquet":
        pytest.importorskip("pyarrow")
    names = [f"f{i}" for i in range(rows.shape[1])]
    for i, part in enumerate(np.split(rows, [7, 900])):
        write_table(str(tmp_path / f"part-{i}.{kind}"), part, Layout("X", names), None)
    source = open_rows(tmp_path, cluster, partition_rows=500)
    expected = [0, 7, 900, 1200] if kind == "parquet" else [0, 400, 800, 1200]
    assert source.edges.tolist() == expected
    assert source.shape == rows.shape
    np.testing.assert_array_equal(gather(cluster, source), rows)


def test_parts_are_in_natural_order(cluster, tmp_path):
    from rpml.distributed import open_rows

    for i in (10, 2, 1):
        np.save(tmp_path / f"part-{i}.npy", np.full((3, 2), float(i)))
    values = gather(cluster, open_rows(str(tmp_path), cluster))
    assert values[:, 0].tolist() == [1, 1, 1, 2, 2, 2, 10, 10, 10]


def test_a_dataset_of_folders(cluster, rows, tmp_path):
    from rpml.distributed import open_rows

    for i, part in enumerate(np.array_split(rows, 2)):
        (tmp_path / f"day={i}").mkdir()
        np.save(tmp_path / f"day={i}" / "part-0.npy", part)
    np.testing.assert_array_equal(gather(cluster, open_rows(tmp_path, cluster)), rows)


def test_one_file_and_any_fsspec_address(cluster, rows, tmp_path):
    from rpml.distributed import open_rows

    np.save(tmp_path / "x.npy", rows)
    for address in (tmp_path / "x.npy", f"file://{tmp_path}/x.npy", f"local://{tmp_path}"):
        np.testing.assert_array_equal(gather(cluster, open_rows(address, cluster)), rows)


def test_dask_array(cluster, rows):
    import dask.array as da

    from rpml.distributed import open_rows

    X = da.from_array(rows, chunks=(90, 5))
    source = open_rows(X, cluster, partition_rows=500)
    np.testing.assert_array_equal(gather(cluster, source), rows)
    bad = rows.copy()
    bad[700, 3] = np.nan
    with pytest.raises(
        InputError, match=r"Dask array, from row 400 on: row 300, column 3 .*is NaN"
    ):
        gather(cluster, open_rows(da.from_array(bad, chunks=400), cluster, partition_rows=500))
    with pytest.raises(InputError, match="two dimensions"):
        open_rows(da.ones(5), cluster)


def test_an_array_in_memory_is_refused(cluster, rows):
    from rpml.distributed import open_rows

    with pytest.raises(TypeError, match="X is a ndarray: give a Dask array"):
        open_rows(rows, cluster)


def test_bad_shards_are_named(cluster, rows, shards):
    from rpml.distributed import open_rows

    good = (shards / "part-1.npy").read_bytes()
    (shards / "part-1.npy").write_bytes(good[:-100])
    with pytest.raises(InputError, match=r"part-1\.npy is not a complete .npy file"):
        open_rows(shards, cluster)
    np.save(shards / "part-1.npy", rows[:5, :3])
    with pytest.raises(InputError, match=r"part-1\.npy has 3 columns, .*part-0\.npy has 16"):
        open_rows(shards, cluster)
    holed = rows[100:450].copy()
    holed[17, 2] = np.nan
    np.save(shards / "part-1.npy", holed)
    with pytest.raises(InputError, match=r"part-1\.npy: row 17, column 2 .*is NaN"):
        gather(cluster, open_rows(shards, cluster))


@pytest.mark.parametrize("kind", ["npy", "npz", "parquet", "csv"])
def test_ids_and_columns_are_read_without_the_vectors(cluster, rows, tmp_path, kind):
    from rpml.distributed import open_rows, read_columns
    from rpml.io.features import Batch, Layout, ReadOptions, write_batches

    ids = np.array([f"img{i}" for i in range(len(rows))], object)
    camera = [("north", "south")[i % 2] for i in range(len(rows))]
    id_name = "image" if kind == "csv" else "id"
    for i, part in enumerate(np.split(np.arange(len(rows)), [7, 900])):
        path, here = tmp_path / f"part-{i}.{kind}", [camera[j] for j in part]
        if kind == "npz":
            np.savez(path, X=rows[part], ids=ids[part].astype(str), camera=here)
            continue
        kept = {} if kind == "npy" else {"camera": here}
        layout = Layout("v", [f"f{i}" for i in range(rows.shape[1])], id_name, kept=tuple(kept))
        write_batches(str(path), layout, [Batch(0, rows[part], ids[part], kept=kept)])
    source = open_rows(tmp_path, cluster, options=ReadOptions(exclude=("camera",)))
    data = read_columns(source, ["camera"] if kind != "npy" else [])
    assert data.ids.tolist() == ids.tolist()
    assert data.id_column == id_name
    assert data.columns == ({"camera": camera} if kind != "npy" else {})
    assert data.values.shape == rows.shape
    np.testing.assert_array_equal(data.values[np.array([3, 8, 1100])], rows[[3, 8, 1100]])
    assert read_columns(source, ids=False).ids is None
    if kind == "npy":
        with pytest.raises(InputError, match=r"part-\d\.npy has no column 'camera': only tables"):
            read_columns(source, ["camera"])
        (tmp_path / "part-1.ids.csv").unlink()
        with pytest.raises(InputError, match=r"part-1\.npy has other ids than .*part-0\.npy"):
            open_rows(tmp_path, cluster)
        return
    for name in ("part-3", "part-4"):
        path.with_stem(name).write_bytes(path.read_bytes())
    with pytest.raises(InputError, match=r"id 'img900' is given to rows 900 and 1200 "):
        read_columns(open_rows(tmp_path, cluster, options=source.options))


def test_nothing_to_read(cluster, tmp_path):
    from rpml.distributed import open_rows

    with pytest.raises(InputError, match="no such file"):
        open_rows(tmp_path / "absent", cluster)
    with pytest.raises(InputError, match="no feature files"):
        open_rows(tmp_path, cluster)
    np.save(tmp_path / "a.npy", np.ones((2, 2)))
    np.savez(tmp_path / "b.npz", X=np.ones((2, 2)))
    with pytest.raises(InputError, match="mixes"):
        open_rows(tmp_path, cluster)


@pytest.mark.parametrize("groups", [500, 2500])
def test_row_groups_are_decoded_once(cluster, tmp_path, monkeypatch, groups):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    from rpml.distributed import open_rows
    from rpml.distributed.source import _on_pieces
    from rpml.io.features.arrow_files import ArrowSource

    X = np.random.default_rng(0).standard_normal((20_000, 4)).astype("f4")
    for i, part in enumerate(np.split(X, [12_000])):
        table = pa.table({"v": pa.array(list(part), pa.list_(pa.float32(), 4))})
        parquet.write_table(table, tmp_path / f"{i}.parquet", row_group_size=groups)
    source = open_rows(tmp_path, cluster, partition_rows=3000)
    assert len(source.parts) > 3
    decoded = []
    original = ArrowSource._list_values

    def counting(self, column, start, width):
        decoded.append(0 if width is None else len(column))
        return original(self, column, start, width)

    monkeypatch.setattr(ArrowSource, "_list_values", counting)
    read = [
        _on_pieces(part, work=values_of, options=source.options, model=None)
        for part in source.parts
    ]
    np.testing.assert_array_equal(np.concatenate(read), X)
    assert sum(decoded) == len(X)


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_remote_files_are_read_once_and_not_copied(tmp_path, monkeypatch, kind):
    import io

    fsspec = pytest.importorskip("fsspec")
    from fsspec.implementations.memory import MemoryFile

    from rpml.distributed.source import _look, _on_pieces
    from rpml.io.features import Layout, ReadOptions
    from rpml.io.features.writing import write_table

    if kind == "parquet":
        pytest.importorskip("pyarrow")
    X = np.random.default_rng(0).standard_normal((40_000, 64)).astype("f4")
    write_table(str(tmp_path / f"x.{kind}"), X, Layout("X", [f"f{i}" for i in range(64)]), None)
    data, read = (tmp_path / f"x.{kind}").read_bytes(), []
    fsspec.filesystem("memory").pipe(f"/partitions/x.{kind}", data)
    path, options = f"memory://partitions/x.{kind}", ReadOptions()

    def counting(self, size=-1):
        found = io.BytesIO.read(self, size)
        read.append(len(found))
        return found

    monkeypatch.setattr(MemoryFile, "read", counting, raising=False)
    seen = _look(path, options)
    assert (seen.n_rows, seen.n_features) == X.shape
    assert sum(read) < (0.01 if kind == "npy" else 0.5) * len(data)  # a buffer of parquet pages
    middle = 10_000
    pieces = [[(path, 0, middle)], [(path, middle, len(X))]]
    found = [_on_pieces(piece, work=values_of, options=options, model=None) for piece in pieces]
    np.testing.assert_array_equal(np.concatenate(found), X)
    if kind == "npy":  # parquet is split between row groups, of which this file has one
        assert sum(read) < 1.1 * len(data)
    if kind == "npy":
        np.save(tmp_path / "f.npy", np.asfortranarray(X[:9]))
        fsspec.filesystem("memory").pipe("/partitions/f.npy", (tmp_path / "f.npy").read_bytes())
        with pytest.raises(InputError, match=r"f\.npy is stored by column .*: save it by row"):
            _look("memory://partitions/f.npy", options)
    fsspec.filesystem("memory").pipe(f"/partitions/x.{kind}", data[:-50])
    with pytest.raises(InputError, match=rf"memory://partitions/x.{kind} is not a complete"):
        _look(path, options)


def test_partitions_of_256_megabytes(cluster):
    from rpml.distributed.source import _edges

    n = 1_000_000_000
    edges = _edges(n, 4 * 768, None, 512)
    assert len(edges) - 1 == -(-n * 4 * 768 // 2**28)
    assert np.diff(edges).max() * 4 * 768 <= 2**28
