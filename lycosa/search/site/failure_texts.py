"""Messages of both search sites for failed requests. They contain no paths and no server addresses."""

from __future__ import annotations

from typing import NamedTuple


class FailureText(NamedTuple):
    """The heading and text of the page, and the line for programs."""

    heading: str
    text: str
    line: str


TEXTS = {
    404: FailureText("This page does not exist", "Try the search box.", "Not Found"),
    405: FailureText(
        "This action is not available here", "Go back, and use the links and buttons of the page.", "Method Not Allowed"
    ),
    408: FailureText("This took too long", "Go back, and send the form again.", "Request Timeout"),
    413: FailureText("This is too large", "Go back, and send less text.", "Content Too Large"),
    429: FailureText("Too many requests", "Try again in {seconds} s.", "too many requests: try again in {seconds} s"),
    500: FailureText("Internal error", "The error has been logged.", "Internal error"),
    503: FailureText(
        "Search is unavailable",
        "Try again in a minute. The log of the site says why.",
        "search is unavailable: try again in a minute; the site's log has the reason",
    ),
}
