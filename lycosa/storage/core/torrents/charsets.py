"""Decodes names in torrents: UTF-8, or a legacy encoding that may be undeclared or declared wrongly.

Text in another encoding is hardly ever valid UTF-8, unless it has only a few letters. If a name is not UTF-8, the
names of the torrent that may not be UTF-8 are decoded together, once with each known encoding. The result whose
characters are the most common in the languages of its encoding wins. A declared encoding gets a small bonus.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

import webencodings

SAMPLE_MAX = 4096
"""Maximum bytes of a torrent's names that are scored."""
DECLARED_BONUS = 0.7
BROKEN = -5.0
COMMON, USUAL, RARE, MARK, ODD = 3.0, 1.0, -0.5, 0.5, -2.0
"""Scores of a character: very common, taught at school, rare, punctuation, and hardly ever found in names."""

_SIMPLIFIED = (
    "的一是了不在有人这上大来和我个中地为他生要们以到国时就出说会也子学发着对作能可于成用过动主下年多定本公同三分"
    "行方后前所民得自面那之经十进看部度家电力里如水化高理起小现实加都两当使点从业本去把性好应开它合还因由其些然事"
    "明情几先战意全集第季字幕版清双语国粤英中文字剧影片视频音乐专辑无损完整下载原声动画漫游戏汉硬盘破解系列"
    "天女爱王新日记最美食星龙传奇的门梦花心少年神话风云海长特别篇电视台综艺晚合订套书籍教程练习曲歌名"
    "西游红楼三国水浒老师男孩城市东北京港台湾韩美欧美黑白金马山石雨雪月"
)
_TRADITIONAL = (
    "的一是了不在有人這上大來和我個中地為他生要們以到國時就出說會也子學發著對作能可於成用過動主下年多定本公同三分"
    "行方後前所民得自面那之經十進看部度家電力裡如水化高理起小現實加都兩當使點從業去把性好應開它合還因由其些然事"
    "明情幾先戰意全集第季字幕版清雙語國粵英文劇影片視頻音樂專輯無損完整下載原聲動畫漫遊戲漢硬碟破解系列"
    "天女愛王新日記最美食星龍傳奇門夢花心少年神話風雲海長特別篇電視台綜藝套書籍教程練習曲歌名繁體"
    "西遊紅樓水滸老師男孩城市東北京港灣韓歐黑白金馬山石雨雪月"
)
_HANGUL = (
    "이다의는에을가고하지도한로은기사리어인자그나서시대해아수들있부제일정를라성장전주보스상유구동무적마오소여만과드"
    "니면조게치원선비우공트안국신모학영화드라마세미러호강산바남방송자막고회완결더빙판한글음악앨범모음중계문위생살"
    "할것저거없말분당진실크레르디타카노래추천최신예능"
)


def decode_names(names: Sequence[bytes], declared: str = "") -> list[str]:
    """Decode the names of one torrent. `declared` is the label of the declared encoding, or ""."""
    decoded = [_utf_8(name) for name in names]
    if None not in decoded:
        return [text or "" for text in decoded]
    unknown = [text is None or _may_be_another(text) for text in decoded]
    codec = guess_codec(
        b"\n".join(name for name, is_unknown in zip(names, unknown, strict=True) if is_unknown), declared
    )
    return [
        name.decode(codec, "replace") if is_unknown or text is None else text
        for name, text, is_unknown in zip(names, decoded, unknown, strict=True)
    ]


def _may_be_another(text: str) -> bool:
    """Return whether a name that is valid UTF-8 may be in the encoding of the torrent's other names.

    This is assumed if each character takes at most two bytes in UTF-8: the GBK bytes of 片头 are also the UTF-8 of Ƭͷ.
    """
    return not text.isascii() and max(text) < "\u0800"


def guess_codec(sample: bytes, declared: str = "") -> str:
    """Return the Python codec that decodes these bytes to the most plausible names."""
    sample = sample[:SAMPLE_MAX]
    label = webencodings.lookup(declared[:40]) if declared else None
    wanted = {"gbk": "gb18030"}.get(label.name, label.codec_info.name) if label else ""
    best, best_score = "cp1252", BROKEN
    for codec, score_of in SCORES.items():
        score = _score(sample, codec, score_of) + DECLARED_BONUS * (codec == wanted)
        if score > best_score:
            best, best_score = codec, score
    return best


def _utf_8(name: bytes) -> str | None:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


def _score(sample: bytes, codec: str, score_of: Callable[[str], float]) -> float:
    """Return the mean score per byte of the characters that are not ASCII."""
    text = _NOT_ASCII.findall(sample.decode(codec, "replace"))
    sizes = [_width(char, codec) for char in text]
    total = sum(size * (BROKEN if char == "\ufffd" else score_of(char)) for char, size in zip(text, sizes, strict=True))
    is_odd = codec in ("cp1251", "koi8_r") and _NO_WORD.search(sample.decode(codec, "replace"))
    return total / (sum(sizes) or 1) - (_NO_WORD_PENALTY if is_odd else 0.0)


_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_NO_WORD = re.compile(r"[а-яёіїєґ][А-ЯЁІЇЄҐ]|[A-Za-z][А-яЁІЇЄҐёіїєґ]|[А-яЁІЇЄҐёіїєґ][A-Za-z]|\w«|»\w")
"""Never in Cyrillic text: a capital after a lower-case letter, Latin next to Cyrillic letters, a quote in a word."""
_NO_WORD_PENALTY = 2.0


@cache
def _width(char: str, codec: str) -> int:
    return len(char.encode(codec, "replace"))


def _han(common: str, codec: str, leads: range) -> Callable[[str], float]:
    """Return a function that scores characters. `leads`: first bytes, in `codec`, of characters taught at school."""
    frequent = frozenset(common)

    @cache
    def score(char: str) -> float:
        if char in frequent:
            return COMMON
        if char in _MARKS:
            return MARK
        lead = char.encode(codec, "replace")[0]
        if lead in leads:
            return USUAL
        return RARE if lead >= 0x80 and not _PRIVATE.match(char) else ODD

    return score


_MARKS = frozenset("　、。·ˉ…—～《》「」『』【】（）！，：；？［］～“”‘’〜・０１２３４５６７８９ＡＢＣＤＥＦＧ")
_PRIVATE = re.compile(r"[\ue000-\uf8ff\x80-\x9f]")
_KANA = "".join(map(chr, [*range(0x3041, 0x3094), *range(0x30A1, 0x30F7), 0x30FC]))
_KANJI = "日本人大国年会一生出東学動画映版前編後女子男英語字幕第話全集巻特典新作品愛恋物語世界音楽時間少戦記"


_HANGUL_SET = frozenset(_HANGUL)


@cache
def _hangul(char: str) -> float:
    if "가" <= char <= "힣":
        is_usual = len(char.encode("euc_kr", "replace")) == 2  # one of 2,350 syllables; others are hardly ever written
        return COMMON if char in _HANGUL_SET else 1.1 if is_usual else RARE
    return MARK if char in _MARKS else RARE


def _cyrillic(char: str) -> float:
    if "а" <= char <= "я" or char in "ёіїєґ":
        return 2.0
    if "А" <= char <= "Я" or char in "ЁІЇЄҐ":
        return 1.5
    return MARK if char in "«»№—" else ODD


def _latin(char: str) -> float:
    if char in "àáâãäåæçèéêëìíîïñòóôõöøùúûüýßœšž":
        return 2.0
    return 1.0 if char.isalpha() else RARE


SCORES: dict[str, Callable[[str], float]] = {
    "utf-8": lambda char: COMMON if char > "\u0800" else USUAL,
    "gb18030": _han(_SIMPLIFIED, "gb2312", range(0xB0, 0xD8)),
    "big5hkscs": _han(_TRADITIONAL, "big5", range(0xA4, 0xC7)),
    "cp932": _han(_KANA + _KANJI, "shift_jis", range(0x88, 0x98)),
    "euc_jp": _han(_KANA + _KANJI, "euc_jp", range(0xB0, 0xD0)),
    "cp949": _hangul,
    "cp1251": _cyrillic,
    "koi8_r": _cyrillic,
    "cp1252": _latin,
}
"""The encodings to try, each with a function that scores a non-ASCII character."""
