from __future__ import annotations

import re
from typing import Any

from lycosa.storage.core.content_facts import ContentFacts, ContentType
from lycosa.storage.core.torrent_record import StoredFile
from lycosa.storage.core.torrents.content import ContentRules
from lycosa.storage.core.torrents.rules import read_rules

RULES = {
    "content": [
        {"type": "video", "extensions": ["mkv"]},
        {"type": "text", "extensions": ["nfo"]},
        {"type": "application", "extensions": ["appimage"]},
        {"type": "audio", "weight": 5, "words": ["flac"], "tags": ["lossless"]},
        {"type": "video", "weight": 3, "patterns": [r"s(?P<season>[0-9]+)e(?P<episode>[0-9]+)", r"第(?P<season>\w)季"]},
        {"type": "video", "resolution": 2160, "words": ["4k"]},
        {"type": "video", "patterns": [r"(?P<lines>[0-9]+)p\b"]},
    ],
    "languages": {"fr": ["french"]},
    "category": [{"number": 1, "type": "audio", "tags": ["lossless"]}, {"number": 2, "type": "audio"}],
}


def facts(name: str, *files: tuple[str, int], more: dict[str, Any] | None = None) -> ContentFacts:
    loaded = [(read_rules(data), re.compile) for data in (RULES, *([more] if more else []))]
    return ContentRules(loaded).facts(name, [StoredFile(*each) for each in files])


def test_the_extension_of_the_files_with_the_most_bytes_decides_the_type():
    assert facts("x", ("a.mkv", 900), ("a.nfo", 100)).type is ContentType.VIDEO
    assert facts("x", ("a.mkv", 100), ("a.nfo", 900)).type is ContentType.TEXT
    assert facts("x.MKV").type is ContentType.VIDEO
    assert facts("x.AppImage").type is ContentType.APPLICATION


def test_words_with_more_weight_win():
    assert facts("x flac s1e2").type is ContentType.AUDIO
    assert facts("x flac 4k 720p s1e2", more={"content": [{"type": "video", "weight": 9, "words": ["x"]}]}).episode == 2


def test_only_videos_have_seasons_and_episodes():
    assert facts("x s1e2")[4:6] == (1, 2)
    assert facts("x flac s1e2")[4:6] == (None, None)
    assert facts("x 第三季")[4:6] == (3, None)


def test_a_group_that_is_not_a_number_is_ignored():
    more = {"content": [{"type": "video", "weight": 9, "patterns": ["part (?P<season>[a-z0-9]+)"]}]}
    assert [facts(f"part {text}", more=more).season for text in ("7", "two", "9" * 50)] == [7, None, None]


def test_a_resolution_in_lines_overrides_words_and_is_rounded_up():
    assert facts("x 4k").resolution == 2160
    assert facts("x 4k remaster 1080p").resolution == 1080
    assert facts("x 1036p").resolution == 1080
    assert facts("x 100p").resolution == 0
    assert facts("x", ("small 480p.mkv", 1), ("large 720p.mkv", 2)).resolution == 720, "that of the largest file"


def test_the_year_is_the_last_one_after_the_first_word():
    assert [facts(name).year for name in ("x 1999 2010", "2012", "2001 x", "x 1000 3000")] == [2010, 0, 0, 0]


def test_a_language_in_the_title_does_not_count():
    assert facts("The French Letter 2020 1080p").languages == ()
    assert facts("The Letter 2020 French").languages == ("fr",)
    assert facts("Letter (French)").languages == ("fr",)


def test_letters_give_the_language_of_a_name_without_other_hints():
    assert facts("海边の家").languages == ("zh",), "one kana is not enough"
    assert facts("海辺のいえ").languages == ("ja",)
    assert facts("Тихий дом").languages == ("ru",)


def test_categories_of_later_rule_files_take_precedence():
    assert facts("flac").category == 1
    assert facts("flac", more={"category": [{"number": 7, "type": "audio"}]}).category == 7
    assert facts("nothing").category == 8000
