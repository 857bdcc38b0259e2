"""What stands before the pages: who may ask, how much may be sent, what headers answers carry."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
FAILED = "the explorer failed on this request; see its log"
_SAFE = ("GET", "HEAD")
_ENCODED = [(k.encode(), v.encode()) for k, v in HEADERS.items()]


class Guard:
    """Refuses foreign hosts and cross-site requests; adds the headers; hides stack traces.

    Parameters
    ----------
    app : ASGI application
    hosts : iterable of str
        Names, beside the loopback ones, under which the server may be asked.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = ()) -> None:
        self.app = app
        self.hosts = LOOPBACK | {h.lower().strip("[]") for h in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # websockets are not spoken here
        started = False

        async def with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                given = {name.lower() for name, _ in message.get("headers", [])}
                extra = [pair for pair in _ENCODED if pair[0] not in given]
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        refusal = self.refusal(scope)
        if refusal is not None:
            await answer(with_headers, *refusal)
            return
        try:
            await self.app(scope, receive, with_headers)
        except Exception:
            logger.exception("a request failed")
            if not started:
                await answer(with_headers, 500, FAILED)

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """(status, sentence) if the request must not be answered."""
        headers = _headers(scope)
        host = headers.get("host", "")
        if host_name(host) not in self.hosts:
            return 403, "this explorer does not answer requests for that host"
        site = headers.get("sec-fetch-site", "none")
        navigation = headers.get("sec-fetch-mode") == "navigate" and scope["method"] in _SAFE
        if site not in ("same-origin", "none") and not navigation:
            return 403, "requests from other sites are refused"
        if scope["method"] not in _SAFE and "origin" in headers:
            origin = urlsplit_safely(headers["origin"])
            if origin is None or origin.lower() != host.lower():
                return 403, "posts from other origins are refused"
        return None


def _headers(scope: Scope) -> dict[str, str]:
    """The headers by name; a repeated one that matters counts as both, which fits no host."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def host_name(host: str) -> str:
    """The name in a Host header, without port and brackets; empty if it is malformed."""
    host = host.strip().lower()
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        return name if bracket and (not rest or _is_port(rest)) else ""
    name, colon, port = host.partition(":")
    return name if not colon or _is_port(":" + port) else ""


def _is_port(text: str) -> bool:
    return text.startswith(":") and text[1:].isdigit() and text.isascii() and len(text) <= 6


def urlsplit_safely(url: str) -> str | None:
    """host:port of an http origin, or None."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts.netloc if parts.scheme in ("http", "https") and parts.netloc else None


async def answer(send: Any, status: int, sentence: str) -> None:
    """A JSON answer with one sentence."""
    body = json.dumps({"error": sentence}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
