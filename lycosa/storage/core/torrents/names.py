"""Cleans names and paths from the network, so that they are safe to show, to search and to use as file names.

- Control characters, bidirectional controls and invisible characters are removed. Zero-width joiners stay after letters
  of the scripts that need them, and after emoji.
- Each run of white space becomes one space. A letter keeps at most MARKS_MAX combining marks.
- A path never leads out of its folder: no "..", no root, no drive, no separator inside a part.
- Lengths and numbers of parts and files are limited. "…" marks each cut.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from operator import methodcaller

from lycosa.storage.core.torrent_record import NUMBER_MAX, StoredFile

NAME_MAX = 255
"""Maximum number of characters of a name or a part of a path. (Linux file systems allow 255 bytes, not characters.)"""
PARTS_MAX = 32
"""Maximum number of parts in a path, including the file name."""
PATH_MAX = 1024
COMMENT_MAX = 4096
FILES_MAX = 20_000
"""Maximum number of files. In a torrent with more, the last entry stands for all further files."""
PATHS_BYTES_MAX = 6 << 20
"""Maximum bytes of all paths in UTF-8: MariaDB accepts packets of 16 MiB, and quoting may double a record."""
MARKS_MAX = 4
CUT = "…"
SUFFIX_MAX = 12
"""Maximum length of a file name extension that is kept when a name is cut."""

_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufdd0-\ufdef\ufeff\uffa0\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f\U0001d173-\U0001d17a]"
)
_IDLE_JOINER = re.compile(r"(?<![\u0590-\u1fff\u2190-\u2bff\ufe0f\U0001f000-\U0001faff])[\u200c\u200d]")
_SPACE = re.compile(r"[\s\u2800]+")
_MARK = r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_MARKS = re.compile(f"({_MARK}{{{MARKS_MAX}}}){_MARK}+")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_PRINTABLE_SPACES = "\u115f\u1160\u3164\uffa0\u2800"
"""The characters that `_INVISIBLE` or `_SPACE` finds although `str.isprintable` allows them."""
_SEPARATOR = re.compile(r"[/\\]")
_DRIVE = re.compile(r"^([A-Za-z]):", re.MULTILINE)
_slashes = methodcaller("count", "/")
_UNSAFE = ("  ", " .", "\\")
"""Strings that show that `clean_path` may change a short, plain path. They are searched in its parts joined by spaces,
with a space at both ends: there an empty part becomes two spaces, and a part that begins with a dot is found by " .".
"""


def clean_text(text: str, max_length: int = NAME_MAX) -> str:
    """Return the text as one line that is safe to show; "" if nothing is left."""
    if not _is_plain(text):
        text = _SURROGATE.sub("\ufffd", text)
        text = _MARKS.sub(r"\1", _IDLE_JOINER.sub("", _INVISIBLE.sub("", text)))
    text = _SPACE.sub(" ", text).strip()
    return text if len(text) <= max_length else _cut(text, max_length)


def clean_part(part: str) -> str:
    """Return one part of a path, without separators; "" for an empty part, "." and ".."."""
    part = clean_text(_SEPARATOR.sub("_", part))
    return "" if part in {"", ".", ".."} else _DRIVE.sub(r"\1_", part)


def clean_path(parts: Sequence[str]) -> str:
    """Join the cleaned parts with "/" to a relative path, which is never empty."""
    cleaned = [part for part in map(clean_part, parts) if part] or ["_"]
    if len(cleaned) > PARTS_MAX:
        cleaned = [*cleaned[: PARTS_MAX - 2], CUT, cleaned[-1]]
    path = "/".join(cleaned)
    return path if len(path) <= PATH_MAX else f"{path[: PATH_MAX - NAME_MAX - 3].rstrip('/ ')}{CUT}/{cleaned[-1]}"


def clean_stored_paths(paths: Sequence[str]) -> list[str]:
    """Clean the paths of a record, whose parts are separated by "/"."""
    if not paths:
        return []
    joined = "\n".join(paths)
    are_short = max(map(len, paths)) <= NAME_MAX and max(map(_slashes, paths)) < PARTS_MAX
    if joined.count("\n") == len(paths) - 1 and are_short and _are_safe(joined, paths):
        return list(paths)
    return [clean_path(path.split("/")) for path in paths]


def _are_safe(joined: str, paths: Sequence[str]) -> bool:
    """Return whether `clean_path` would certainly not change these paths. `joined` has the paths, one per line."""
    if not _is_plain("".join(paths)):
        return False
    parts = joined.replace("/", "\n")
    spaced = f" {parts} ".replace("\n", " ")
    return not any(unsafe in spaced for unsafe in _UNSAFE) and not (":" in parts and _DRIVE.search(parts))


def _is_plain(text: str) -> bool:
    """Return whether `clean_text` has nothing to change except spaces and the length."""
    if not text.isprintable():
        return False
    return text.isascii() or not (any(char in text for char in _PRINTABLE_SPACES) or _MARKS.search(text))


def bounded_files(files: Sequence[StoredFile]) -> tuple[StoredFile, ...]:
    """Return at most FILES_MAX files, whose paths have at most PATHS_BYTES_MAX bytes. If files are left out, a last
    entry has their number and total size."""
    count = min(_fitting(files), len(files) if len(files) <= FILES_MAX else FILES_MAX - 1)
    if count == len(files):
        return tuple(files)
    rest = files[count:]
    size_bytes = min(sum(file.size_bytes for file in rest), NUMBER_MAX)
    return (*files[:count], StoredFile(f"{CUT} {len(rest)} more files", size_bytes))


def _fitting(files: Sequence[StoredFile]) -> int:
    """Return how many of the first files fit: their paths, cut to PATH_MAX, have at most PATHS_BYTES_MAX together."""
    if sum(len(file.path) for file in files) <= PATHS_BYTES_MAX // 4:  # a character has at most four bytes
        return len(files)
    sizes = (len(file.path[:PATH_MAX].encode("utf-8", "surrogatepass")) for file in files)
    return sum(size <= PATHS_BYTES_MAX for size in accumulate(sizes))


def _cut(text: str, length: int) -> str:
    stem, dot, suffix = text.rpartition(".")
    tail = f".{suffix}" if dot and stem and 0 < len(suffix) <= SUFFIX_MAX and " " not in suffix else ""
    return text[: length - len(CUT) - len(tail)].rstrip() + CUT + tail
