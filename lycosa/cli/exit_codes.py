"""Exit codes, and text that is safe on a terminal."""

from __future__ import annotations

DONE = 0
DEAD = 1
"""Finished, but some requests are dead."""
USAGE = 2
"""Bad usage or settings."""
FAILED = 3
"""Cannot start or continue."""
INTERRUPTED = 130
"""The state is saved; the same command resumes."""


def printable(text: str) -> str:
    """Replace unprintable characters with "?": the text may come from the network."""
    return "".join(each if each.isprintable() else "?" for each in text)


def one_line(text: str) -> str:
    """Return the text as one printable line."""
    return printable(" ".join(text.split()))
