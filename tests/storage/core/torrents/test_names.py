from __future__ import annotations

import random

import pytest

from lycosa.storage.core.torrent_record import StoredFile
from lycosa.storage.core.torrents.names import (
    FILES_MAX,
    NAME_MAX,
    PARTS_MAX,
    PATH_MAX,
    PATHS_BYTES_MAX,
    bounded_files,
    clean_path,
    clean_stored_paths,
    clean_text,
)


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Film\x00\x07 2020\x1b[31m", "Film 2020[31m"),
        ("a\r\nb\tc\u2028d\u3000e", "a b c d e"),
        ("Film\u202egpj.exe", "Filmgpj.exe"),
        ("zero\u200bwidth\ufeff\u2060 \u00adhere", "zerowidth here"),
        ("tag\U000e0041ged", "tagged"),
        ("  a   b  ", "a b"),
        ("half \ud83d of a pair", "half \ufffd of a pair"),
        ("Z" + "\u0335" * 50 + "algo", "Z" + "\u0335" * 4 + "algo"),
        ("pass\u200dword", "password"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("👩\u200d🚀 crew", "👩\u200d🚀 crew"),
        ("Amélie 千と千尋", "Amélie 千と千尋"),
        ("\u202e\u200b", ""),
    ],
)
def test_characters_that_cannot_be_shown_are_removed(text: str, cleaned: str):
    assert clean_text(text) == cleaned


def test_a_long_name_is_cut_before_its_extension():
    cut = clean_text("x" * 300 + ".mkv")
    assert len(cut) == NAME_MAX
    assert cut.endswith("x….mkv")


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        (["a", "b.mkv"], "a/b.mkv"),
        (["..", "..", "etc", "passwd"], "etc/passwd"),
        (["/etc/passwd"], "_etc_passwd"),
        (["a/../../b"], "a_.._.._b"),
        (["..\\..\\windows"], ".._.._windows"),
        (["C:", "autoexec.bat"], "C_/autoexec.bat"),
        (["a\x00/b"], "a_b"),
        ([".", "", " "], "_"),
        (["\u200b..", "x"], "x"),
        ([".hidden"], ".hidden"),
        (["AC/DC", "01.mp3"], "AC_DC/01.mp3"),
    ],
)
def test_a_path_stays_in_its_folder(parts: list[str], path: str):
    assert clean_path(parts) == path


def test_clean_names_stay_as_they_are():
    """Records are cleaned again when they are imported elsewhere."""
    chance = random.Random(19)
    for _ in range(1000):
        text = "".join(chance.choices("ab. /\u0301\u200b\u200d\u061c\u202eक\ufe0f👩\ud800:", k=chance.randrange(12)))
        for cleaned in (clean_text(text), clean_text(text * 60), clean_path([text])):
            assert clean_text(cleaned, 9999) == cleaned, repr(text)
            assert clean_stored_paths([clean_path([cleaned])]) == [clean_path([cleaned])], repr(text)


def test_paths_are_bounded():
    deep = clean_path([str(number) for number in range(1000)])
    assert deep.count("/") < PARTS_MAX
    assert deep.endswith("/…/999")
    long = clean_path(["x" * 255] * 20 + ["the end.mkv"])
    assert len(long) <= PATH_MAX
    assert long.endswith("…/the end.mkv")


def test_stored_paths_are_cleaned_in_the_same_way_as_paths_of_metadata():
    """Most stored paths need no change. A shortcut recognizes them, and must give the same result."""
    chance = random.Random(19)
    for _ in range(3000):
        parts = ["".join(chance.choices("ab./\\: C\n\u202e界", k=chance.randrange(6))) for _ in range(3)]
        path = "/".join(parts)
        cleaned = clean_path(path.split("/"))
        assert clean_stored_paths([path]) == [cleaned], repr(path)
        assert clean_stored_paths(["a/b.txt", path]) == ["a/b.txt", cleaned], repr(path)


def test_files_beyond_the_limit_become_one_entry_of_their_total_size():
    files = [StoredFile(f"{number}.txt", 10) for number in range(FILES_MAX + 5)]
    bounded = bounded_files(files)
    assert len(bounded) == FILES_MAX
    assert bounded[-1] == StoredFile("… 6 more files", 60)
    assert bounded_files(files[:FILES_MAX]) == tuple(files[:FILES_MAX])


def test_the_bytes_of_all_paths_are_limited():
    fitting = PATHS_BYTES_MAX // 3 // 1000
    files = [StoredFile("中" * 1000, 10)] * (fitting + 7)
    assert bounded_files(files) == (*files[:fitting], StoredFile("… 7 more files", 70))
    assert bounded_files(files[:fitting]) == tuple(files[:fitting])
