"""Waiting for a database that is down."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from lycosa.core.errors import StorageUnavailable
from lycosa.storage.records.outages import OutageWait
from tests.virtual import VirtualLoop


def run_virtually(scenario):
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(scenario)
    finally:
        loop.close()


def test_an_outage_is_reported_once_at_its_start_and_once_at_its_end():
    said: list[str] = []

    async def scenario():
        outage_wait = OutageWait(said.append)
        outage_wait.succeeded()
        for _ in range(3):
            await asyncio.gather(*(outage_wait.wait(StorageUnavailable("db: gone")) for _ in range(4)))
        outage_wait.succeeded()
        outage_wait.succeeded()

    run_virtually(scenario())
    assert said == [
        "db: gone. New torrents wait until they can be stored again, for at most 10 min",
        "the torrents can be stored again after 1.5 s",
    ]


def test_the_pauses_grow_and_end_with_the_error():
    async def scenario():
        outage_wait, tries = OutageWait([].append), 0
        with suppress(StorageUnavailable):
            while True:
                await outage_wait.wait(StorageUnavailable("gone"))
                tries += 1
        return tries, asyncio.get_running_loop().time()

    tries, passed = run_virtually(scenario())
    assert 20 < tries < 40
    assert 600 <= passed < 640
