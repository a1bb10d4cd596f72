"""What libcurl's error codes mean to a crawl: which error of ours, whether another try can help, and in which words.

The words are short and the same for the same cause: they are counted, and shown in summaries.
"""

from __future__ import annotations

import errno

import pycurl

from lycosa.core.errors import BadResponse, BodyTooLarge, ConnectFailed, FetchError, FetchTimeout, TlsFailed

HTTP2_STREAM, HTTP3, TOO_LARGE = 92, 95, 100

PLAIN: dict[int, tuple[type[FetchError], str, bool]] = {
    pycurl.E_UNSUPPORTED_PROTOCOL: (BadResponse, "not HTTP", False),
    pycurl.E_URL_MALFORMAT: (BadResponse, "not a URL that can be fetched", False),
    pycurl.E_COULDNT_RESOLVE_PROXY: (ConnectFailed, "proxy not found", True),
    pycurl.E_COULDNT_RESOLVE_HOST: (ConnectFailed, "host not found", True),
    pycurl.E_FTP_WEIRD_SERVER_REPLY: (BadResponse, "not HTTP", False),
    pycurl.E_HTTP2: (ConnectFailed, "HTTP/2 error", True),
    HTTP2_STREAM: (ConnectFailed, "HTTP/2 error", True),
    HTTP3: (ConnectFailed, "HTTP/3 error", True),
    pycurl.E_PARTIAL_FILE: (FetchError, "connection lost within the body", True),
    pycurl.E_GOT_NOTHING: (FetchError, "connection closed without an answer", True),
    pycurl.E_SEND_ERROR: (FetchError, "connection lost", True),
    pycurl.E_SSL_CONNECT_ERROR: (TlsFailed, "TLS handshake failed", True),
    pycurl.E_BAD_CONTENT_ENCODING: (BadResponse, "cannot be decompressed", False),
    pycurl.E_FILESIZE_EXCEEDED: (BodyTooLarge, "body too large", False),
    TOO_LARGE: (BadResponse, "header too large", False),
}
REFUSALS = {
    errno.ECONNREFUSED: "connection refused",
    errno.EHOSTUNREACH: "host unreachable",
    errno.ENETUNREACH: "network unreachable",
    errno.ECONNRESET: "connection reset",
    errno.ETIMEDOUT: "connection timed out",
}
CERTIFICATE_FAULTS = {
    "expired": "certificate expired",
    "self-signed": "certificate self-signed",
    "self signed": "certificate self-signed",
    "subject name": "certificate of another host",
    "no alternative": "certificate of another host",
}


def error_of(code: int, message: str, curl: pycurl.Curl, timeout_s: float) -> FetchError:
    """Return the error for libcurl's `code`; `message` is what it says about this case."""
    if code in PLAIN:
        kind, words, retry = PLAIN[code]
        return kind(words, retry=retry)
    if code == pycurl.E_OPERATION_TIMEDOUT:
        return FetchTimeout(f"timed out after {timeout_s:g} s")
    if code == pycurl.E_COULDNT_CONNECT:
        return ConnectFailed(REFUSALS.get(curl.getinfo(pycurl.OS_ERRNO), "connection failed"))
    if code in {pycurl.E_SSL_CACERT, pycurl.E_PEER_FAILED_VERIFICATION}:
        return TlsFailed(_first(CERTIFICATE_FAULTS, message, "certificate not trusted"), retry=False)
    if code == pycurl.E_RECV_ERROR:
        return _receive_error(message.lower())
    return FetchError(message.split(":", maxsplit=1)[0][:80].lower() or f"libcurl error {code}")


def _receive_error(message: str) -> FetchError:
    if "chunk" in message or "hexadecimal" in message:
        return BadResponse("broken chunked encoding", retry=True)
    if "header" in message and "large" in message:
        return BadResponse("header too large")
    if "tunnel failed" in message or "proxy" in message:
        return ConnectFailed("proxy refused the connection")
    return FetchError("connection lost")


def _first(words: dict[str, str], message: str, default: str) -> str:
    lower = message.lower()
    return next((meaning for word, meaning in words.items() if word in lower), default)
