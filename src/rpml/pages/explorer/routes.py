"""The explorer's HTTP endpoints; computations run in threads."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar
from urllib.parse import unquote

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rpml.pages import assets
from rpml.pages.explorer.answers import Answers, Query, RequestError, is_digits
from rpml.pages.explorer.browsing import ClusterAnswers, TableAnswers
from rpml.pages.explorer.labeling import MAX_BODY, LabelAnswers
from rpml.pages.explorer.uploads import (
    MAX_IMAGE_BYTES,
    MAX_VECTOR_BYTES,
    Describe,
    Upload,
    parse_vector,
    upload_picture,
)
from rpml.pages.items import PictureReader
from rpml.runtime.context import Json
from rpml.runtime.rows import Array
from rpml.runtime.threads import thread_count

P = ParamSpec("P")
T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[Response]]

_TYPES = {"css": "text/css", "js": "text/javascript", "html": "text/html"}
_NO_STORE = {"cache-control": "no-store"}
_CACHED = {"cache-control": "private, max-age=600"}


class Routes:
    """All endpoints; at most as many requests run at once as there are cores."""

    def __init__(
        self,
        answers: Answers,
        labels: LabelAnswers | None,
        pictures: PictureReader | None,
        describe: Describe | None,
    ) -> None:
        self.answers, self.labels = answers, labels
        self.pictures, self.describe = pictures, describe
        self._slots = asyncio.Semaphore(thread_count())
        self._static = assets("explorer")

    def table(self) -> list[Route]:
        """Return all routes."""
        answers, clusters = self.answers, ClusterAnswers(self.answers)
        cells = TableAnswers(answers)
        json = {
            "about": answers.about,
            "status": answers.status,
            "item": answers.one,
            "find": answers.find,
            "random": answers.random_item,
            "neighbors": answers.neighbors,
            "category": answers.category,
            "clusters": clusters.page,
            "cluster": clusters.one,
            "table": cells.columns,
            "table/cells": cells.cells,
        }
        return [
            *(Route(f"/api/{name}", self._get(answer, _json)) for name, answer in json.items()),
            Route("/", self._index),
            Route("/static/{name}", self._static_file),
            Route("/api/map", self._get(answers.map_points, _binary)),
            Route("/api/table/rows", self._get(cells.rows, _binary)),
            Route("/api/cluster/rows", self._get(clusters.rows, _binary)),
            Route("/api/neighbors.csv", self._get(answers.export, _csv)),
            Route("/api/cluster.csv", self._get(clusters.export, _csv)),
            Route("/api/upload/vector", self._upload_vector, methods=["POST"]),
            Route("/api/upload/image", self._upload_image, methods=["POST"]),
            Route("/picture/{row}", self._picture),
            Route("/picture/upload/{token}", self._uploaded_picture),
            *([] if self.labels is None else self._labeling(self.labels)),
        ]

    def _labeling(self, labels: LabelAnswers) -> list[Route]:
        posts = {
            "labels": labels.assign,
            "labels/undo": labels.undo,
            "learn": labels.learn,
            "learn/cancel": labels.cancel,
        }
        gets = {"labels": labels.summary, "learn": labels.progress, "suggest": labels.suggest}
        return [
            *(Route(f"/api/{n}", self._get(f, _json), methods=["GET"]) for n, f in gets.items()),
            *(Route(f"/api/{n}", self._post(f), methods=["POST"]) for n, f in posts.items()),
            Route("/api/labels/rows", self._get(labels.rows, _binary)),
        ]

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._slots:
            return await run_in_threadpool(function, *args, **kwargs)

    def _get(self, answer: Callable[[Query], T], respond: Callable[[T], Response]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            return respond(await self._run(answer, request.query_params))

        return endpoint

    def _post(self, answer: Callable[[bytes], Json]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            if request.headers.get("content-type") != "application/json":
                raise RequestError(415, "this address takes JSON")
            return _json(await self._run(answer, await _body(request, MAX_BODY)))

        return endpoint

    async def _index(self, request: Request) -> Response:
        return Response(self._static["index.html"], media_type="text/html", headers=_NO_STORE)

    async def _static_file(self, request: Request) -> Response:
        """Return scripts and style sheets from memory."""
        name = request.path_params["name"]
        if name not in self._static:
            raise RequestError(404, "there is nothing at this address")
        kind = _TYPES[name.rpartition(".")[2]]
        return Response(self._static[name], media_type=kind, headers=_NO_STORE)

    async def _picture(self, request: Request) -> Response:
        if self.pictures is None:
            raise RequestError(404, "the explorer was started without --images")
        text = request.path_params["row"]
        large = request.query_params.get("large") == "1"
        picture = await self._run(self.pictures, int(text), large) if is_digits(text) else None
        if picture is None:
            raise RequestError(404, "this row has no picture that can be shown")
        return Response(picture, media_type="image/webp", headers=_CACHED)

    async def _uploaded_picture(self, request: Request) -> Response:
        upload = self.answers.uploads.get(request.path_params["token"])
        if upload is None or upload.picture is None:
            raise RequestError(404, "there is no such picture")
        return Response(upload.picture, media_type="image/webp", headers=_CACHED)

    async def _upload_vector(self, request: Request) -> Response:
        data = await _body(request, MAX_VECTOR_BYTES)
        return self._uploaded(request, parse_vector(data, self.answers.catalog.n_features), None)

    async def _upload_image(self, request: Request) -> Response:
        if self.describe is None:
            raise RequestError(404, "the explorer needs --backbone to search with images")
        data = await _body(request, MAX_IMAGE_BYTES)
        vector = await self._run(self.describe, data)
        return self._uploaded(request, vector, await self._run(upload_picture, data))

    def _uploaded(self, request: Request, vector: Array, picture: bytes | None) -> Response:
        name = unquote(request.headers.get("x-file-name", ""))[:200] or "upload"
        upload = Upload(name, vector, picture)
        self.answers.add_upload(upload)
        return JSONResponse({"upload": upload.token, "name": name})


def _json(value: Json) -> Response:
    return JSONResponse(value, headers=_NO_STORE)


def _binary(value: bytes) -> Response:
    return Response(value, media_type="application/octet-stream", headers=_NO_STORE)


def _csv(text: str) -> Response:
    headers = {"content-disposition": 'attachment; filename="rpml-result.csv"', **_NO_STORE}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


async def _body(request: Request, most: int) -> bytes:
    """Return the body of a request, within a limit of size."""
    declared = request.headers.get("content-length", "0")
    too_large = RequestError(413, f"an upload may have at most {most // 2**20} MB")
    if declared.isascii() and declared.isdigit() and int(declared[:15]) > most:
        raise too_large
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise too_large
    except ClientDisconnect:
        raise RequestError(400, "the upload was interrupted") from None
    if not body:
        raise RequestError(400, "the upload is empty")
    return bytes(body)
