"""Security headers, rejection of cross-site requests, and errors without stack traces."""

import logging
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
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
