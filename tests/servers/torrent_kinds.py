"""Torrents of all kinds, the same ones in every process: both versions, hybrids, CJK names, large and odd info dicts.

    torrents = torrents_of_all_kinds(500)

Their contents do not exist. This code follows BEP 3, 47 and 52 literally, and uses no code of Lycosa.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tests.servers.bittorrent import Torrent

METADATA_PIECE = 16_384
PIECE_BYTES = 65_536
MANY_FILES = 5000
MANY_FILES_EVERY, MANY_FILES_AT = 100, 9
"""One in MANY_FILES_EVERY torrents has MANY_FILES files. The first one is number MANY_FILES_AT."""
WORDS = ("手撕包菜", "東京物語", "한국 영화", "Ubuntu", "Émile", "The.Show.S01E02.1080p", "Привет", "日本語の本", "mp3")


def torrents_of_all_kinds(count: int) -> list[Torrent]:
    """Return this number of torrents."""
    return [_torrent(number) for number in range(count)]


def _torrent(number: int) -> Torrent:
    chance = random.Random(number)
    name = f"{number:04} {chance.choice(WORDS)} {chance.choice(WORDS)}"
    if number % MANY_FILES_EVERY == MANY_FILES_AT:
        names = [f"{chance.choice(WORDS)} {n:04}.flac" for n in range(MANY_FILES)]
        build = _v1 if number % (2 * MANY_FILES_EVERY) == MANY_FILES_AT else _v2
        return _finish(name, build(name, names, chance))
    names = sorted({f"{chance.choice(WORDS)} {n}.mkv" for n in range(chance.randrange(2, 30))}, key=str.encode)
    kinds = (
        lambda: _v1(name, [], chance),
        lambda: _v1(name, names, chance),
        lambda: _v2(name, [], chance),
        lambda: _v2(name, names, chance),
        lambda: _hybrid(name, [], chance),
        lambda: _hybrid(name, names, chance),
        lambda: _v1(name, [], chance, pieces=chance.randrange(900, 4000)),
        lambda: _of_whole_pieces(name, chance.randrange(1, 4), chance),
    )
    return _finish(name, kinds[number % len(kinds)]())


def _v1(name: str, names: Sequence[str], chance: random.Random, pieces: int = 0) -> dict[str, Any]:
    sizes = [chance.randrange(1, PIECE_BYTES + 1) for _ in names]
    size = sum(sizes) if names else pieces * PIECE_BYTES or chance.randrange(1, 10**6)
    info = {"name": name, "piece length": PIECE_BYTES, "pieces": chance.randbytes(20 * -(-size // PIECE_BYTES))}
    if not names:
        return {**info, "length": size}
    return {**info, "files": [{"length": n, "path": ["folder", each]} for each, n in zip(names, sizes, strict=True)]}


def _v2(name: str, names: Sequence[str], chance: random.Random) -> dict[str, Any]:
    """Each file fits into one piece, so the torrent file needs no further hashes."""
    files = {each: _v2_file(chance) for each in names}
    tree = {"folder": files} if files else {name: _v2_file(chance)}
    return {"file tree": tree, "meta version": 2, "name": name, "piece length": PIECE_BYTES}


def _v2_file(chance: random.Random) -> dict[str, Any]:
    return {"": {"length": chance.randrange(1, PIECE_BYTES + 1), "pieces root": chance.randbytes(32)}}


def _hybrid(name: str, names: Sequence[str], chance: random.Random) -> dict[str, Any]:
    """In version 1, each file starts at a new piece: padding fills the previous piece (BEP 47)."""
    info = {**_v2(name, names, chance), "pieces": chance.randbytes(20 * max(1, len(names)))}
    if not names:
        return {**info, "length": info["file tree"][name][""]["length"]}
    files: list[dict[str, Any]] = []
    for each, file in info["file tree"]["folder"].items():
        if files and (gap := -files[-1]["length"] % PIECE_BYTES):
            files.append({"attr": "p", "length": gap, "path": [".pad", str(gap)]})
        files.append({"length": file[""]["length"], "path": ["folder", each]})
    return {**info, "files": files}


def _of_whole_pieces(name: str, count: int, chance: random.Random) -> dict[str, Any]:
    """Return an info dict of exactly this number of pieces of metadata. The last piece is full."""
    wanted = count * METADATA_PIECE
    info = _v1(name, [], chance, pieces=(wanted - 400) // 20)
    for filler in range(wanted):
        if len(bencode({**info, "x": "x" * filler})) == wanted:
            return {**info, "x": "x" * filler}
        if len(bencode({**info, "x": "x" * filler, "y": ""})) == wanted:  # where the length of x gets another digit
            return {**info, "x": "x" * filler, "y": ""}
    raise AssertionError(f"no info dict of {wanted} bytes")


def _finish(name: str, info: dict[str, Any]) -> Torrent:
    encoded = bencode(info)
    layers = b"12:piece layersde" if "meta version" in info else b""
    return Torrent(name, b"d4:info%b%be" % (encoded, layers), encoded)


def bencode(value: Any) -> bytes:
    """Encode text, bytes, numbers, lists and dicts with text as keys."""
    match value:
        case int():
            return b"i%de" % value
        case str():
            return bencode(value.encode())
        case bytes():
            return b"%d:%b" % (len(value), value)
        case list():
            return b"l%be" % b"".join(map(bencode, value))
    items = sorted((key.encode(), each) for key, each in value.items())
    return b"d%be" % b"".join(bencode(key) + bencode(each) for key, each in items)
