"""Read the items that crawls write to a Redis stream, and copy each into a table once.

    lycosa crawl https://example.com -o 'redis://127.0.0.1:6379/0?stream=items'
    python consume_stream.py redis://127.0.0.1:6379/0 items consumer-1 items.sqlite

Start several consumers with different names: they share the work, and may be killed. An entry is acknowledged once its
item is in the table, so none is lost; an item that comes twice has the same key, so it is in the table once. If a
number of seconds follows as the last argument, the consumer ends when no item has come for that time.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, suppress

import redis

GROUP = "table"
BATCH = 500
DEAD_AFTER_MS = 60_000

Entries = list[tuple[str, dict[str, str] | None]]


def batches(server: redis.Redis, stream: str, name: str, idle_s: float) -> Iterator[Entries]:
    """Yield the entries that this consumer left unfinished, then new ones and those of dead consumers."""
    after, waited_s = "0", 0.0
    while waited_s < idle_s:
        found = server.xreadgroup(GROUP, name, {stream: after}, count=BATCH, block=1000)
        entries = found[0][1] if found else []
        if after != ">":
            after = entries[-1][0] if entries else ">"
        elif not entries:
            entries = server.xautoclaim(stream, GROUP, name, DEAD_AFTER_MS, count=BATCH)[1]
            waited_s = 0.0 if entries else waited_s + 1.0
        if entries:
            yield entries


def consume(url: str, stream: str, name: str, file: str, idle_s: float = float("inf")) -> None:
    """Copy items until none comes for `idle_s` seconds."""
    with redis.Redis.from_url(url, decode_responses=True) as server, closing(sqlite3.connect(file, 60)) as table:
        table.execute("CREATE TABLE IF NOT EXISTS items (key TEXT PRIMARY KEY, url TEXT, item TEXT)")
        with suppress(redis.ResponseError):  # the group exists already
            server.xgroup_create(stream, GROUP, "0", mkstream=True)
        for entries in batches(server, stream, name, idle_s):
            rows = [(fields["key"], fields["url"], fields["item"]) for _, fields in entries if fields]  # None: deleted
            with table:
                table.executemany("INSERT OR REPLACE INTO items VALUES (?, ?, ?)", rows)
            server.xack(stream, GROUP, *(number for number, _ in entries))


if __name__ == "__main__":
    consume(*sys.argv[1:5], *map(float, sys.argv[5:]))
