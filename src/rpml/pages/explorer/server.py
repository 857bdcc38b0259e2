"""Running the explorer: where it listens, and what it says about that."""

import socket

import uvicorn
from starlette.types import ASGIApp

from rpml.pages.explorer.security import LOOPBACK
from rpml.runtime.errors import InputError

_BACKLOG = 256


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket, or one sentence why not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # the protocol is named because asyncio turns Nagle's delay off for named ones only
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        reason = error.strerror or str(error)
        raise InputError(
            f"cannot listen on {host} port {port}: {reason}; choose another with --port"
        ) from error
    return listener


def address(listener: socket.socket) -> str:
    """Where the page is."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def warning(host: str) -> str | None:
    """What to say, loudly, when others can reach the explorer."""
    if host in LOOPBACK:
        return None
    return (
        f"the explorer listens on {host}: everybody who can reach this machine can see the items, "
        "their pictures and labels; there is no password"
    )


def configuration(app: ASGIApp) -> uvicorn.Config:
    """Quiet, plain HTTP, nothing but our application."""
    return uvicorn.Config(
        app,
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
    """Answer requests until interrupted."""
    uvicorn.Server(configuration(app)).run(sockets=[listener])
