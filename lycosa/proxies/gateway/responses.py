"""What the gateway itself answers: errors as plain text with the reason in it, and reports."""

from __future__ import annotations

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

REALM = "lycosa"
LEASE = b"X-Proxy-Lease: "
RETRY_AFTER_S = 5
REASONS = {
    200: "OK", 204: "No Content", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 407: "Proxy Authentication Required", 408: "Request Timeout",
    413: "Content Too Large", 414: "URI Too Long", 415: "Unsupported Media Type", 417: "Expectation Failed",
    431: "Request Header Fields Too Large", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable",
    504: "Gateway Timeout", 505: "HTTP Version Not Supported",
}  # fmt: skip


def answer(
    status: int, text: str, *, close: bool, kind: str = "text/plain; charset=utf-8", head_only: bool = False
) -> bytes:
    """Return an answer of our own. Nobody takes it for one of the site: it has `X-Proxy-Error` when it is an error."""
    body = text.encode("utf-8", "replace")
    lines = [f"HTTP/1.1 {status} {REASONS[status]}"]
    if status == 407:
        lines.append(f'Proxy-Authenticate: Basic realm="{REALM}", charset="UTF-8"')
    if status == 401:
        lines.append(f'WWW-Authenticate: Basic realm="{REALM}", charset="UTF-8"')
    if status == 503:
        lines.append(f"Retry-After: {RETRY_AFTER_S}")
    if status >= 400:
        lines.append("X-Proxy-Error: " + "".join(each if " " <= each <= "~" else "?" for each in text.strip()))
    if status != 204:
        lines += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    lines.append("Connection: close" if close else "Connection: keep-alive")
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + (b"" if head_only else body)


def status_of(error: LycosaError) -> int:
    """Return the status that says what went wrong."""
    if isinstance(error, BadMessage | Forbidden):
        return error.status if error.status in REASONS else 400
    if isinstance(error, NoProxy | StateError):
        return 503
    if isinstance(error, FetchTimeout):
        return 504
    return 502


def says(error: LycosaError) -> str:
    """Return the line that says what went wrong."""
    if isinstance(error, BadResponse):
        return f"bad answer: {error}"
    return f"no answer: {error}" if isinstance(error, FetchError) else str(error)
