"""The server of the explorer."""

import asyncio
import socket
import threading

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from rpml.pages.explorer.app import LOOPBACK
from rpml.runtime.errors import InputError

_BACKLOG = 256


def open_socket(host: str, port: int) -> socket.socket:
    """Open a listening socket; InputError if that fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # the protocol is given because asyncio disables Nagle's algorithm only then
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise InputError(
            f"cannot listen on {host} port {port}: {reason}; choose others with --host or --port"
        ) from error
    return listener


def address(listener: socket.socket) -> str:
    """Return the address of the page."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def warning(host: str) -> str | None:
    """Return a warning if others can reach the explorer."""
    if host in LOOPBACK:
        return None
    return (
        f"the explorer listens on {host}: everybody who can reach this machine can see the items, "
        "their pictures and labels; there is no password"
    )


class HeaderTimeout(H11Protocol):
    """Closes a connection whose request line and headers do not arrive in time."""

    seconds = 10.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._cancel()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._cancel()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self.transport.close)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def configuration(app: ASGIApp) -> uvicorn.Config:
    """Return the configuration: plain HTTP, no logs, only this application."""
    return uvicorn.Config(
        app,
        http=HeaderTimeout,
        log_level="error",
        access_log=False,
        ws="none",
        lifespan="off",
        server_header=False,
        date_header=False,
        timeout_keep_alive=15,
        proxy_headers=False,
    )


def serve(app: ASGIApp, listener: socket.socket) -> None:
    """Serve until interrupted."""
    uvicorn.Server(configuration(app)).run(sockets=[listener])


def start(app: ASGIApp, listener: socket.socket) -> tuple[uvicorn.Server, threading.Thread]:
    """Serve in a thread until `should_exit` of the server is set."""
    server = uvicorn.Server(configuration(app))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    return server, thread
