"""Errors of the API as problem details (RFC 9457), where no protocol page fixes another body."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from litestar import Response
from litestar.exceptions.responses import create_exception_response

if TYPE_CHECKING:
    from litestar import Request
    from litestar.exceptions import HTTPException

__all__ = ["PROBLEM_TYPE", "Problem", "api_errors"]

PROBLEM_TYPE: Final = "application/problem+json"
_API: Final = "/api/"


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong with a request, for programs and for people."""

    type: str = "about:blank"
    """A URI that names the kind of problem and never changes."""
    title: str
    status: int
    detail: str = ""


def api_errors(request: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
    """Answer an error under ``/api/`` as a problem, any other in the framework's own form."""
    if not request.url.path.startswith(_API):
        return create_exception_response(request, error)
    title = HTTPStatus(error.status_code).phrase
    # The text of a server's own failure is for its log.
    detail = "" if error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR else error.detail
    return Response(
        msgspec.json.encode(Problem(title=title, status=error.status_code, detail=detail)),
        status_code=error.status_code,
        media_type=PROBLEM_TYPE,
        headers={"cache-control": "no-store", **(error.headers or {})},
    )
