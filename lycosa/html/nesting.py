"""Bounds what a page can cost the HTML parser, which is built for depths that people write.

Its time grows with the square of the nesting depth (100,000 open `<div>`: 11 s), and, as the HTML standard demands, it
copies unclosed formatting elements into every later block: 2,000 times `<p><b id=N>`, 27 KB, make two million nodes and
700 MB. `tamed` cuts such a page at the point where it passes the bounds. Ordinary pages cost a count in samples.

What it reads is close to the standard's tokenizer, but not it: a page written against this module can still be slow.
"""

from __future__ import annotations

import re

TAGS_FREE = 1_000
"""A page with fewer tags needs no look: at worst it makes 250,000 nodes."""

OPEN_FREE = 250
OPEN_FREE_BYTES = 4_096
"""A page whose samples never leave more tags open than OPEN_FREE, and one more for each OPEN_FREE_BYTES of the page
(people leave out `</p>` and `</li>`), needs no close look."""

DEPTH_MAX = 2_000
"""Elements inside each other."""

COPIES_MAX = 200_000
"""Formatting elements that the parser would have to copy into later blocks."""

_SAMPLE = 4_096  # bytes of each sample, one in
_SAMPLED = 4 * _SAMPLE
_TOKEN = re.compile(
    rb"<!--.*?(?:-->|\Z)|<(/?)([a-zA-Z][^\t\n\f\r />]*+)(?:=[\t\n\f\r ]*+\"[^\"]*+\"|=[\t\n\f\r ]*+'[^']*+'|[^>])*+",
    re.DOTALL,
)
_RAW = {
    name: re.compile(rb"</%s" % name, re.IGNORECASE)
    for name in b"script style textarea title xmp iframe noembed noframes".split()
}
_FORMATTING = frozenset(b"b big code em font i s small strike strong tt u".split())
_WALLS = frozenset(b"applet button marquee object svg math table template select".split())
_NEVER_NESTED = frozenset(
    b"area base br col embed hr img input keygen link meta param source track wbr "
    b"a nobr p li dt dd tr td th tbody thead tfoot option optgroup rp rt".split()
)


def tamed(body: bytes) -> bytes:
    """Return the page, or the part of it before it nests too deeply."""
    if len(body) <= _SAMPLED:  # what reads less comes first
        harmless = _has_few_tags(body) or _leaves_few_open(body)
    else:
        harmless = _leaves_few_open(body) or _has_few_tags(body)
    if harmless:
        return body
    return body[: _bound(body)]


def _has_few_tags(body: bytes) -> bool:
    return body.count(b"<") <= TAGS_FREE


def _leaves_few_open(body: bytes) -> bool:
    return _opened(body) <= OPEN_FREE + len(body) // OPEN_FREE_BYTES


def _opened(body: bytes) -> int:
    """The most tags that the samples leave open, as far as counting can tell."""
    most = opened = 0
    for start in range(0, len(body), _SAMPLED):
        end = start + _SAMPLE
        opened += body.count(b"<", start, end) - 2 * body.count(b"</", start, end + 1)
        most = max(most, opened)
    return most


def _bound(body: bytes) -> int:
    """Return the offset of the tag that passes a bound, or the length."""
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
            if raw := _RAW.get(name):
                end = raw.search(body, at)
                at = end.start() if end else len(body)
    return len(body)


class _Outline:
    """The elements that are open, and how many formatting elements are waiting to be copied."""

    def __init__(self) -> None:
        self._stack: list[bytes] = []
        self._walls = [0]  # where in the stack the innermost wall is: end tags do not reach beyond it
        self._formatting = 0
        self._copies = 0

    def open(self, name: bytes) -> bool:
        """Take in a start tag. True when a bound is passed."""
        if name in _FORMATTING:
            self._formatting += 1
        else:
            self._copies += self._formatting
        if name not in _NEVER_NESTED:
            self._stack.append(name)
            if name in _WALLS:
                self._walls.append(len(self._stack))
        return len(self._stack) > DEPTH_MAX or self._copies > COPIES_MAX

    def close(self, name: bytes) -> None:
        """Take in an end tag."""
        if name in _WALLS and name in self._stack:
            self._walls = [wall for wall in self._walls if wall <= self._index(name, 0)]
            del self._stack[self._index(name, 0) :]
        elif name in self._stack[self._walls[-1] :]:
            del self._stack[self._index(name, self._walls[-1]) :]
        if name in _FORMATTING and self._formatting:
            self._formatting -= 1

    def _index(self, name: bytes, floor: int) -> int:
        """Where the innermost element of this name is."""
        return len(self._stack) - 1 - self._stack[floor:][::-1].index(name)
