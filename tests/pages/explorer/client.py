"""A server in a thread, and requests to it as a browser or an attacker would send them."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.types import ASGIApp

from rpml.pages.explorer.app import open_socket, start

SERVER_THREAD = "explorer under test"


@contextmanager
def running(app: ASGIApp) -> Iterator[int]:
    """Serve on a free port while the block runs."""
    listener = open_socket("127.0.0.1", 0)
    server, thread = start(app, listener)
    thread.name = SERVER_THREAD
    while not server.started:
        time.sleep(0.01)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def sentence(self) -> str:
        """The error, which must be one sentence."""
        said: str = self.json["error"]
        assert "\n" not in said
        assert "Traceback" not in said
        return said


class Client:
    """Requests to a port of this machine."""

    def __init__(self, port: int) -> None:
        self.port = port

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, named)
            got = connection.getresponse()
            found = {name.lower(): value for name, value in got.getheaders()}
            return Answer(got.status, found, got.read())
        finally:
            connection.close()

    def get(self, path: str, parameters: dict[str, Any] | None = None, **headers: str) -> Answer:
        query = f"?{urlencode(parameters)}" if parameters else ""
        return self.request("GET", path + query, **headers)

    def json(self, path: str, **parameters: Any) -> Any:
        answer = self.get(path, parameters)
        assert answer.status == 200, answer.body
        return answer.json

    def post(self, path: str, body: bytes, **headers: str) -> Answer:
        return self.request("POST", path, body, **headers)

    def raw(self, data: bytes, timeout: float = 5.0) -> bytes:
        """Send bytes as they are; what comes back until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            parts = []
            try:
                while part := connection.recv(65536):
                    parts.append(part)
            except OSError:
                pass
        return b"".join(parts)
