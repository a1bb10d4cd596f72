"""The torrents of `bench/search_load.py`: names made by lot, a store that is filled with them, and queries.

The share of the word of rank r is in proportion to 1/(r + 3), among three million words, as in real names: so some
words are in every tenth name, and many words are in a single name only. A fifth of the names is Chinese, half of these
with Latin words.

A torrent has four files on average. Their names repeat the name of the torrent, or have words of their own, drawn in
the same way, or numbers. As in a crawl, each record is encoded and compressed, and stored in batches with the `put` of
the store.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
from collections.abc import Iterator

from running import progress

from lycosa.search.core.torrent_text import torrent_words
from lycosa.storage.core.content_facts import ContentFacts, ContentType
from lycosa.storage.core.torrent_record import Popularity, StoredFile, TorrentRecord
from lycosa.storage.ports import RecordStore
from tests.storage.torrents import GROUPS, SYLLABLES

BATCH = 5_000
WORDS, HAN = 3_000_000, 6_000
DAYS = 90
DAY_S = 86_400
FILES = (1, 1, 1, 1, 2, 3, 7, 16)
CHINESE = re.compile("[\u4e00-\u9fff]+")
TYPES = (*[ContentType.VIDEO] * 6, *[ContentType.AUDIO] * 2, ContentType.TEXT, ContentType.APPLICATION)
CATEGORIES = {ContentType.VIDEO: 5040, ContentType.AUDIO: 3010, ContentType.TEXT: 7020, ContentType.APPLICATION: 4050}


def word(rank: int) -> str:
    """Return the word of this rank: the more frequent, the shorter."""
    letters = ""
    while rank:
        rank, syllable = divmod(rank, len(SYLLABLES))
        letters += SYLLABLES[syllable]
    return letters.capitalize()


def drawn_rank(chance: random.Random, ranks: int, offset: int) -> int:
    """Draw a rank from 1 up. The share of a rank is in proportion to 1/(rank + offset)."""
    return int(offset * (1 + ranks / offset) ** chance.random()) - offset + 1


def title(chance: random.Random, words: int, glue: str = " ") -> str:
    """Return this many words."""
    return glue.join(word(drawn_rank(chance, WORDS, 3)) for _ in range(words))


def chinese(chance: random.Random, length: int) -> str:
    """Return this many characters."""
    return "".join(chr(0x4E00 + drawn_rank(chance, HAN, 10) * 3) for _ in range(length))


def name(chance: random.Random) -> str:
    """Return a name."""
    kind = chance.randrange(10)
    year, lines = chance.randrange(1960, 2027), chance.choice(("720p", "1080p", "2160p"))
    if kind < 3:
        episode = f"S{chance.randrange(1, 12):02}E{chance.randrange(1, 25):02}"
        return f"{title(chance, 3, '.')}.{episode}.{lines}.WEB.x264-{chance.choice(GROUPS)}"
    if kind < 5:
        return f"{title(chance, chance.randrange(2, 5))} ({year}) [{lines}] BluRay"
    if kind < 7:
        return f"{title(chance, 2)} - {title(chance, 3)} ({year}) [FLAC]"
    if kind < 8:
        return f"{title(chance, 5)}.epub"
    if kind < 9:
        return f"{chinese(chance, chance.randrange(4, 12))} 第{chance.randrange(1, 60):02}集"
    return f"[{chinese(chance, 4)}] {chinese(chance, 6)} {title(chance, 2)} ({year}) {lines}"


def batch(number: int, torrents: int, now: int) -> list[TorrentRecord]:
    """Return the torrents of this batch. All batches have `torrents` torrents, found one by one in DAYS days."""
    chance = random.Random(number)
    return [
        made(chance, each, now - (torrents - each) * DAYS * DAY_S // torrents)
        for each in range(number * BATCH, min((number + 1) * BATCH, torrents))
    ]


def made(chance: random.Random, number: int, found: int) -> TorrentRecord:
    """Return the torrent with this number."""
    kind = chance.choice(TYPES)
    named = name(chance)
    languages = ("zh",) if CHINESE.search(named) else ("en",) if number % 3 else ()
    facts = ContentFacts(kind, CATEGORIES[kind], chance.choice((0, 720, 1080)), chance.randrange(1960, 2027))
    facts = facts._replace(languages=languages)
    files = tuple(StoredFile(path, size(chance)) for path in paths(chance, named, chance.choice(FILES)))
    return TorrentRecord(infohash(number), None, named, files, 1 << 20, found, content=facts)


def paths(chance: random.Random, named: str, count: int) -> Iterator[str]:
    """Yield the paths of this many files of a torrent with this name."""
    if count == 1:
        yield f"{named}.mkv"
        return
    kind = chance.randrange(4)
    for number in range(1, count + 1):
        if kind == 0:  # the parts of a series
            yield f"{named}.E{number:02}.mkv"
        elif kind == 1:  # photos
            yield f"{word(drawn_rank(chance, WORDS, 3))}_{chance.randrange(10**6):06}.jpg"
        elif CHINESE.search(named):
            yield f"{number:02} {chinese(chance, chance.randrange(2, 8))}.mp4"
        else:  # tracks, chapters, books
            yield f"{number:02} - {title(chance, chance.randrange(1, 5))}.flac"


def size(chance: random.Random) -> int:
    """Return the size of a file: from 1 kB to 4 GB, as often up to 2 MB as above."""
    return int(1000 * 4_000_000 ** chance.random())


def infohash(number: int) -> bytes:
    """Return the infohash of the torrent with this number."""
    return hashlib.sha1(b"%d" % number).digest()


def count_of(chance: random.Random, key: bytes, now: int) -> Popularity:
    """Return the number of peers, drawn by lot: few torrents have many peers."""
    seeders = int(chance.paretovariate(0.8)) - 1
    return Popularity(key, min(seeders, 50_000), seeders // 3, now)


async def fill(store: RecordStore, torrents: int) -> None:
    """Store the torrents that are missing. The peers of two thirds of them are counted."""
    now, began = int(time.time()), time.perf_counter()
    first = await store.count() // BATCH
    for number in range(first, -(-torrents // BATCH)):
        records = batch(number, torrents, now)
        await store.put(records, now)
        chance = random.Random(-number)
        await store.set_popularity([count_of(chance, each.keys[0], now) for each in records[::3] + records[1::3]])
        if number % 20 == 0:
            progress(f"stored {number * BATCH + len(records):,} torrents, {time.perf_counter() - began:.0f} s")


def queries(chance: random.Random, torrents: int) -> Iterator[str]:
    """Yield queries of one to three words from the names of stored torrents. So a frequent word is often in a query.

    A query from a Chinese name has two to four characters that follow each other, and perhaps a Latin word.
    """
    while True:
        some = batch(chance.randrange(-(-torrents // BATCH)), torrents, DAYS * DAY_S)
        for each in chance.sample(some, min(len(some), 200)):
            yield query_of(chance, each.name)


def query_of(chance: random.Random, named: str) -> str:
    """Return a query that finds this name."""
    runs = [run for run in CHINESE.findall(named) if len(run) > 1]
    latin = [each for each in torrent_words(named) if each.isascii()]
    if not runs:
        return " ".join(chance.sample(latin, min(chance.randrange(1, 4), len(latin))))
    run, length = chance.choice(runs), chance.randrange(2, 5)
    start = chance.randrange(max(len(run) - length, 0) + 1)
    return " ".join([run[start : start + length], *chance.sample(latin, min(chance.randrange(2), len(latin)))])
