"""Names and paths as they are stored: what strangers wrote, made safe to show, to search and to use as file names.

- Control characters, overrides of the writing direction and invisible characters are removed; joiners stay between
  letters of the scripts that need them.
- White space of any kind is one space. At most MARKS_MAX marks stand on a letter.
- A path never leads out of its folder: no "..", no root, no drive, no separator inside a part.
- Lengths and numbers are bounded. Nothing is dropped silently: "…" stands for what was cut.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lycosa.storage.core.torrent_record import NUMBER_MAX, StoredFile

NAME_MAX = 255
"""Characters of a name, and of a part of a path; file systems take no more."""
PARTS_MAX = 32
"""Folders in a path, with the file."""
PATH_MAX = 1024
COMMENT_MAX = 4096
FILES_MAX = 20_000
"""Files of a torrent; one entry stands for the rest."""
MARKS_MAX = 4
CUT = "…"
SUFFIX_MAX = 12
"""Characters of a file name extension that is kept when a name is cut."""

_INVISIBLE = re.compile(
    r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufdd0-\ufdef\ufeff\uffa0\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f\U0001d173-\U0001d17a]"
)
_IDLE_JOINER = re.compile(r"(?<![\u0590-\u1fff\u2190-\u2bff\ufe0f\U0001f000-\U0001faff])[\u200c\u200d]")
_SPACE = re.compile(r"[\s\u2800]+")
_MARK = r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_MARKS = re.compile(f"({_MARK}{{{MARKS_MAX}}}){_MARK}+")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_SEPARATOR = re.compile(r"[/\\]")
_DRIVE = re.compile(r"^([A-Za-z]):")
_UNSAFE_PATHS = re.compile(r"[^ -~\n]|(?:^|/)(?:\.{0,2}(?:/|$)|[A-Za-z]:| )|\\|  | (?:/|$)", re.MULTILINE)
"""What `clean_path` would change in short paths."""


def clean_text(text: str, max_length: int = NAME_MAX) -> str:
    """Return one line of text without what cannot be shown; "" if nothing is left."""
    if not (text.isascii() and text.isprintable()):
        text = _SURROGATE.sub("\ufffd", text)
        text = _MARKS.sub(r"\1", _IDLE_JOINER.sub("", _INVISIBLE.sub("", text)))
    text = _SPACE.sub(" ", text).strip()
    return text if len(text) <= max_length else _cut(text, max_length)


def clean_part(part: str) -> str:
    """Return one part of a path, without separators; "" for one that would stay in or leave the folder."""
    part = clean_text(_SEPARATOR.sub("_", part))
    return "" if part in {"", ".", ".."} else _DRIVE.sub(r"\1_", part)


def clean_path(parts: Sequence[str]) -> str:
    """Return a relative path with "/" between its parts; never an empty one."""
    cleaned = [part for part in map(clean_part, parts) if part] or ["_"]
    if len(cleaned) > PARTS_MAX:
        cleaned = [*cleaned[: PARTS_MAX - 2], CUT, cleaned[-1]]
    path = "/".join(cleaned)
    return path if len(path) <= PATH_MAX else f"{path[: PATH_MAX - NAME_MAX - 3].rstrip('/ ')}{CUT}/{cleaned[-1]}"


def clean_stored_paths(paths: Sequence[str]) -> list[str]:
    """Return the paths of a record, whose parts have "/" between them, as `clean_path` does."""
    if not paths:
        return []
    joined = "\n".join(paths)
    are_short = max(map(len, paths)) <= NAME_MAX and max(path.count("/") for path in paths) < PARTS_MAX
    if joined.count("\n") == len(paths) - 1 and are_short and not _UNSAFE_PATHS.search(joined):
        return list(paths)
    return [clean_path(path.split("/")) for path in paths]


def bounded_files(files: Sequence[StoredFile]) -> tuple[StoredFile, ...]:
    """Return at most FILES_MAX files of the same size in all."""
    if len(files) <= FILES_MAX:
        return tuple(files)
    rest = files[FILES_MAX - 1 :]
    size_bytes = min(sum(file.size_bytes for file in rest), NUMBER_MAX)
    return (*files[: FILES_MAX - 1], StoredFile(f"{CUT} {len(rest)} more files", size_bytes))


def _cut(text: str, length: int) -> str:
    """Cut the middle out, so that the extension of a file name stays."""
    stem, dot, suffix = text.rpartition(".")
    tail = f".{suffix}" if dot and stem and 0 < len(suffix) <= SUFFIX_MAX and " " not in suffix else ""
    return text[: length - len(CUT) - len(tail)].rstrip() + CUT + tail
