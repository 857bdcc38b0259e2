"""Addresses that fsspec knows: copied to a temporary folder, and named in errors."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from rpml.io.features import Layout, open_features, read_features, write_table
from rpml.io.features.source import as_ids
from rpml.runtime.errors import InputError
from tests.cli.conftest import Run

fsspec = pytest.importorskip("fsspec")
X = np.arange(12, dtype=np.float32).reshape(4, 3)
NAMES = as_ids([f"row {i}" for i in range(4)])


@pytest.fixture
def folder(tmp_path):
    for name in ("x.npy", "x.csv"):
        write_table(str(tmp_path / name), X, Layout("X", list("abc"), "id"), NAMES)
    (tmp_path / "shards").mkdir()
    for i in range(2):
        np.save(tmp_path / "shards" / f"part-{i}.npy", X[2 * i : 2 * i + 2])
    return tmp_path


@pytest.fixture
def memory(folder):
    system = fsspec.filesystem("memory")
    system.put(str(folder), "/bucket", recursive=True)
    yield "memory://bucket"
    system.rm("/bucket", recursive=True)


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def web(folder):
    pytest.importorskip("aiohttp")
    handler = partial(Silent, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("place", ["memory", "web"])
@pytest.mark.parametrize("name", ["x.npy", "x.csv"])
def test_a_file_with_its_ids(request, place, name):
    address = f"{request.getfixturevalue(place)}/{name}"
    source = open_features(address)
    assert source.name == address
    found = source.load()
    np.testing.assert_array_equal(found.values, X)
    assert found.ids.tolist() == NAMES.tolist()


def test_a_folder_of_shards(memory):
    np.testing.assert_array_equal(read_features(f"{memory}/shards/").values, X)


def test_an_address_with_a_query(web):
    np.testing.assert_array_equal(read_features(f"{web}/x.npy?signature=a/b.c").values, X)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (
            "memory://bucket/absent.npy",
            "cannot read memory://bucket/absent.npy: there is no such file",
        ),
        ("nowhere://x.npy", "cannot read nowhere://x.npy: Protocol not known"),
        ("memory://bucket/x", "cannot read memory://bucket/x"),
    ],
)
def test_bad_addresses(memory, address, message):
    with pytest.raises(InputError, match=message) as caught:
        open_features(address)
    assert "\n" not in str(caught.value)


def test_a_command(memory):
    rpml = Run()
    fields = rpml.json("inspect", f"{memory}/x.npy")
    assert (fields["kind"], fields["rows"], fields["features"]) == ("features", 4, 3)
    assert "absent.csv" in rpml.refused("inspect", f"{memory}/absent.csv")
