"""Unifies different spellings in the names of releases, for documents and queries.

h.264 x264 AVC                 h264        S1E2, S01 E02, 1x02       s01e02
h.265 x265 HEVC                h265        Season 1                  s01
4K UHD                         2160p       WEB-DL Blu-Ray BD-Rip     webdl bluray bdrip
E3, EP03, Episode 3            ep03        Season 1 Episode 2        s01e02
第03集                         第3集       C++ C#                    cpp csharp
"""

from __future__ import annotations

import re

_START, _END = r"(?<![^\W_])", r"(?![^\W_])"
_SPELLING = re.compile(
    rf"""{_START}(?:
        (?P<codec>[hx][. _-]?26[456] | hevc | avc)
      | s(?P<season>\d{{1,2}})[. _-]?e(?P<episode>\d{{1,3}})
      | (?P<crossed>\d{{1,2}})x(?P<part>\d{{2}})
      | season[. _-]{{1,3}}(?P<whole>\d{{1,2}})(?:[. _,-]{{1,3}}ep(?:isode)?[. _-]{{0,3}}(?P<of_whole>\d{{1,3}}))?
      | e(?:p(?:isode)?[. _-]{{0,3}})?(?P<alone>\d{{1,3}})
      | (?P<source>web[. _-]dl | blu[. _-]ray | (?:bd|br|hd|dvd|web)[. _-]rip)
      | (?P<lines>4k | uhd)
      | (?P<program>c(?:\+\+|\#))
    ){_END}""",
    re.IGNORECASE | re.VERBOSE,
)
_SEASON = re.compile(r"s(\d\d)e\d{2,3}")
_CODECS = {"hevc": "h265", "avc": "h264"}
_PROGRAMS = {"c++": "cpp", "c#": "csharp"}
_GLUE = re.compile(r"[. _-]")
_NUMBERED = re.compile(r"第\s*0*(\d{1,3})\s*(?=[集話话回期季章卷巻部화])")


def one_spelling(text: str) -> str:
    """Replace the spellings that mean the same by one of them."""
    if not text.isascii():
        text = _NUMBERED.sub(r"第\1", text)
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
    if found["program"]:
        return _PROGRAMS[found["program"].lower()]
    if found["alone"]:
        return f"ep{int(found['alone']):02}"
    season = f"s{int(found['season'] or found['crossed'] or found['whole']):02}"
    episode = found["episode"] or found["part"] or found["of_whole"]
    return f"{season}e{int(episode):02}" if episode else season
