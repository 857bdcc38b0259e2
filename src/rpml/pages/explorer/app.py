"""The explorer as an ASGI application that rejects cross-site requests, and its server."""

import logging
import socket
import threading
from collections.abc import Iterable
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, ExceptionHandler, Message, Receive, Scope, Send

from rpml.pages.explorer.answers import Answers, RequestError
from rpml.pages.explorer.catalog import Catalog
from rpml.pages.explorer.labeling import LabelAnswers, Learner
from rpml.pages.explorer.routes import Routes
from rpml.pages.explorer.uploads import Describe
from rpml.pages.items import PictureReader
from rpml.runtime.errors import InputError, WriteError
from rpml.runtime.wording import one_line

logger = logging.getLogger(__name__)

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
INTERNAL_ERROR = "the explorer failed on this request; see its log"
_SAFE_METHODS = ("GET", "HEAD")


class SecurityMiddleware:
    """Rejects cross-site requests, adds security headers, and logs errors instead of showing them.

    Host names are checked by starlette's TrustedHostMiddleware, which runs behind this one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # websockets are not supported
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        reason = cross_site_reason(scope)
        if reason is not None:
            await error_response(403, reason)(scope, receive, send_with_headers)
            return
        try:
            await self.app(scope, receive, send_with_headers)
        except Exception:
            logger.exception("a request failed")
            if not started:
                await error_response(500, INTERNAL_ERROR)(scope, receive, send_with_headers)


def error_response(status: int, sentence: str) -> JSONResponse:
    """Return a JSON error with one sentence."""
    return JSONResponse({"error": sentence}, status, headers={"cache-control": "no-store"})


def cross_site_reason(scope: Scope) -> str | None:
    """Return why a cross-site request is rejected; None for requests of the page itself."""
    headers = Headers(scope=scope)
    site = headers.get("sec-fetch-site", "none")
    navigation = headers.get("sec-fetch-mode") == "navigate" and scope["method"] in _SAFE_METHODS
    if site not in ("same-origin", "none") and not navigation:
        return "requests from other sites are refused"
    host = headers.get("host", "").lower()
    origin = origin_netloc(headers.get("origin", f"http://{host}")).lower()
    if scope["method"] not in _SAFE_METHODS and origin != host:
        return "posts from other origins are refused"
    return None


def origin_netloc(origin: str) -> str:
    """Return host:port of an http origin; empty if it is not one."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return ""
    return parts.netloc if parts.scheme in ("http", "https") else ""


_SENTENCES = {
    404: "there is nothing at this address",
    405: "this address does not support that method",
}


def make_app(
    catalog: Catalog,
    pictures: PictureReader | None = None,
    describe: Describe | None = None,
    hosts: Iterable[str] = (),
    learner: Learner | None = None,
    scale: bool = False,
) -> Starlette:
    """Build the application with host checks and security headers.

    `describe` maps the bytes of an uploaded image to a vector. `hosts` are accepted host names
    besides the loopback ones. A `learner` lets the page label items and train again. `scale` adds
    to each neighbor the share of random pairs that are less similar.
    """
    parts = {"has_pictures": pictures, "accepts_images": describe, "can_label": learner}
    answers = Answers(catalog, (name for name, part in parts.items() if part is not None), scale)
    labels = None if learner is None else LabelAnswers(answers, learner)
    middleware = [
        Middleware(SecurityMiddleware),
        Middleware(TrustedHostMiddleware, allowed_hosts=allowed_hosts(hosts), www_redirect=False),
    ]
    handled = (RequestError, InputError, WriteError, HTTPException)
    handlers: dict[type[Exception], ExceptionHandler] = dict.fromkeys(handled, _explained)
    routes = Routes(answers, labels, pictures, describe).table()
    return Starlette(routes=routes, exception_handlers=handlers, middleware=middleware)


def allowed_hosts(hosts: Iterable[str]) -> list[str]:
    """Return host names as in a Host header, with IPv6 addresses in brackets."""
    names = {name.lower().strip("[]") for name in (*LOOPBACK, *hosts)}
    return sorted(f"[{name}]" if ":" in name else name for name in names)


def _explained(request: Request, error: Exception) -> Response:
    """Answer with a status and one sentence."""
    if isinstance(error, RequestError):
        return error_response(error.status, error.sentence)
    if isinstance(error, WriteError):
        return error_response(507, str(error.strerror))
    if isinstance(error, HTTPException):
        return error_response(
            error.status_code, _SENTENCES.get(error.status_code, "the request is malformed")
        )
    return error_response(422, one_line(error))


def open_socket(host: str, port: int) -> socket.socket:
    """Open a listening socket; InputError if that fails."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # the protocol is given because asyncio disables Nagle's algorithm only then
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(256)
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


def _configuration(app: ASGIApp) -> uvicorn.Config:
    """Return the configuration: plain HTTP, no logs, only this application."""
    return uvicorn.Config(
        app,
        http="h11",
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
    uvicorn.Server(_configuration(app)).run(sockets=[listener])


def start(app: ASGIApp, listener: socket.socket) -> tuple[uvicorn.Server, threading.Thread]:
    """Serve in a thread until `should_exit` of the server is set."""
    server = uvicorn.Server(_configuration(app))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    return server, thread
