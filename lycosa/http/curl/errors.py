"""Convert libcurl's error codes to a `FetchError`, which tells whether a retry can help.

Summaries count the messages, so a message is short, contains no address, and is the same for the same cause.
"""

from __future__ import annotations

import errno
import re

import pycurl

from lycosa.core.errors import (
    PROXY_LOGIN_REFUSED,
    BadResponse,
    BodyTooLarge,
    ConnectFailed,
    ConnectionLost,
    FetchError,
    FetchTimeout,
    TlsFailed,
)

PINNED, PROXY, HTTP2_STREAM, HTTP3, TOO_LARGE = 90, 97, 92, 95, 100

UNDECODABLE = "cannot be decompressed"

ERRORS_BY_CODE: dict[int, tuple[type[FetchError], str, bool]] = {
    pycurl.E_UNSUPPORTED_PROTOCOL: (BadResponse, "not HTTP", False),
    pycurl.E_URL_MALFORMAT: (FetchError, "not a URL that can be fetched", False),
    pycurl.E_COULDNT_RESOLVE_PROXY: (ConnectFailed, "proxy not found", True),
    pycurl.E_COULDNT_RESOLVE_HOST: (ConnectFailed, "host not found", True),
    pycurl.E_FTP_WEIRD_SERVER_REPLY: (BadResponse, "not HTTP", False),
    pycurl.E_HTTP2: (ConnectionLost, "HTTP/2 error", True),
    HTTP2_STREAM: (ConnectionLost, "HTTP/2 error", True),
    HTTP3: (ConnectionLost, "HTTP/3 error", True),
    pycurl.E_PARTIAL_FILE: (ConnectionLost, "connection lost within the body", True),
    pycurl.E_GOT_NOTHING: (ConnectionLost, "connection closed without an answer", True),
    pycurl.E_SEND_ERROR: (ConnectionLost, "connection lost", True),
    pycurl.E_SSL_CONNECT_ERROR: (TlsFailed, "TLS handshake failed", True),
    pycurl.E_BAD_CONTENT_ENCODING: (BadResponse, UNDECODABLE, False),
    pycurl.E_WRITE_ERROR: (BadResponse, UNDECODABLE, False),  # unless we ended the transfer: see `Handle.result`
    pycurl.E_INTERFACE_FAILED: (FetchError, "cannot send from this bindaddress", False),
    pycurl.E_FILESIZE_EXCEEDED: (BodyTooLarge, "body too large", False),
    TOO_LARGE: (BadResponse, "header too large", False),
    PINNED: (TlsFailed, "certificate does not match the pinned key", False),
}
REASON_BY_ERRNO = {
    errno.ECONNREFUSED: "connection refused",
    errno.EHOSTUNREACH: "host unreachable",
    errno.ENETUNREACH: "network unreachable",
    errno.ECONNRESET: "connection reset",
    errno.ETIMEDOUT: "connection timed out",
}
SOCKS_REPLY = re.compile(r"cannot complete socks(?:5 .*\((\d+)\)|4 .*\(91\))")
SOCKS_REPLIES = {
    "2": "not allowed",
    "3": "network unreachable",
    "4": "host unreachable",
    "5": "connection refused",
    "6": "too many hops",
}
"""Why a SOCKS5 proxy could not connect, by its reply code (RFC 1928 §6). In SOCKS4, code 91 stands for all of them."""

CERTIFICATE_FAULTS = {
    "expired": "certificate expired",
    "not yet valid": "certificate not yet valid",
    "self-signed": "certificate self-signed",
    "self signed": "certificate self-signed",
    "subject name": "certificate is for another host",
    "no alternative": "certificate is for another host",
    "hostname mismatch": "certificate is for another host",
    "ip address mismatch": "certificate is for another host",
}


def error_of(code: int, message: str, curl: pycurl.Curl, timeout_s: float, connect_timeout_s: float) -> FetchError:
    """Return the error for libcurl's `code`; `message` is libcurl's text for this transfer."""
    lower = message.lower()
    if code in ERRORS_BY_CODE:
        kind, words, retry = ERRORS_BY_CODE[code]
        return kind(words, retry=retry)
    if code == pycurl.E_OPERATION_TIMEDOUT:
        return _timeout(lower, timeout_s, connect_timeout_s)
    if code == pycurl.E_COULDNT_CONNECT:
        return _connect_failure(curl, lower)
    if code in {pycurl.E_SSL_CACERT, pycurl.E_PEER_FAILED_VERIFICATION}:
        return TlsFailed(_first_match(CERTIFICATE_FAULTS, lower, "certificate not trusted"), retry=False)
    if code == pycurl.E_SSL_CACERT_BADFILE:
        return TlsFailed("the file of trusted certificates cannot be read", retry=False)
    if code == pycurl.E_RECV_ERROR:
        return _receive_failure(curl, lower)
    if code == PROXY:
        return _socks_failure(lower)
    return FetchError(re.sub(r"0x[0-9a-f]+|[0-9]+", "N", lower.split(":")[0])[:80] or f"libcurl error {code}")


def note_proxy_progress(error: FetchError, curl: pycurl.Curl) -> None:
    """Set `reached` and `latency_s` of a failed transfer through a proxy."""
    connected = isinstance(error, (FetchTimeout, ConnectionLost))
    error.reached = connected or curl.getinfo(pycurl.CONNECT_TIME) > 0
    error.latency_s = latency_s(curl) if connected else None


def latency_s(curl: pycurl.Curl) -> float | None:
    """Return the seconds it took to connect through a proxy to the host; None for a reused connection.

    This includes TCP, SOCKS or CONNECT, and the TLS handshakes, but not the name lookup of the proxy or the wait for a
    free connection.
    """
    if not curl.getinfo(pycurl.NUM_CONNECTS):
        return None
    connect_s: float = curl.getinfo(pycurl.PRETRANSFER_TIME) - curl.getinfo(pycurl.NAMELOOKUP_TIME)
    return max(0.0, connect_s)


def _timeout(message: str, timeout_s: float, connect_timeout_s: float) -> FetchError:
    if message.startswith("operation timed out"):  # libcurl's other messages are about resolving and connecting
        return FetchTimeout(f"timed out after {timeout_s:g} s")
    return ConnectFailed(f"no connection after {min(timeout_s, connect_timeout_s):g} s")


def _connect_failure(curl: pycurl.Curl, message: str) -> FetchError:
    if "proxy scheme" in message:
        return FetchError("unsupported proxy: use http://, https://, socks4:// or socks5h://host:port", retry=False)
    if failure := _proxy_failure(curl, message):
        return failure
    return ConnectFailed(REASON_BY_ERRNO.get(curl.getinfo(pycurl.OS_ERRNO), "connection failed"))


def _receive_failure(curl: pycurl.Curl, message: str) -> FetchError:
    if "chunk" in message or "hexadecimal" in message:
        return BadResponse("broken chunked encoding", retry=True)
    if "header" in message and "large" in message:
        return BadResponse("header too large")
    return _proxy_failure(curl, message) or ConnectionLost("connection lost")


def _proxy_failure(curl: pycurl.Curl, message: str) -> FetchError | None:
    if "proxy" not in message and "tunnel" not in message:
        return None
    status = curl.getinfo(pycurl.HTTP_CONNECTCODE)
    return ConnectFailed(f"proxy answered {status}" if status else "proxy refused the connection")


def _socks_failure(message: str) -> FetchError:
    reply = SOCKS_REPLY.search(message)
    if reply is not None:
        return ConnectFailed(f"proxy could not connect ({SOCKS_REPLIES.get(reply[1], 'failed')})")
    if "authentication" in message or "rejected by the socks5" in message:
        return ConnectFailed(PROXY_LOGIN_REFUSED)
    return ConnectFailed("proxy refused the connection")


def _first_match(words: dict[str, str], message: str, default: str) -> str:
    return next((meaning for word, meaning in words.items() if word in message), default)
