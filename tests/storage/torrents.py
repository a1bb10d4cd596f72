"""Synthetic torrents whose names look like real ones: seasons, albums, books, photos, software, games."""

from __future__ import annotations

import random

from lycosa.storage.core.torrent_record import Change, SearchedTorrent, StoredFile, TorrentRecord

SYLLABLES = [
    "an",
    "ar",
    "ba",
    "bel",
    "ben",
    "bri",
    "can",
    "car",
    "cha",
    "con",
    "dar",
    "del",
    "den",
    "dis",
    "dor",
    "el",
    "en",
    "er",
    "fal",
    "fen",
    "for",
    "gal",
    "gar",
    "gen",
    "gra",
    "hal",
    "har",
    "hel",
    "in",
    "is",
    "ka",
    "kel",
    "kin",
    "la",
    "lan",
    "len",
    "lin",
    "lor",
    "ma",
    "mar",
    "mel",
    "min",
    "mor",
    "na",
    "nel",
    "nor",
    "o",
    "ol",
    "or",
    "pa",
    "pel",
    "per",
    "pra",
    "qui",
    "ra",
    "ren",
    "ri",
    "ros",
    "sa",
    "sel",
    "sha",
    "sol",
    "sta",
    "su",
    "tal",
    "tan",
    "ter",
    "thor",
    "ti",
    "tor",
    "tra",
    "u",
    "ul",
    "va",
    "vel",
    "ven",
    "vi",
    "wal",
    "wen",
    "wil",
    "yor",
    "za",
    "zel",
]
GROUPS = [
    "AVLN",
    "BRiTE",
    "CtrlHD",
    "DEFLATE",
    "EVO",
    "FGT",
    "FLUX",
    "KOGi",
    "MeGusta",
    "NTb",
    "PLAYNOW",
    "RARBG",
    "SPARKS",
    "TGx",
    "XviD",
    "YIFY",
]
HAN = "春夏秋冬山川河海天地風雨雪花鳥月星辰龍虎王女子歌夢愛戰爭世界傳奇英雄第集完結高清字幕"


def word(rng: random.Random) -> str:
    return "".join(rng.choices(SYLLABLES, k=rng.choice((1, 2, 2, 3)))).capitalize()


def title(rng: random.Random, words: int, glue: str = " ") -> str:
    return glue.join(word(rng) for _ in range(words))


def paths(rng: random.Random, count: int) -> tuple[str, list[str]]:
    """Return a name and the paths of the files."""
    kind = rng.randrange(6)
    if kind == 0:
        show, season, group = title(rng, 2, "."), rng.randrange(1, 12), rng.choice(GROUPS)
        tail = f"{rng.choice(('720p', '1080p'))}.WEB.x264-{group}"
        name = f"{show}.S{season:02}.{tail}"
        return name, [f"{show}.S{season:02}E{i + 1:02}.{title(rng, 3, '.')}.{tail}.mkv" for i in range(count)]
    if kind == 1:
        name = f"{title(rng, 2)} - {title(rng, 2)} ({rng.randrange(1965, 2027)}) [FLAC]"
        return name, [f"{i + 1:02} - {title(rng, rng.randrange(2, 6))}.flac" for i in range(count)]
    if kind == 2:
        authors = [title(rng, 2) for _ in range(5)]
        ends = rng.choices(("epub", "pdf", "mobi"), k=count)
        return f"{authors[0]} Collection", [f"{rng.choice(authors)} - {title(rng, 3)}.{end}" for end in ends]
    if kind == 3:
        return title(rng, 3), [f"{word(rng).lower()}_{rng.randrange(10**6):06}.jpg" for _ in range(count)]
    if kind == 4:
        folders = [word(rng).lower() for _ in range(4)]
        words, ends = [word(rng).lower() for _ in range(25)], rng.choices(("dll", "dat", "png", "ini"), k=count)
        files = [f"{rng.choice(folders)}/{rng.choice(words)}_{rng.choice(words)}.{end}" for end in ends]
        return f"{title(rng, 2, '.')}.v{rng.randrange(9)}.{rng.randrange(99)}-{rng.choice(GROUPS)}", files
    name = "".join(rng.choices(HAN, k=6))
    return name, [f"{name}.EP{i + 1:02}.{''.join(rng.choices(HAN, k=8))}.mp4" for i in range(count)]


def read(change: Change) -> SearchedTorrent | None:
    """Return the torrent of a change with all its paths, in the form of `comparable`."""
    return change.torrent and comparable(change.torrent)


def comparable(torrent: SearchedTorrent) -> SearchedTorrent:
    """Return the torrent with its paths in lower case, and spaces instead of dots and underscores."""
    spaces = str.maketrans("._", "  ")
    return torrent._replace(paths=[path.lower().translate(spaces) for path in torrent.paths])


def torrent(seed: int, files: int = 30, *, v1: bool = True, v2: bool = False) -> TorrentRecord:
    """Return the torrent with this number, which is always the same."""
    rng = random.Random(seed)
    name, listed = paths(rng, files)
    base = int(2 ** rng.uniform(18, 31))
    return TorrentRecord(
        rng.randbytes(20) if v1 else None,
        rng.randbytes(32) if v2 else None,
        name,
        tuple(StoredFile(path, int(base * rng.uniform(0.5, 1.5))) for path in listed),
        1 << rng.randrange(15, 25),
        1_780_000_000 + rng.randrange(10**7),
    )
