"""Limit the time and memory that a hostile page can cost the HTML parser.

The parser's time grows with the square of the nesting depth (100,000 open `<div>`: 11 s). As the HTML standard demands,
it also copies unclosed formatting elements into every later block: 2,000 times `<p><b id=N>`, 27 KB, makes two million
nodes and takes 700 MB. Such a page is cut where it exceeds a limit. In ordinary pages only the tags of a few samples
are counted.

The tokenizer here only approximates the standard's: a page crafted to defeat it can still be slow to parse.
"""

from __future__ import annotations

import re

TAGS_FREE = 1_000
"""A page with at most this many tags is not checked: at worst it makes 250,000 nodes."""

OPEN_FREE = 250
OPEN_FREE_BYTES = 4_096
"""A page is also not checked if its samples leave few tags open. The limit is OPEN_FREE, plus one tag for every
OPEN_FREE_BYTES of the page, because authors omit `</p>` and `</li>`."""

DEPTH_MAX = 2_000
"""Maximum nesting depth."""

COPIES_MAX = 200_000
"""Maximum number of copies of formatting elements that the parser would make in later blocks."""

_SAMPLE_BYTES = 4_096
_SAMPLE_EVERY_BYTES = 4 * _SAMPLE_BYTES
_TOKEN = re.compile(
    rb"<!--.*?(?:-->|\Z)|<(/?)([a-zA-Z][^\t\n\f\r />]*+)(?:=[\t\n\f\r ]*+\"[^\"]*+\"|=[\t\n\f\r ]*+'[^']*+'|[^>])*+",
    re.DOTALL,
)
_RAW = {
    name: re.compile(rb"</%s" % name, re.IGNORECASE)
    for name in b"script style textarea title xmp iframe noembed noframes".split()
}
_FORMATTING = frozenset(b"b big code em font i s small strike strong tt u".split())
# An end tag closes only elements inside the innermost open element of this list ("scope" in the standard).
_SCOPE_MARKERS = frozenset(b"applet button marquee object svg math table template select".split())
_NEVER_NESTED = frozenset(
    b"area base br col embed hr img input keygen link meta param source track wbr "
    b"a nobr p li dt dd tr td th tbody thead tfoot option optgroup rp rt".split()
)


def limit_nesting(body: bytes) -> bytes:
    """Return the page up to the tag that exceeds a limit."""
    # The test that is usually cheaper comes first.
    if len(body) <= _SAMPLE_EVERY_BYTES:
        harmless = _has_few_tags(body) or _leaves_few_open(body)
    else:
        harmless = _leaves_few_open(body) or _has_few_tags(body)
    return body if harmless else body[: _offset_of_excess(body)]


def _has_few_tags(body: bytes) -> bool:
    return body.count(b"<") <= TAGS_FREE


def _leaves_few_open(body: bytes) -> bool:
    most = opened = 0
    for start in range(0, len(body), _SAMPLE_EVERY_BYTES):
        end = start + _SAMPLE_BYTES
        # Twice, since the "<" of an end tag was counted too.
        opened += body.count(b"<", start, end) - 2 * body.count(b"</", start, end + 1)
        most = max(most, opened)
    return most <= OPEN_FREE + len(body) // OPEN_FREE_BYTES


def _offset_of_excess(body: bytes) -> int:
    outline = _Outline()
    at = 0
    while found := _TOKEN.search(body, at):
        at = found.end()
        name = (found[2] or b"").lower()
        if found[1]:
            outline.close(name)
        elif name:
            if outline.open(name):
                return found.start()
            if raw := _RAW.get(name):  # its content is text up to its end tag
                end = raw.search(body, at)
                at = end.start() if end else len(body)
    return len(body)


class _Outline:
    """The open elements, and how many copies of formatting elements the parser has made so far."""

    def __init__(self) -> None:
        self._stack: list[bytes] = []
        self._scopes = [0]  # the indexes in the stack at which scopes begin, the innermost last
        self._formatting = 0
        self._copies = 0

    def open(self, name: bytes) -> bool:
        """Process a start tag. Return whether a limit is exceeded."""
        if name in _FORMATTING:
            self._formatting += 1
        else:
            self._copies += self._formatting
        if name not in _NEVER_NESTED:
            self._stack.append(name)
            if name in _SCOPE_MARKERS:
                self._scopes.append(len(self._stack))
        return len(self._stack) > DEPTH_MAX or self._copies > COPIES_MAX

    def close(self, name: bytes) -> None:
        if name in _SCOPE_MARKERS and name in self._stack:
            self._scopes = [scope for scope in self._scopes if scope <= self._index(name, 0)]
            del self._stack[self._index(name, 0) :]
        elif name in self._stack[self._scopes[-1] :]:
            del self._stack[self._index(name, self._scopes[-1]) :]
        if name in _FORMATTING and self._formatting:
            self._formatting -= 1

    def _index(self, name: bytes, floor: int) -> int:
        """Return the index of the innermost element with this name. There must be one at index `floor` or higher."""
        return len(self._stack) - 1 - self._stack[floor:][::-1].index(name)
