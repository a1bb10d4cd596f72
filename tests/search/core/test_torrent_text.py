from __future__ import annotations

from lycosa.search.core.torrent_text import TEXT_MAX_BYTES, title_words, torrent_texts


def test_files_add_the_words_that_the_name_lacks():
    name = "Show.Name.S01.1080p-GRP"
    paths = ["Show.Name.S01E01.The.Pilot.1080p-GRP.mkv", "Show.Name.S01E02.The.Second.1080p-GRP.mkv"]
    assert torrent_texts(name, paths) == ("show name s01 1080p grp", "s01e01 the pilot mkv s01e02 second")


def test_an_episode_is_found_by_its_season():
    assert torrent_texts("Show 1x02", []) == ("show s01e02", "s01")


def test_counters_get_the_space_that_words_leave():
    assert torrent_texts("Album", ["01 - Song.flac", "02 - Other 1999.flac"]) == ("album", "song flac other 1999 01 02")
    assert torrent_texts("剧", ["第01集.mp4", "EP02.mp4"]) == ("剧", "第 1 集 mp4 ep02")
    _, files = torrent_texts("a name", [f"{n:03} unique{n}" for n in range(1000)])
    assert not any(word.isdigit() for word in files.split())


def test_characters_of_scripts_without_spaces_stay_adjacent():
    assert torrent_texts("英雄传", ["英雄传/第一集.mp4", "英雄/海报.jpg"]) == (
        "英 雄 传",
        "第 一 集 mp4 英 雄 海 报 jpg",
    )


def test_the_text_is_limited():
    name, files = torrent_texts("word " * 100, [f"file{n:04}" for n in range(1000)])
    assert len(name) + len(files) <= TEXT_MAX_BYTES
    assert torrent_texts("w" * 10_000, ["x" * 10_000])[0].startswith("w" * 64)
    name, files = torrent_texts("a name", (f"unique{n}" for n in range(1000)))
    assert (name, len(files) > 200, len(name) + len(files) <= TEXT_MAX_BYTES) == ("a name", True, True)


def test_the_title_ends_before_season_year_or_resolution():
    names = ["Great.Show.S01E02.1080p-GRP", "A Film 2019 4K", "1984 2160p", "Some album of many words", "英雄传"]
    assert [" ".join(title_words(name)) for name in names] == [
        "great show",
        "a film",
        "1984",
        "some album of many",
        "英 雄 传",
    ]
