"""The explorer as an ASGI application that rejects cross-site requests, and its server."""

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar
from urllib.parse import unquote, urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, ExceptionHandler

from rpml.pages import assets
from rpml.pages.explorer.answers import Answers, Query, RequestError
from rpml.pages.explorer.catalog import Catalog
from rpml.pages.explorer.labeling import MAX_BODY, Labeling
from rpml.pages.explorer.uploads import (
    MAX_IMAGE_BYTES,
    MAX_VECTOR_BYTES,
    Describe,
    Upload,
    parse_vector,
)
from rpml.pages.items import PictureReader
from rpml.runtime.context import Json
from rpml.runtime.errors import InputError, WriteError, one_line
from rpml.runtime.rows import Array
from rpml.runtime.threads import thread_count

logger = logging.getLogger(__name__)
T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[Response]]
Answer = Json | bytes | str
"""Sent as JSON, as binary data or as a CSV file."""

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
    "cache-control": "no-store",
}
"""Of every answer, unless it has others."""
INTERNAL_ERROR = "the explorer failed on this request; see its log"
_SAFE_METHODS = ("GET", "HEAD")
_SENTENCES = {
    404: "there is nothing at this address",
    405: "this address does not support that method",
}
_TYPES = {"css": "text/css", "js": "text/javascript", "html": "text/html"}
_CACHED = {"cache-control": "private, max-age=600"}


async def secured(request: Request, call_next: RequestResponseEndpoint) -> Response:
    """Reject cross-site requests, add security headers, and log errors instead of showing them."""
    reason = cross_site_reason(request)
    try:
        response = await call_next(request) if reason is None else error_response(403, reason)
    except Exception:
        logger.exception("a request failed")
        response = error_response(500, INTERNAL_ERROR)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def error_response(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status)


def cross_site_reason(request: Request) -> str | None:
    """Return why a cross-site request is rejected; None for requests of the page itself."""
    headers, safe = request.headers, request.method in _SAFE_METHODS
    navigation = headers.get("sec-fetch-mode") == "navigate" and safe
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not navigation:
        return "requests from other sites are refused"
    host = headers.get("host", "").lower()
    try:
        origin = urlsplit(headers.get("origin", f"http://{host}").lower())
    except ValueError:
        origin = urlsplit("")
    if not safe and (origin.scheme not in ("http", "https") or origin.netloc != host):
        return "posts from other origins are refused"
    return None


def make_app(
    catalog: Catalog,
    pictures: PictureReader | None = None,
    describe: Describe | None = None,
    hosts: Iterable[str] = (),
    labeling: Labeling | None = None,
    scale: bool = False,
) -> Starlette:
    """Build the application with host checks and security headers.

    `describe` maps the bytes of an uploaded image to a vector and a picture. `hosts` are accepted
    next to the loopback names. With `labeling` the page can label items and train again. `scale`
    adds to each neighbor the share of random pairs that are less similar.
    """
    parts = {"has_pictures": pictures, "accepts_images": describe, "can_label": labeling}
    answers = Answers(catalog, {name: part is not None for name, part in parts.items()}, scale)
    middleware = [
        Middleware(BaseHTTPMiddleware, dispatch=secured),
        Middleware(TrustedHostMiddleware, allowed_hosts=allowed_hosts(hosts), www_redirect=False),
    ]
    handled = (RequestError, InputError, WriteError, HTTPException)
    handlers: dict[type[Exception], ExceptionHandler] = dict.fromkeys(handled, _explained)
    routes = _routes(answers, labeling)
    app = Starlette(routes=routes, exception_handlers=handlers, middleware=middleware)
    app.state.answers, app.state.pictures, app.state.describe = answers, pictures, describe
    app.state.static = assets("explorer")
    app.state.slots = asyncio.Semaphore(thread_count())  # requests that compute at once
    return app


def _routes(answers: Answers, labeling: Labeling | None) -> list[Route]:
    gets: dict[str, Callable[[Query], Answer]] = {
        "about": answers.about,
        "status": answers.status,
        "item": answers.item,
        "find": answers.find,
        "random": answers.random_item,
        "neighbors": answers.neighbors,
        "neighbors.csv": answers.export_neighbors,
        "category": answers.category,
        "map": answers.map_points,
        "clusters": answers.list_clusters,
        "cluster": answers.cluster,
        "cluster/rows": answers.cluster_rows,
        "cluster.csv": answers.export_cluster,
        "table": answers.table,
        "table/cells": answers.table_cells,
        "table/rows": answers.table_rows,
    }
    posts: dict[str, Callable[[bytes], Answer]] = {}
    if labeling is not None:
        gets |= {
            "labels": labeling.summary,
            "labels/rows": labeling.rows,
            "learn": labeling.progress,
            "suggest": labeling.suggest,
        }
        posts = {
            "labels": labeling.assign,
            "labels/undo": labeling.undo,
            "learn": labeling.learn,
            "learn/cancel": labeling.cancel,
        }
    return [
        *(Route(f"/api/{name}", _get(answer), methods=["GET"]) for name, answer in gets.items()),
        *(Route(f"/api/{name}", _post(answer), methods=["POST"]) for name, answer in posts.items()),
        Route("/", _static_file),
        Route("/static/{name}", _static_file),
        Route("/api/upload/vector", _upload_vector, methods=["POST"]),
        Route("/api/upload/image", _upload_image, methods=["POST"]),
        Route("/picture/{row:int}", _picture),
        Route("/picture/upload/{token}", _uploaded_picture),
    ]


def _get(answer: Callable[[Query], Answer]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return _respond(await _run(request, answer, request.query_params))

    return endpoint


def _post(answer: Callable[[bytes], Answer]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        if request.headers.get("content-type") != "application/json":
            raise RequestError(415, "this address takes JSON")
        return _respond(await _run(request, answer, await _body(request, MAX_BODY)))

    return endpoint


async def _run(request: Request, function: Callable[..., T], *arguments: object) -> T:
    async with request.app.state.slots:
        return await run_in_threadpool(function, *arguments)


def _respond(answer: Answer) -> Response:
    if isinstance(answer, bytes):
        return Response(answer, media_type="application/octet-stream")
    if isinstance(answer, str):
        headers = {"content-disposition": 'attachment; filename="rpml-result.csv"'}
        return Response(answer, media_type="text/csv; charset=utf-8", headers=headers)
    return JSONResponse(answer)


async def _static_file(request: Request) -> Response:
    """Return the page, its scripts and style sheets from memory."""
    name = request.path_params.get("name", "index.html")
    if name not in request.app.state.static:
        raise HTTPException(404)
    kind = _TYPES[name.rpartition(".")[2]]
    return Response(request.app.state.static[name], media_type=kind)


async def _picture(request: Request) -> Response:
    large, read = request.query_params.get("large") == "1", request.app.state.pictures
    picture = read and await _run(request, read, request.path_params["row"], large)
    return _shown(picture)


async def _uploaded_picture(request: Request) -> Response:
    upload = request.app.state.answers.uploads.get(request.path_params["token"])
    return _shown(upload and upload.picture)


def _shown(picture: bytes | None) -> Response:
    if picture is None:
        raise RequestError(404, "there is no picture that can be shown")
    return Response(picture, media_type="image/webp", headers=_CACHED)


async def _upload_vector(request: Request) -> Response:
    data, catalog = await _body(request, MAX_VECTOR_BYTES), request.app.state.answers.catalog
    return _uploaded(request, parse_vector(data, catalog.indices["raw"].n_dims), None)


async def _upload_image(request: Request) -> Response:
    if request.app.state.describe is None:
        raise RequestError(404, "the explorer needs --backbone to search with images")
    data = await _body(request, MAX_IMAGE_BYTES)
    return _uploaded(request, *await _run(request, request.app.state.describe, data))


def _uploaded(request: Request, vector: Array, picture: bytes | None) -> Response:
    name = unquote(request.headers.get("x-file-name", ""))[:200] or "upload"
    upload = Upload(name, vector, picture)
    request.app.state.answers.add_upload(upload)
    return _respond({"upload": upload.token, "name": name})


async def _body(request: Request, most: int) -> bytes:
    """Return the body of a request, within a limit of size."""
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise RequestError(413, f"an upload may have at most {most // 2**20} MB")
    except ClientDisconnect:
        raise RequestError(400, "the upload was interrupted") from None
    if not body:
        raise RequestError(400, "the upload is empty")
    return bytes(body)


def allowed_hosts(hosts: Iterable[str]) -> list[str]:
    """Return host names as in a Host header, with IPv6 addresses in brackets."""
    names = {name.lower().strip("[]") for name in (*LOOPBACK, *hosts)}
    return sorted(f"[{name}]" if ":" in name else name for name in names)


def _explained(request: Request, error: Exception) -> Response:
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
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def warning(host: str) -> str | None:
    if host in LOOPBACK:
        return None
    return (
        f"the explorer listens on {host}: everybody who can reach this machine can see the items, "
        "their pictures and labels; there is no password"
    )


def make_server(app: ASGIApp) -> uvicorn.Server:
    """Return a server of plain HTTP, without logs, for this application only."""
    return uvicorn.Server(
        uvicorn.Config(
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
    )


def start(app: ASGIApp, listener: socket.socket) -> tuple[uvicorn.Server, threading.Thread]:
    """Serve in a thread until `should_exit` of the server is set."""
    server = make_server(app)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    return server, thread
