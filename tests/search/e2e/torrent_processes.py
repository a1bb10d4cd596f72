"""Commands that index and search the torrents of a folder, as processes."""

from __future__ import annotations

import asyncio
import re
import tempfile
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from lycosa.app.dht_state import RecordsLocation, open_records
from lycosa.storage.ports import RecordStore
from tests.cli.command import Running, start_command
from tests.search.site.torrents.sample_torrents import NOW

DEADLINE_S = 60.0
Answer = TypeVar("Answer")


def with_store(folder: Path, use: Callable[[RecordStore], Awaitable[Answer]]) -> Answer:
    """Open the store of a folder, and return what `use` returns."""

    async def main() -> Answer:
        async with open_records(RecordsLocation(str(folder / "state"), None), create=True) as store:
            return await use(store)

    return asyncio.run(main())


def change(folder: Path, *records, denied: tuple[bytes, ...] = ()) -> None:
    async def use(store: RecordStore) -> None:
        await store.put(records, NOW)
        await store.deny(denied)

    with_store(folder, use)


@contextmanager
def running(folder: Path, *arguments: object) -> Iterator[Running]:
    """Start a command in a separate folder, which also gets its output."""
    home = Path(tempfile.mkdtemp(dir=folder))
    with start_command(*arguments, "--state", folder / "state", cwd=home) as command:
        yield command


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[Running, str]]:
    """Start the site. Yield the process and its address."""
    with running(folder, "site", "--port", "0", *options) as site:
        yield site, address_of(site)


def address_of(site: Running) -> str:
    """Wait until the site is ready. Return its address."""
    assert site.until(lambda: b"Search site: " in site.stdout), site.stderr
    return re.search(r"Search site: (http://\S+)", site.stdout.decode())[1]


def status(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
