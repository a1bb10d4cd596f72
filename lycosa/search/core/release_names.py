"""Spellings in the names of releases that mean the same, made one: for documents and queries alike.

h.264 x264 AVC                 h264        S1E2, S01 E02, 1x02       s01e02
h.265 x265 HEVC                h265        Season 1                  s01
4K UHD                         2160p       WEB-DL Blu-Ray BD-Rip     webdl bluray bdrip
"""

from __future__ import annotations

import re

_START, _END = r"(?<![^\W_])", r"(?![^\W_])"
_SPELLING = re.compile(
    rf"""{_START}(?:
        (?P<codec>[hx][. _-]?26[456] | hevc | avc)
      | s(?P<season>\d{{1,2}})[. _-]?e(?P<episode>\d{{1,3}})
      | (?P<crossed>\d{{1,2}})x(?P<part>\d{{2}})
      | season[. _-]{{1,3}}(?P<whole>\d{{1,2}})
      | (?P<source>web[. _-]dl | blu[. _-]ray | (?:bd|br|hd|dvd|web)[. _-]rip)
      | (?P<lines>4k | uhd)
    ){_END}""",
    re.IGNORECASE | re.VERBOSE,
)
_SEASON = re.compile(r"s(\d\d)e\d{2,3}")
_CODECS = {"hevc": "h265", "avc": "h264"}
_GLUE = re.compile(r"[. _-]")


def one_spelling(text: str) -> str:
    """Return the text with one spelling for each of these."""
    return _SPELLING.sub(_spelled, text)


def season_of(word: str) -> str:
    """Return the word for the season of an episode; "" for other words."""
    found = _SEASON.fullmatch(word)
    return f"s{found[1]}" if found else ""


def _spelled(found: re.Match[str]) -> str:
    if codec := found["codec"]:
        return _CODECS.get(codec.lower()) or f"h{codec[-3:]}"
    if found["source"]:
        return _GLUE.sub("", found["source"])
    if found["lines"]:
        return "2160p"
    if found["whole"]:
        return f"s{int(found['whole']):02}"
    return f"s{int(found['season'] or found['crossed']):02}e{int(found['episode'] or found['part']):02}"
