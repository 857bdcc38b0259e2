"""The explorer as an ASGI application: routes, and what an answer looks like on the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

import anyio
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rpml.pages.explorer.answers import Answers, Refusal
from rpml.pages.explorer.catalog import Catalog
from rpml.pages.explorer.guard import FAILED, Guard
from rpml.pages.explorer.pictures import Pictures
from rpml.pages.explorer.uploads import (
    MAX_IMAGE_BYTES,
    MAX_VECTOR_BYTES,
    Describe,
    Uploads,
    parse_vector,
)
from rpml.runtime.errors import InputError
from rpml.runtime.threads import thread_count

_STATIC = {
    "base.css": "rpml.pages.report",
    "scatter.js": "rpml.pages.report",
    "explore.css": "rpml.pages.explorer",
    "explore.js": "rpml.pages.explorer",
    "views.js": "rpml.pages.explorer",
}
_TYPES = {"css": "text/css", "js": "text/javascript", "html": "text/html"}
_SECONDS_TO_SEND = 30
_NO_STORE = {"cache-control": "no-store"}
_KEEP = {"cache-control": "private, max-age=600"}


@dataclass(frozen=True)
class Options:
    """What the explorer may do besides searching.

    Parameters
    ----------
    pictures : Pictures, optional
        Where there are images.
    describe : callable, optional
        From the bytes of an uploaded image to a vector.
    hosts : iterable of str
        Names, beside the loopback ones, the server may be asked under.
    """

    pictures: Pictures | None = None
    describe: Describe | None = None
    hosts: Iterable[str] = field(default_factory=tuple)


def make_app(catalog: Catalog, options: Options | None = None) -> Guard:
    """The application, guarded."""
    options = options or Options()
    uploads = Uploads()
    answers = Answers(catalog, uploads, options.describe is not None, options.pictures is not None)
    desk = Desk(answers, uploads, options)
    json_answers: dict[str, Callable[[Any], Any]] = {
        "/api/about": answers.about,
        "/api/status": answers.status,
        "/api/item": answers.one,
        "/api/find": answers.find,
        "/api/chance": answers.chance,
        "/api/neighbors": answers.neighbors,
        "/api/clusters": answers.cluster_list,
        "/api/cluster": answers.cluster,
        "/api/category": answers.category,
    }
    routes = [Route(path, desk.json(answer)) for path, answer in json_answers.items()]
    routes += [
        Route("/", desk.page),
        Route("/static/{name}", desk.static),
        Route("/api/map", desk.binary(answers.map_points)),
        Route("/api/cluster/rows", desk.binary(answers.cluster_rows)),
        Route("/api/export.csv", desk.export),
        Route("/api/upload/vector", desk.upload_vector, methods=["POST"]),
        Route("/api/upload/image", desk.upload_image, methods=["POST"]),
        Route("/picture/{row}", desk.picture),
    ]
    handlers: Any = {
        Refusal: _refused,
        InputError: _wrong_input,
        HTTPException: _http_error,
        Exception: _failed,
    }
    return Guard(Starlette(routes=routes, exception_handlers=handlers), options.hosts)


def _error(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status, headers=_NO_STORE)


def _refused(request: Request, error: Refusal) -> Response:
    return _error(error.status, error.sentence)


def _wrong_input(request: Request, error: InputError) -> Response:
    return _error(422, " ".join(str(error).split()))


def _failed(request: Request, error: Exception) -> Response:
    return _error(500, FAILED)  # the guard logs it


def _http_error(request: Request, error: HTTPException) -> Response:
    sentences = {404: "there is nothing at this address", 405: "this address is not asked that way"}
    return _error(error.status_code, sentences.get(error.status_code, "the request is malformed"))


class Desk:
    """Endpoints; what computes runs in threads, as many at once as there are cores."""

    def __init__(self, answers: Answers, uploads: Uploads, options: Options) -> None:
        self.answers, self.uploads, self.options = answers, uploads, options
        self._turn = asyncio.Semaphore(thread_count())
        self._page = _read("rpml.pages.explorer", "index.html")
        self._static = {name: _read(package, name) for name, package in _STATIC.items()}

    async def _computed(self, function: Callable[..., Any], *arguments: Any) -> Any:
        async with self._turn:
            return await run_in_threadpool(function, *arguments)

    def json(self, answer: Callable[[Any], Any]) -> Callable[[Request], Any]:
        """An endpoint that answers with JSON."""

        async def endpoint(request: Request) -> Response:
            value = await self._computed(answer, request.query_params)
            return JSONResponse(value, headers=_NO_STORE)

        return endpoint

    def binary(self, answer: Callable[[Any], bytes]) -> Callable[[Request], Any]:
        """An endpoint that answers with an array."""

        async def endpoint(request: Request) -> Response:
            value = await self._computed(answer, request.query_params)
            return Response(value, media_type="application/octet-stream", headers=_NO_STORE)

        return endpoint

    async def page(self, request: Request) -> Response:
        """The page itself."""
        return Response(self._page, media_type="text/html", headers=_NO_STORE)

    async def static(self, request: Request) -> Response:
        """Our own scripts and style sheets, by name, from memory."""
        name = request.path_params["name"]
        if name not in self._static:
            raise Refusal(404, "there is nothing at this address")
        kind = _TYPES[name.rpartition(".")[2]]
        return Response(self._static[name], media_type=kind, headers=_NO_STORE)

    async def picture(self, request: Request) -> Response:
        """The picture of a row."""
        pictures = self.options.pictures
        if pictures is None:
            raise Refusal(404, "the explorer was started without --images")
        text = request.path_params["row"]
        row = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else -1
        large = request.query_params.get("large") == "1"
        found = await self._computed(pictures.get, row, large) if row >= 0 else None
        if found is None:
            raise Refusal(404, "this row has no picture that can be shown")
        return Response(found.data, media_type=found.kind, headers=_KEEP)

    async def export(self, request: Request) -> Response:
        """The current result as a file."""
        text = await self._computed(self.answers.export, request.query_params)
        headers = {"content-disposition": 'attachment; filename="rpml-result.csv"', **_NO_STORE}
        return Response(text, media_type="text/csv; charset=utf-8", headers=headers)

    async def upload_vector(self, request: Request) -> Response:
        """Keep an uploaded vector as a query."""
        data = await _body(request, MAX_VECTOR_BYTES)
        vector = parse_vector(data, self.answers.catalog.model.n_features_in_)
        return self._kept(request, vector)

    async def upload_image(self, request: Request) -> Response:
        """Describe an uploaded image and keep its vector as a query."""
        describe = self.options.describe
        if describe is None:
            raise Refusal(404, "the explorer was started without --backbone, so it takes no images")
        data = await _body(request, MAX_IMAGE_BYTES)
        return self._kept(request, await self._computed(describe, data))

    def _kept(self, request: Request, vector: Any) -> Response:
        name = unquote(request.headers.get("x-file-name", ""))[:200] or "upload"
        return JSONResponse({"upload": self.uploads.add(name, vector), "name": name})


def _read(package: str, name: str) -> bytes:
    return (files(package) / "static" / name).read_bytes()


async def _body(request: Request, most: int) -> bytes:
    """The body, no longer than allowed and not slower than allowed."""
    declared = request.headers.get("content-length", "0")
    if declared.isascii() and declared.isdigit() and int(declared[:15]) > most:
        raise Refusal(413, f"an upload may have at most {most // 2**20} MB")
    parts, size = [], 0
    try:
        with anyio.fail_after(_SECONDS_TO_SEND):
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                if size > most:
                    raise Refusal(413, f"an upload may have at most {most // 2**20} MB")
    except TimeoutError:
        raise Refusal(408, "the upload took too long") from None
    except ClientDisconnect:
        raise Refusal(400, "the upload was broken off") from None
    if not size:
        raise Refusal(400, "the upload is empty")
    return b"".join(parts)
