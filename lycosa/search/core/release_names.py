"""Replaces the different spellings in release names with one spelling, for documents and queries.

Examples: each line has two lists of spellings, each followed by what replaces them.

h.264 x264 AVC                 h264        S1E2, S01 E02, 1x02       s01e02
h.265 x265 HEVC                h265        Season 1                  s01
4K UHD                         2160p       WEB-DL Blu-Ray BD-Rip     webdl bluray bdrip
E3, EP03, Episode 3            ep03        Season 1 Episode 2        s01e02
第03集                         第3集       C++ C#                    cpp csharp
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

# The pattern begins with a set of characters, because Python then skips other characters quickly. The alternatives
# look back at the matched character.
_SPELLING = re.compile(
    r"""[\dABCDEHSUWXabcdehsuwx](?<![^\W_].)(?i:
        (?P<codec>(?<=[hx])[. _-]?26[456] | (?<=h)evc | (?<=a)vc)
      | (?P<season>(?<=s)\d{1,2}[. _-]?e\d{1,3}
          | (?<=\d)\d?x\d{2}
          | (?<=s)eason[. _-]{1,3}\d{1,2}(?:[. _,-]{1,3}ep(?:isode)?[. _-]{0,3}\d{1,3})?)
      | (?P<alone>(?<=e)(?:p(?:isode)?[. _-]{0,3})?\d{1,3})
      | (?P<source>(?<=w)eb[. _-](?:dl|rip) | (?<=b)lu[. _-]ray | (?:(?<=[bh])d|(?<=b)r|(?<=d)vd)[. _-]rip)
      | (?P<lines>(?<=4)k | (?<=u)hd)
      | (?P<program>(?<=c)(?:\+\+|\#))
    )(?![^\W_])""",
    re.VERBOSE,
)
_SEASON = re.compile(r"s(\d\d)e\d{2,3}")
_CODECS = {"hevc": "h265", "avc": "h264"}
_PROGRAMS = {"c++": "cpp", "c#": "csharp"}
_NUMBER = re.compile(r"\d+")
_GLUE = re.compile(r"[. _-]")
_NUMBERED = re.compile(r"第\s*0*(\d{1,3})\s*(?=[集話话回期季章卷巻部화])")


def one_spelling(text: str) -> str:
    """Replace the spellings that the module docstring lists."""
    if not text.isascii():
        text = _NUMBERED.sub(r"第\1", text)
    return _SPELLING.sub(_spelled, text)


def spellings(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, the end and the replacement of each spelling that `one_spelling` replaces, except 第03集."""
    for found in _SPELLING.finditer(text):
        yield found.start(), found.end(), _spelled(found)


def season_of(word: str) -> str:
    """Return the season in the word of an episode: "s01" for "s01e02"; "" for other words."""
    found = _SEASON.fullmatch(word)
    return f"s{found[1]}" if found else ""


def _spelled(found: re.Match[str]) -> str:
    return _unified(found[0], found.lastgroup)


@lru_cache(4096)
def _unified(text: str, kind: str | None) -> str:
    if kind == "codec":
        return _CODECS.get(text.lower()) or f"h{text[-3:]}"
    if kind == "source":
        return _GLUE.sub("", text)
    if kind == "lines":
        return "2160p"
    if kind == "program":
        return _PROGRAMS[text.lower()]
    numbers = [f"{int(number):02}" for number in _NUMBER.findall(text)]
    return f"ep{numbers[0]}" if kind == "alone" else "s" + "e".join(numbers)
