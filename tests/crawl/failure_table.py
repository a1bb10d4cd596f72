"""The third table of `docs/middlewares.md` as data: the outcomes of failed requests."""

from __future__ import annotations

from typing import NamedTuple

CALLBACK, DONE, FOLLOWED, LEFT = "the callback gets it", "done", "done, followed", "done: 302"
AGAIN, AGAIN_ONCE, DEAD = "retried, then dead", "retried once, then dead", "dead"
AGAIN_CALLBACK = "retried, then the callback gets it"
ERRBACK, AGAIN_ERRBACK = "the errback, done", "retried, then the errback, done"
NO, BACKOFF, TOLD = "no", "for the back-off", "for that time"

COLUMNS = (
    "reason", "the host is blocked", "by default", "`handle_httpstatus_list` has it", "`dont_retry`", "`dont_redirect`",
    "`max_retry_times: 1`", "with an errback"
)  # fmt: skip

_RETRIED_STATUS = (AGAIN, AGAIN_CALLBACK, DEAD, AGAIN, AGAIN_ONCE, AGAIN_ERRBACK)
_RETRIED = (AGAIN, AGAIN, DEAD, AGAIN, AGAIN_ONCE, AGAIN_ERRBACK)
_FINAL = (DEAD, DEAD, DEAD, DEAD, DEAD, ERRBACK)


class Failing(NamedTuple):
    """A failure and its row in the table. A request for `path` causes the failure.

    `path` may be a whole URL with {closed}, {tls} or {no_tls} in place of the port; {after} stands for the seconds of
    Retry-After. `rests` tells whether the host is blocked, and for how long.
    """

    path: str
    reason: str
    rests: str
    cells: tuple[str, ...]


FAILURES = {
    "404 (403, 410 and all not named here)": Failing(
        "/missing", "404", NO, (DONE, CALLBACK, DONE, DONE, DONE, ERRBACK)
    ),
    "500 (408, 502, 504, 522, 524)": Failing("/500", "500", NO, _RETRIED_STATUS),
    "429 and 503": Failing("/503", "503", BACKOFF, _RETRIED_STATUS),
    "429 and 503 with Retry-After": Failing("/fails?status=503&times=99&after={after}", "503", TOLD, _RETRIED_STATUS),
    "a redirect": Failing("/redirect-good", "redirect", NO, (FOLLOWED, CALLBACK, FOLLOWED, LEFT, FOLLOWED, FOLLOWED)),
    "a redirect without Location": Failing(
        "/redirect-nowhere", "redirect without a valid Location", NO, (DONE, CALLBACK, DONE, LEFT, DONE, ERRBACK)
    ),
    "a redirect to itself": Failing("/redirect-self", "redirect loop", NO, (DEAD, CALLBACK, DEAD, LEFT, DEAD, ERRBACK)),
    "too slow": Failing("/hang", "timed out after 30 s", NO, _RETRIED),
    "connection refused": Failing("http://127.0.0.1:{closed}/", "connection refused", BACKOFF, _RETRIED),
    "name not found": Failing("http://nowhere.invalid/", "host not found", BACKOFF, _RETRIED),
    "broken transfer": Failing("/short", "connection lost within the body", NO, _RETRIED),
    "TLS handshake fails": Failing("https://127.0.0.1:{no_tls}/", "TLS handshake failed", NO, _RETRIED),
    "certificate not trusted": Failing("https://127.0.0.1:{tls}/", "certificate self-signed", NO, _FINAL),
    "body too large": Failing("/endless", "body over 16777216 bytes", NO, _FINAL),
}
