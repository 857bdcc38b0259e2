"""Who is answered, what can be reached, and what the server survives."""

from __future__ import annotations

import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

from rpml.pages.explorer.app import address, allowed_hosts, make_app, open_socket, warning
from rpml.pages.explorer.catalog import Catalog, make_catalog
from rpml.pages.items import make_items, picture_reader
from rpml.runtime.errors import InputError
from tests.drawings import Sample
from tests.pages.explorer.client import SERVER_THREAD, Client, running

PATHS = ["/", "/api/about", "/api/neighbors?row=1", "/picture/1", "/static/base.css", "/nowhere"]


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_carries_the_headers(client: Client, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


FOREIGN = ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::1"]
FOREIGN += [
    "127.0.0.1, evil.example",
    "127.0.0.1:80:80",
    "169.254.169.254",
    "0.0.0.0",
    "localhost:x",
]


@pytest.mark.parametrize("host", FOREIGN)
def test_foreign_hosts_are_refused(client: Client, host: str) -> None:
    for path in PATHS:
        answer = client.get(path, host=host)
        assert answer.status == 400
        assert answer.body == b"Invalid host header"
        assert "content-security-policy" in answer.headers


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9999", "[::1]:80", "LOCALHOST"])
def test_own_hosts_are_answered(client: Client, host: str) -> None:
    assert client.get("/api/about", host=host).status == 200


def test_a_name_can_be_allowed(catalog: Catalog) -> None:
    assert "[fe80::1]" in allowed_hosts(["fe80::1"])
    with running(make_app(catalog, hosts=["Box.Example"])) as port:
        assert Client(port).get("/api/about", host="box.example:80").status == 200
        assert Client(port).get("/api/about", host="other.example").status == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "http://[bad"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
def test_cross_origin_posts_are_refused(
    client: Client, sample: Sample, headers: dict[str, str]
) -> None:
    body = np.lib.format.magic(1, 0)
    assert client.post("/api/upload/vector", body, **headers).status == 403


def test_own_posts_are_taken(client: Client) -> None:
    origin = f"http://127.0.0.1:{client.port}"
    answer = client.post("/api/upload/vector", b"x", origin=origin, sec_fetch_site="same-origin")
    assert answer.status == 422


def test_other_sites_may_link_to_the_page_and_no_more(client: Client) -> None:
    foreign = {"sec_fetch_site": "cross-site"}
    assert client.get("/", sec_fetch_mode="navigate", **foreign).status == 200
    assert client.get("/api/about", sec_fetch_mode="cors", **foreign).status == 403
    assert client.get("/picture/1", sec_fetch_mode="no-cors", **foreign).status == 403


OUTSIDE = ["../secret.txt", "..%2fsecret.txt", "%2e%2e/secret.txt", "..%252fsecret.txt"]
OUTSIDE += ["/etc/passwd", "%2fetc%2fpasswd", "....//secret.txt", "..\\secret.txt", "1/../../etc"]
OUTSIDE += ["\x00", "-1", "1e3", "٣", "9" * 40, "1%00.png", "~root", "file:///etc/passwd"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_path_reaches_outside(client: Client, name: str) -> None:
    for prefix in ("/picture/", "/static/"):
        path = prefix + (name if name.isascii() and name.isprintable() else quote(name))
        answer = client.get(path)
        assert answer.status in (404, 405)
        assert b"root:" not in answer.body
        assert b"secret" not in answer.body


def test_links_made_later_do_not_lead_outside(sample: Sample, tmp_path: Path) -> None:
    images, secret = tmp_path / "images", tmp_path / "secret.png"
    images.mkdir()
    for i in range(3):
        Image.new("L", (8, 8), 10 * i).save(images / f"{i}.png")
    Image.new("L", (8, 8)).save(secret)
    items = make_items(3, images=images)
    (images / "1.png").unlink()
    (images / "1.png").symlink_to(secret)
    (images / "2.png").unlink()
    catalog = make_catalog(sample.model, sample.X[:3], items)
    with running(make_app(catalog, picture_reader(items, images))) as port:
        statuses = [Client(port).get(f"/picture/{i}").status for i in range(3)]
    assert statuses == [200, 404, 404]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/neighbors", 400),
        ("/api/neighbors?row=-1", 400),
        ("/api/neighbors?row=300", 400),
        ("/api/neighbors?row=1.5", 400),
        ("/api/neighbors?row=%D9%A3", 400),
        ("/api/neighbors?row=" + "9" * 500, 400),
        ("/api/neighbors?row=1&k=0", 400),
        ("/api/neighbors?row=1&k=201", 400),
        ("/api/neighbors?row=1&space=other", 400),
        ("/api/neighbors?id=nobody", 404),
        ("/api/neighbors?id=%00%ff%fe", 404),
        ("/api/neighbors?upload=zz", 404),
        ("/api/item?upload=zz", 404),
        ("/api/item", 400),
        ("/api/find?q=a&most=1000", 400),
        ("/api/clusters?sort=color", 400),
        ("/api/clusters?start=-1", 400),
        ("/api/cluster?cluster=99999", 404),
        ("/api/cluster", 404),
        ("/api/cluster/rows?cluster=x", 400),
        ("/api/category?name=__class__", 400),
        ("/api/map?space=../raw", 400),
        ("/api/neighbors.csv", 400),
        ("/api/cluster.csv?cluster=99999", 404),
        ("/nowhere", 404),
        ("/api/upload/vector", 405),
    ],
)
def test_wrong_requests_get_one_sentence(client: Client, path: str, status: int) -> None:
    answer = client.get(path)
    assert answer.status == status
    assert answer.sentence


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"])
def test_other_methods_are_refused(client: Client, method: str) -> None:
    for path in ("/", "/api/about", "/api/upload/vector"):
        assert client.request(method, path).status in (400, 403, 405)


def test_failures_inside_show_no_trace(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = make_catalog(sample.model, sample.X, make_items(len(sample.X)))
    monkeypatch.setattr(Catalog, "find", lambda *args: 1 / 0)
    with running(make_app(catalog)) as port:
        answer = Client(port).get("/api/find?q=x")
        assert answer.status == 500
        assert "ZeroDivision" not in answer.sentence
        assert Client(port).get("/api/about").status == 200


def malformed(rng: random.Random, host: str) -> bytes:
    """A request that is wrong in one of many ways."""
    junk = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 200)))
    word = "".join(rng.choice("abcXYZ/%.?&=;\\'\"<>{}~\u00e9") for _ in range(rng.randrange(40)))
    text = quote(word, safe="/?&=%")
    post = f"POST /api/upload/vector HTTP/1.1\r\nHost: {host}\r\n"
    choices = [
        junk,
        b"GET /" + junk + b" HTTP/1.1\r\nHost: " + host.encode() + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: " + junk.replace(b"\n", b"") + b"\r\n\r\n",
        f"GET /api/neighbors?row={text} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(),
        f"GET /api/find?q={text}%ff%00 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(),
        f"GET /picture/{text} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(),
        f"GET /static/{text} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(),
        f"{post}Content-Length: -5\r\n\r\n".encode(),
        f"{post}Content-Length: 999\r\n\r\n".encode(),
        f"{post}Content-Length: {len(junk)}\r\n\r\n".encode() + junk,
        f"{post}Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode(),
        f"GET / HTTP/1.1\r\nHost: {host}\r\nX: {'y' * rng.randrange(1, 90_000)}\r\n\r\n".encode(),
        f"GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode(),
    ]
    return rng.choice(choices)


def send_malformed(client: Client, count: int, seed: int) -> int:
    """How many answers were a failure of the server's own (5xx)."""
    rng = random.Random(seed)
    failures = 0
    for _ in range(count):
        data = malformed(rng, f"127.0.0.1:{client.port}")
        try:
            answer = client.raw(data)
        except OSError:  # closed while we were sending: that is an answer too
            continue
        failures += answer.startswith(b"HTTP/1.1 5")
        assert b"Traceback" not in answer
    return failures


def search_many(client: Client, rows: range) -> int:
    return sum(client.get("/api/neighbors", {"row": r}).status == 200 for r in rows)


def assault(client: Client, count: int) -> None:
    """Malformed requests from four threads while 64 clients search; then all is as before."""
    with ThreadPoolExecutor(68) as pool:
        bad = [pool.submit(send_malformed, client, count // 4, seed) for seed in range(4)]
        good = [pool.submit(search_many, client, range(i, i + 5)) for i in range(64)]
        assert sum(future.result() for future in bad) == 0
        assert sum(future.result() for future in good) == 64 * 5
    assert SERVER_THREAD in {t.name for t in threading.enumerate()}  # idle helpers may end
    assert client.json("/api/neighbors", row=7)["query"]["row"] == 7


def test_survives_malformed_requests_next_to_64_clients(client: Client) -> None:
    assault(client, 1000)


@pytest.mark.slow
def test_survives_10000_malformed_requests_next_to_64_clients(client: Client) -> None:
    assault(client, 10_000)


def test_an_idle_connection_does_not_block_others(client: Client) -> None:
    idle = [socket.create_connection(("127.0.0.1", client.port)) for _ in range(40)]
    for connection in idle:
        connection.sendall(b"POST /api/upload/vector HTTP/1.1\r\nHost: localhost\r\nContent-Le")
    try:
        assert client.get("/api/about").status == 200
    finally:
        for connection in idle:
            connection.close()


def test_listening_elsewhere_is_said_loudly() -> None:
    assert warning("127.0.0.1") is None
    assert warning("localhost") is None
    assert "everybody" in warning("0.0.0.0")
    assert "everybody" in warning("192.168.1.5")


def test_a_taken_port_is_one_sentence() -> None:
    listener = open_socket("127.0.0.1", 0)
    port = listener.getsockname()[1]
    assert address(listener) == f"http://127.0.0.1:{port}/"
    with pytest.raises(InputError, match=f"port {port}.*--port"):
        open_socket("127.0.0.1", port)
    listener.close()
