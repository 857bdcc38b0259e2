"""Damaged and forged files of every kind, read as the commands read them.

``python -m tests.faults.mutations COUNT [SEED [KIND ...]]`` prints a JSON object per kind: how many
files were tried, how many were accepted (exit code 0) or refused with a sentence (2), and what
else happened. Of COUNT files only those of the named kinds are tried. A batch runs in a fork with
10 s of processor time per file and 1 GB more memory than at its start. Half of the
files whose format has a structure are forged: the content is changed, the checksum right.
"""

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
from PIL import Image

from rpml import RPML
from rpml.cli.app import app
from rpml.cli.command import exit_code, sentence
from rpml.estimator.description import describe_model
from rpml.io.checkpoint import Checkpoint
from rpml.io.features import read_features
from rpml.pages.explorer.catalog import cache_key, load_cache, make_catalog, start_work
from rpml.pages.items import Items
from rpml.runtime.errors import InputError
from rpml.search import Index
from rpml.search.index import describe_index
from rpml.vision.images import MAX_PIXELS, ImageError, load_rgb
from tests.faults.forging import FORGERS
from tests.io.test_container import mutate as damage_anywhere
from tests.labels import read_labels

SECONDS, MEMORY, BATCH = 10, 2**30, 250
rng = np.random.default_rng(0)
X = rng.normal(size=(4, 6))[np.arange(40) % 4] + 0.3 * rng.normal(size=(40, 6))
SETTINGS = {"n_neighbors": 6, "random_state": 0, "max_iter": 12, "tol": 0, "training": "always"}


def fit(folder, **more):
    """A small fit whose stages are in ``folder/stages``."""
    store = Checkpoint(folder / "stages", "data", {}, resume=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return RPML(3, **SETTINGS, **more).fit(X, store=store)


# what is read


def read_model(folder):
    path = folder / "m.rpml"
    model = RPML.load(path)
    json.dumps(describe_model(model, path), default=str)
    for rows in (X, X.astype(np.float32)):
        assert np.isfinite(model.transform(rows)).all()
    model.predict(X[:3])


def read_updated_model(folder):
    model = RPML.load(folder / "m.rpml")
    assert np.isfinite(model.update(X + 0.1, max_iter=1).transform(X)).all()


def read_index(folder):
    found = Index.load(folder / "x.index").search(X[:3], k=5)
    assert np.isfinite(found.scores).all()
    json.dumps(describe_index(folder / "x.index"))


def catalog_of(folder):
    items = Items([str(i) for i in range(40)], None, None)
    return make_catalog(RPML.load(folder / "m.rpml"), X, items, "x.npy")


def read_cache(folder):
    """What is not used is computed again: never half a page."""
    catalog = catalog_of(folder)
    key = cache_key(catalog, X, 0, True)
    loaded = load_cache(catalog, folder / "m.rpml.explorer", key)
    assert (catalog.maps.state == "ready") == loaded == (catalog.clusters.state != "working")
    if not loaded:
        raise InputError("computed again")
    assert all(len(points) == 160 for points in catalog.maps.value.values())


def read_stages(folder):
    assert np.isfinite(fit(folder).transform(X)).all()


def read_vectors(suffix):
    return lambda folder: read_features(folder / f"x{suffix}").values.sum()


def read_classes(suffix):
    return lambda folder: read_labels(folder / f"y{suffix}", 40, partial=True)


def read_image(suffix):
    def read(folder):
        with contextlib.suppress(ImageError):  # skipped, and listed in failures.csv
            load_rgb(folder / f"image{suffix}", MAX_PIXELS, 64)

    return read


def read_config(folder):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            app(["inspect", str(folder / "x.npy"), "--config", str(folder / "c.toml")])
        except SystemExit as end:
            if end.code == 2 and "Traceback" not in said.getvalue():
                raise InputError("refused") from None
            if end.code != 0:
                raise RuntimeError(said.getvalue()[-300:]) from None


VECTORS = (".npy", ".npz", ".parquet", ".feather", ".jsonl", ".csv")
LABELS = (".npy", ".npz", ".parquet", ".feather", ".jsonl", ".csv", ".txt")
READERS = {
    "model": ("m.rpml", read_model),
    "updated model": ("m.rpml", read_updated_model),
    "index": ("x.index", read_index),
    "explorer cache": ("m.rpml.explorer", read_cache),
    "checkpoint": (
        [f"stages/{name}.safetensors" for name in ("neighbors", "optimizer")],
        read_stages,
    ),
    **{f"vectors {s}": (f"x{s}", read_vectors(s)) for s in VECTORS},
    **{f"labels {s}": (f"y{s}", read_classes(s)) for s in LABELS},
    **{f"image {s}": (f"image{s}", read_image(s)) for s in (".png", ".jpg", ".webp", ".tiff")},
    "toml": ("c.toml", read_config),
}
SHARES = {"updated model": 0.02, "checkpoint": 0.04, "toml": 0.04, "model": 0.15}
"""Of all files; the other kinds share the rest."""


def write_files(folder):
    """One whole file of every kind."""
    model = fit(folder)
    model.save(folder / "m.rpml", exemplars=True)
    Index(model).add(X, [f"item {i}" for i in range(40)]).save(folder / "x.index")
    start_work(catalog_of(folder), X, 0, True, folder / "m.rpml.explorer").join()
    y = np.arange(40) % 4
    np.save(folder / "x.npy", X)
    np.savez_compressed(folder / "x.npz", X=X, ids=np.arange(40))
    np.save(folder / "y.npy", y)
    np.savez_compressed(folder / "y.npz", y=y)
    write_tables(folder / "x", {"id": np.arange(40), "v": X.tolist()})
    write_tables(folder / "y", {"id": np.arange(40), "label": y})
    rows = "".join(f"item {i}," + ",".join(map(str, r)) + "\n" for i, r in enumerate(X.tolist()))
    (folder / "x.csv").write_text(f"id,a,b,c,d,e,f\n{rows}")
    (folder / "y.csv").write_text("id,label\n" + "".join(f"{i},{c}\n" for i, c in enumerate(y)))
    (folder / "y.txt").write_text("".join(f"{c}\n" for c in y))
    (folder / "c.toml").write_text('array = "X"\nquiet = true\n[fit]\ndim = 3\nset = {tol = 0.1}\n')
    picture = Image.fromarray(rng.integers(0, 255, (24, 30, 3), np.uint8))
    for suffix in (".png", ".jpg", ".webp", ".tiff"):
        picture.save(folder / f"image{suffix}")


def write_tables(stem, columns):
    table = pa.table(columns)
    pq.write_table(table, stem.with_suffix(".parquet"))
    packing = "uncompressed" if stem.name == "x" else "lz4"
    pyarrow.feather.write_feather(table, stem.with_suffix(".feather"), compression=packing)
    stem.with_suffix(".jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in table.to_pylist()))


# what is done to a file


def damage(data, rng):
    """A cut, a number replaced, or a damage that every container stands."""
    kind = rng.integers(7)
    if kind == 0:
        return data[: int(rng.integers(len(data)))]
    if kind == 1:
        digits = [i for i, byte in enumerate(data) if 48 <= byte < 58] or [0]
        place = digits[int(rng.integers(len(digits)))]
        other = rng.choice([b"9", b"0", b"-1", b"1e300", b"99999999999", b"nan"])
        return data[:place] + bytes(other) + data[place + 1 :]
    return damage_anywhere(data, rng)


def mutate(path, rng):
    if path.suffix in FORGERS and rng.random() < 0.5:
        FORGERS[path.suffix](path, rng)
    else:
        path.write_bytes(damage(path.read_bytes(), rng))


# the judgment


def outcome(read, folder):
    """0, 2, or what went wrong."""
    try:
        read(folder)
    except Exception as error:
        code, said = exit_code(error), sentence(error)
        return 2 if code == 2 and "\n" not in said else f"{type(error).__name__}: {said[:200]}"
    return 0


def too_slow(*_):
    raise RuntimeError("more than 10 s")


def run_batch(whole, kind, seeds, results):
    """In a fork: each file mutated, read, judged; results are a line each."""
    names, read = READERS[kind]
    names = [names] if isinstance(names, str) else names
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    signal.signal(signal.SIGVTALRM, too_slow)
    warnings.simplefilter("ignore")
    with open(results, "w") as file, tempfile.TemporaryDirectory() as name:
        folder = Path(shutil.copytree(whole, Path(name) / "work"))
        for seed in seeds:
            rng = np.random.default_rng(seed)
            for changed in names:
                shutil.copyfile(whole / changed, folder / changed)
            mutate(folder / names[int(rng.integers(len(names)))], rng)
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            file.write(json.dumps([seed, outcome(read, folder)]) + "\n")
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            file.flush()


def in_fork(whole, kind, seeds, results):
    """The outcomes of a batch; the one at which the process died is what killed it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            run_batch(whole, kind, seeds, results)
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found = [json.loads(line) for line in results.read_text().splitlines()]
    return found if status == 0 else [*found, [seeds[len(found)], f"process ended by {status}"]]


def table(count, seed, whole, kinds=()):
    """A row per kind: tried, exit codes 0 and 2, and everything else with its seed."""
    rest = (1 - sum(SHARES.values())) / (len(READERS) - len(SHARES))
    for number, kind in enumerate(READERS):
        if kinds and kind not in kinds:
            continue
        row = {"kind": kind, "tried": 0, "accepted": 0, "refused": 0, "wrong": []}
        todo = max(1, round(count * SHARES.get(kind, rest)))
        seeds = [[seed, number, i] for i in range(todo)]
        for start in range(0, todo, BATCH):
            for which, code in in_fork(
                whole, kind, seeds[start : start + BATCH], whole.with_name("results")
            ):
                row["tried"] += 1
                row["accepted"] += code == 0
                row["refused"] += code == 2
                if code not in (0, 2):
                    row["wrong"].append([which, code])
        yield row


def main(count="50000", seed="0", *kinds):
    logging_off()
    with tempfile.TemporaryDirectory() as name:
        whole = Path(name) / "whole"
        whole.mkdir()
        write_files(whole)
        for row in table(int(count), int(seed), whole, kinds):
            print(json.dumps(row), flush=True)


def logging_off():
    import logging

    logging.disable(logging.CRITICAL)


if __name__ == "__main__":
    main(*sys.argv[1:])
