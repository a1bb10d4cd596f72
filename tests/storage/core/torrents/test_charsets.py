from __future__ import annotations

import random

import pytest

from lycosa.storage.core.torrents.charsets import SCORES, decode_names

NAMES = {
    "gbk": [
        "西游记 第二季 全集 国语中字",
        "[电影天堂]流浪地球2.HD国语中字.mkv",
        "周杰伦 - 范特西 无损专辑",
        "数据结构与算法分析",
        "三体",
    ],
    "big5": ["灌籃高手 國語", "周星馳電影全集", "神鵰俠侶", "數碼寶貝 第一季 繁體中文", "鋼之鍊金術師"],
    "shift_jis": ["となりのトトロ", "進撃の巨人 第1話", "ドラゴンボール", "名探偵コナン 劇場版", "宮崎駿 作品集"],
    "euc_jp": ["となりのトトロ", "進撃の巨人 第1話", "新世紀エヴァンゲリオン"],
    "euc_kr": ["무한도전 430회", "별에서 온 그대", "런닝맨", "태양의 후예 1화", "아이유 - 팔레트"],
    "cp1251": ["Ночной дозор", "Война и мир", "Сталкер 1979", "Кино - Группа крови"],
    "koi8_r": ["Ночной дозор", "Война и мир"],
    "cp1252": ["Amélie Poulain", "Der große Diktator", "El laberinto español", "São Paulo"],
}


@pytest.mark.parametrize(("codec", "name"), [(codec, name) for codec, names in NAMES.items() for name in names])
def test_a_name_in_an_old_encoding_is_read_without_a_declaration(codec: str, name: str):
    assert decode_names([name.encode(codec)]) == [name]


def test_utf_8_is_never_taken_for_anything_else():
    names = [name for names in NAMES.values() for name in names]
    for declared in ("", "GBK", "Shift_JIS", "nonsense"):
        assert decode_names([name.encode() for name in names], declared) == names


def test_a_wrong_declaration_does_not_spoil_names():
    assert decode_names(["西游记 第二季".encode("gbk")], "UTF-8") == ["西游记 第二季"]
    assert decode_names(["となりのトトロ".encode("shift_jis")], "GBK") == ["となりのトトロ"]


def test_a_declaration_decides_between_plausible_readings():
    name = "銀英".encode("big5")
    assert decode_names([name], "big5") == ["銀英"]


def test_the_names_of_a_torrent_are_read_together():
    """The first name alone is ambiguous; together with the others it is GBK. Names in UTF-8 do not change."""
    names = ["三", "西游记 第二季 全集", "国语中字"]
    encoded = [*(name.encode("gbk") for name in names), "日本語".encode()]
    assert decode_names(encoded) == [*names, "日本語"]


def test_utf_8_that_was_cut_in_a_character_is_still_utf_8():
    assert decode_names(["流浪地球与三体的故事".encode()[:-1]]) == ["流浪地球与三体的故\ufffd"]


def test_any_bytes_give_some_text():
    chance = random.Random(19)
    for _ in range(300):
        names = [chance.randbytes(chance.randrange(40)) for _ in range(3)]
        assert all(isinstance(text, str) for text in decode_names(names, chance.choice(["", "big5", "x" * 99])))


def test_every_encoding_that_is_tried_is_known_to_python():
    for codec in SCORES:
        assert "a".encode(codec) == b"a"
