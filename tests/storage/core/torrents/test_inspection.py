from __future__ import annotations

import re

from lycosa.storage.core.content_facts import ContentType
from lycosa.storage.core.torrent_record import StoredFile, TorrentRecord
from lycosa.storage.core.torrents.inspection import Inspector
from lycosa.storage.core.torrents.rules import read_rules

RULES = read_rules(
    {
        "deny": [{"reason": "not here", "words": ["bad"]}],
        "content": [{"type": "video", "extensions": ["mkv"]}],
    }
)


def record(name: str, *paths: str, comment: str = "") -> TorrentRecord:
    files = tuple(StoredFile(path, 1) for path in paths)
    return TorrentRecord(b"\1" * 20, None, name, files, 0, 0, comment=comment)


INSPECTOR = Inspector([(RULES, re.compile)])


def test_an_accepted_record_is_cleaned_and_described():
    assert INSPECTOR.inspect(record("../../evil", "a.mkv")).record.name == ".._.._evil"
    assert INSPECTOR.inspect(record("..", "a.mkv")).record.name == "a.mkv"
    inspected, refused = INSPECTOR.inspect(record("good\u202e name", "../a.mkv", comment="a\0b\n"))
    assert not refused
    assert inspected.name == "good name"
    assert inspected.files == (StoredFile("a.mkv", 1),)
    assert inspected.comment == "ab"
    assert inspected.content is not None
    assert inspected.content.type is ContentType.VIDEO


def test_a_refused_record_has_a_reason():
    assert INSPECTOR.inspect(record("bad", "a.mkv")).refused == "not here"


def test_invisible_characters_do_not_hide_a_word():
    assert INSPECTOR.inspect(record("b\u200ba\u202ed", "a.mkv")).refused == "not here"


def test_a_torrent_without_a_name_is_named_after_its_files_or_its_infohash():
    assert INSPECTOR.inspect(record("\u200b", "folder/a.mkv")).record.name == "folder"
    assert INSPECTOR.inspect(record("")).record.name == "01" * 20
