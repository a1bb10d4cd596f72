from __future__ import annotations

import pytest

from lycosa.search.core.release_names import one_spelling, season_of


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Show.S01E02.1080p", "Show.s01e02.1080p"),
        ("Show S1E2", "Show s01e02"),
        ("Show.S01.E02", "Show.s01e02"),
        ("Show 1x02", "Show s01e02"),
        ("Show Season 3", "Show s03"),
        ("Movie.h.264 x265 HEVC", "Movie.h264 h265 h265"),
        ("Movie 4K.WEB-DL_Blu-Ray", "Movie 2160p.WEBDL_BluRay"),
        ("BD-Rip web rip", "BDRip webrip"),
        ("Show Season 2 Episode 3, season-2 - EP 4", "Show s02e03, s02e04"),
        ("Show.E03 EP3 episode_3 Tree3 E3000", "Show.ep03 ep03 ep03 Tree3 E3000"),
        ("英雄 第01集 第 12 话 第007", "英雄 第1集 第12话 第007"),
        ("C++ c# vitamin-c", "cpp csharp vitamin-c"),
        ("1920x1080 s12 mp4kit Xh264y season's", "1920x1080 s12 mp4kit Xh264y season's"),
    ],
)
def test_spellings_that_mean_the_same_become_one(text, same):
    assert one_spelling(text) == same
    assert one_spelling(same) == same


def test_an_episode_belongs_to_a_season():
    assert [season_of(word) for word in ("s01e02", "s01", "1080p")] == ["s01", "", ""]
