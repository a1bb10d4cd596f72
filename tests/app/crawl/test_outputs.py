"""The outputs of a crawl are closed at its end (C7)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lycosa.app.crawl.outputs import Feeds
from lycosa.core.errors import StorageError
from lycosa.crawl.events.signals import Signals
from lycosa.crawl.events.stats_collector import StatsCollector


class Output:
    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name, self.error = name, error

    async def close(self) -> None:
        if self.error is not None:
            raise self.error


def test_only_the_output_that_fails_counts_as_failed() -> None:
    stats = StatsCollector()
    crawlers: Any = [SimpleNamespace(stats=stats, signals=Signals())]
    outputs: Any = [Output("first:a"), Output("second:b", StorageError("disk full")), Output("third:c")]

    async def scenario() -> None:
        async with Feeds(outputs, crawlers) as feeds:
            feeds.begun = True

    with pytest.raises(StorageError, match="disk full"):
        asyncio.run(scenario())
    counts = {name.split("/")[1] + " " + name.split("/")[2]: value for name, value in stats.get_stats().items()}
    assert counts == {"success_count third": 1, "failed_count second": 1, "success_count first": 1}
