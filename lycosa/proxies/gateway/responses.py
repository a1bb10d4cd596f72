"""The gateway's own responses: those of its endpoints, and errors as plain text with the reason."""

from __future__ import annotations

from http import HTTPStatus

from lycosa.core.errors import (
    BadMessage,
    BadResponse,
    FetchError,
    FetchTimeout,
    Forbidden,
    LycosaError,
    NoProxy,
    StateError,
)

LEASE_FIELD = b"X-Proxy-Lease: "
RETRY_AFTER_S = 5
CHALLENGES = {401: "WWW-Authenticate", 407: "Proxy-Authenticate"}
TEXT = "text/plain; charset=utf-8"


def encode_own_response(
    status: int, text: str, content_type: str = TEXT, *, close: bool, head_only: bool = False
) -> bytes:
    """Return a response. Errors have the header `X-Proxy-Error`, which error responses of a site lack."""
    body = text.encode("utf-8", "replace")
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    if status in CHALLENGES:
        lines.append(f'{CHALLENGES[status]}: Basic realm="lycosa", charset="UTF-8"')
    if status == 503:
        lines.append(f"Retry-After: {RETRY_AFTER_S}")
    if status >= 400:
        lines.append("X-Proxy-Error: " + "".join(each if " " <= each <= "~" else "?" for each in text.strip()))
    lines += [f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    lines.append("Connection: close" if close else "Connection: keep-alive")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + (b"" if head_only else body)


def status_of(error: LycosaError) -> int:
    """Return the HTTP status of the response to an error."""
    if isinstance(error, BadMessage | Forbidden):
        return error.status
    if isinstance(error, NoProxy | StateError):
        return 503
    if isinstance(error, FetchTimeout):
        return 504
    return 502


def error_text(error: LycosaError) -> str:
    """Return the one-line body of the response to an error."""
    if isinstance(error, BadResponse):
        return f"bad answer: {error}"
    return f"no answer: {error}" if isinstance(error, FetchError) else str(error)
