"""The explorer as an ASGI application."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ExceptionHandler

from rpml.pages.explorer.answers import Answers
from rpml.pages.explorer.catalog import Catalog
from rpml.pages.explorer.cluster_answers import ClusterAnswers
from rpml.pages.explorer.label_answers import LabelAnswers
from rpml.pages.explorer.learning import Learner
from rpml.pages.explorer.parameters import RequestError
from rpml.pages.explorer.pictures import Pictures
from rpml.pages.explorer.routes import Routes
from rpml.pages.explorer.security import LOOPBACK, SecurityMiddleware, error_response
from rpml.pages.explorer.uploads import Describe, Uploads
from rpml.runtime.errors import InputError, WriteError
from rpml.runtime.wording import one_line

_SENTENCES = {
    404: "there is nothing at this address",
    405: "this address does not support that method",
}


@dataclass(frozen=True)
class Options:
    """What the explorer can do besides searching.

    `describe` maps the bytes of an uploaded image to a vector. `hosts` are accepted host names
    besides the loopback ones. A `learner` lets the page label items and train again. `scale` adds
    to each neighbor the share of random pairs that are less similar.
    """

    pictures: Pictures | None = None
    describe: Describe | None = None
    hosts: Iterable[str] = field(default_factory=tuple)
    learner: Learner | None = None
    scale: bool = False


def make_app(catalog: Catalog, options: Options | None = None) -> Starlette:
    """Build the application with host checks and security headers."""
    options = options or Options()
    uploads = Uploads()
    answers = Answers(catalog, uploads, options.describe is not None, options.pictures is not None)
    routes = Routes(answers, ClusterAnswers(answers), options.pictures, options.describe)
    answers.scaled = options.scale
    table = routes.table()
    if options.learner is not None:
        answers.can_label = True
        table += routes.labeling(LabelAnswers(answers, options.learner.store, options.learner))
    middleware = [
        Middleware(SecurityMiddleware),
        Middleware(
            TrustedHostMiddleware, allowed_hosts=allowed_hosts(options.hosts), www_redirect=False
        ),
    ]
    handled = (RequestError, InputError, WriteError, HTTPException)
    handlers: dict[type[Exception], ExceptionHandler] = dict.fromkeys(handled, _explained)
    return Starlette(routes=table, exception_handlers=handlers, middleware=middleware)


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
