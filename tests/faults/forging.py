"""Files of every format with other content and right checksums: what a damaged byte never makes."""

import contextlib
import io
import json
import struct
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

from rpml.io.container import read_container, write_container

VALUES = [None, True, "", "text\x1b[2J", -1, 0, 2**31 - 1, 2**63, 1e300, float("nan"), [], {}]
VALUES += [[[1]], 10**12, 0.5, {"a": {"b": [1]}}, json.loads("[" * 40 + "]" * 40), "x" * 10_000]


def forge_json(value, rng):
    """The same with one node replaced or removed."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = sorted(value)[int(rng.integers(len(value)))]
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: forge_json(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = int(rng.integers(len(value)))
        return [*value[:at], forge_json(value[at], rng), *value[at + 1 :]]
    return VALUES[int(rng.integers(len(VALUES)))]


def forge_array(array, rng):
    """Other values, another type or another shape."""
    kind, array = rng.integers(6), array.copy()
    if kind < 3 and array.size and array.dtype.kind in "if":
        wild = [-1, 0, 2**31 - 1, -(2**31), array.size] if array.dtype.kind == "i" else []
        wild = wild or [np.nan, np.inf, -np.inf, 1e300, -1e30, 1e38, 0, 1e-300]
        with np.errstate(over="ignore"):
            chosen = np.array(wild[int(rng.integers(len(wild)))]).astype(array.dtype)
        array.reshape(-1)[rng.random(array.size) < rng.choice([0.02, 1.0])] = chosen
        return array
    if kind == 3:
        return array[: int(rng.integers(len(array)))] if array.ndim and len(array) else array[None]
    if kind == 4:
        return array.astype(rng.choice(["i4", "f2", "f4", "f8", "u1", "?"]))
    return array.reshape(-1) if array.ndim > 1 else array[None]


def forge_container(path, rng):
    """Change what a model, an index or a cache holds."""
    kind = CONTAINERS[path.suffix]
    arrays, fields = read_container(path, kind, 99)
    metadata, version = fields["metadata"], fields["format_version"]
    for _ in range(int(rng.integers(1, 3))):
        if arrays and rng.random() < 0.5:
            name = sorted(arrays)[int(rng.integers(len(arrays)))]
            arrays = {**arrays, name: forge_array(arrays[name], rng)}
            if rng.random() < 0.1:
                del arrays[name]
        else:
            metadata = forge_json(metadata, rng)
    with contextlib.suppress(ValueError):  # a number that JSON cannot hold
        write_container(path, arrays, metadata, kind, version)


def forge_npy(path, rng):
    """Another array, or another header above the same bytes."""
    path.write_bytes(forged_npy(path.read_bytes(), rng))


def forged_npy(data, rng):
    file = io.BytesIO()
    if rng.random() < 0.5:
        np.save(file, forge_array(np.load(io.BytesIO(data)), rng))
        return file.getvalue()
    kinds = ["<f8", "<i4", "|O", "|S0", "<U9", "<c16", "<M8[s]", "|V8", "V999999999", "<f2", ">f8"]
    kinds += [[("a", "<f4"), ("b", "<i2")], "f8,f8", "\x1b[2J", 7]
    shapes = [(), (0,), (40, 6), (-1, 6), (2**62, 8), (10**9, 10**9), (40, 0), (1,) * 70, "no", 40]
    header = {
        "descr": kinds[int(rng.integers(len(kinds)))],
        "fortran_order": [True, False, 2][int(rng.integers(3))],
        "shape": shapes[int(rng.integers(len(shapes)))],
    }
    text = repr(header).encode() + b" " * int(rng.integers(60)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data[128:]


def forge_npz(path, rng):
    """Members forged, renamed or doubled, with the checksums of their content."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = sorted(members)[int(rng.integers(len(members)))]
    members[name] = forged_npy(members[name], rng) if rng.random() < 0.8 else members[name][:7]
    names = {n: n for n in members}
    if rng.random() < 0.3:
        others = ["../X.npy", "X.txt", "/X.npy", "ids.npy", "\x1b[2J.npy", "a/" * 300 + "X.npy"]
        names[name] = others[int(rng.integers(len(others)))]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(names[member], data)


def forge_column(column, rng):
    """Of another type, with holes, or with odd values."""
    n = len(column)
    made = [
        lambda: pa.array([[]] * n, pa.list_(pa.float64())),
        lambda: pa.array([[1.0] * int(i) for i in rng.integers(4, size=n)]),
        lambda: pa.array([None] * n),
        lambda: pa.array([{"a": i} for i in range(n)]),
        lambda: pa.array([[[1.0]]] * n),
        lambda: pa.array([b"\xff\x00"] * n),
        lambda: pa.array([float("inf"), float("nan")] * (n // 2) + [1e300] * (n % 2)),
        lambda: pa.array([f"\x1b[2J{i}" for i in range(n)]),
        lambda: pa.array([2**63 - 1 - i for i in range(n)]),
        lambda: pa.array([i % 3 == 0 for i in range(n)]),
        lambda: pa.array(range(n), pa.timestamp("s")),
        lambda: pa.array([str(i) for i in range(n)]).dictionary_encode(),
        lambda: pa.array([None if i == 7 else i for i in range(n)]),
        lambda: pa.array([1] * n, pa.decimal128(30, 2)),
        lambda: pa.array([[1.0, None]] * n, pa.list_(pa.float64(), 2)),
        lambda: pa.array([7] * n),
    ]
    return made[int(rng.integers(len(made)))]()


def forge_table(path, rng):
    """A column of another type, a column twice, no rows, or an odd name."""
    feather = path.suffix == ".feather"
    table = pyarrow.feather.read_table(path) if feather else pq.read_table(path)
    at, kind = int(rng.integers(table.num_columns)), rng.integers(8)
    name = table.column_names[at]
    if kind == 0:
        table = table.append_column(name, table.column(at))
    elif kind == 1:
        table = table.slice(0, int(rng.integers(3)))
    elif kind == 2:
        others = ["", "\x1b[2J", "id", "x" * 10_000, "a.b", "\0"]
        names = [*table.column_names]
        names[at] = others[int(rng.integers(len(others)))]
        table = table.rename_columns(names)
    else:
        table = table.set_column(at, name, forge_column(table.column(at), rng))
    with contextlib.suppress(pa.ArrowException):  # a type that the format does not have
        if feather:
            pyarrow.feather.write_feather(table, str(path), compression="uncompressed")
        else:
            pq.write_table(table, path)


def forge_jsonl(path, rng):
    """One line with a node replaced, or all of them."""
    lines = path.read_text().splitlines()
    seed, at = int(rng.integers(2**31)), int(rng.integers(len(lines)))
    for i in range(len(lines)) if rng.random() < 0.3 else [at]:
        changed = forge_json(json.loads(lines[i]), np.random.default_rng(seed))
        lines[i] = json.dumps(changed)
    path.write_text("\n".join(lines))


def forge_png(path, rng):
    """Chunks changed, doubled or left out, with their right checksums."""
    data, chunks, at = path.read_bytes(), [], 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    i, kind = int(rng.integers(len(chunks))), rng.integers(5)
    name, body = chunks[i]
    if kind == 0:
        chunks.insert(i, chunks[i])
    elif kind == 1:
        del chunks[i]
    elif kind == 2 and body:  # of IHDR: sizes, depth, color type
        place = int(rng.integers(len(body)))
        chunks[i] = (name, body[:place] + rng.bytes(1) + body[place + 1 :])
    elif kind == 3:
        chunks.insert(1, (b"zTXt", b"text\0\0" + zlib.compress(b"0" * 2_000_000)))
    else:
        sizes = struct.pack(">II", *(int(s) for s in rng.choice([0, 1, 30, 2**16, 2**31 - 1], 2)))
        chunks[0] = (b"IHDR", sizes + chunks[0][1][8:])
    made = [struct.pack(">I", len(b)) + n + b for n, b in chunks]
    sums = [struct.pack(">I", zlib.crc32(n + b)) for n, b in chunks]
    path.write_bytes(data[:8] + b"".join(c + s for c, s in zip(made, sums, strict=True)))


CONTAINERS = {
    ".rpml": "model",
    ".index": "index",
    ".explorer": "explorer cache",
}
FORGERS = {
    **dict.fromkeys(CONTAINERS, forge_container),
    ".npy": forge_npy,
    ".npz": forge_npz,
    ".parquet": forge_table,
    ".feather": forge_table,
    ".jsonl": forge_jsonl,
    ".png": forge_png,
    ".json": lambda path, rng: path.write_text(
        json.dumps(forge_json(json.loads(path.read_text()), rng))
    ),
}
