"""What brakes a crawl, seen in its snapshots (C1, F8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from lycosa.app.crawl.run import run_crawl
from lycosa.config import Settings
from lycosa.crawl.events.stats import Snapshot
from tests.servers.tree import grow


@pytest.mark.parametrize("processes", [1, 2])
def test_the_delay_of_a_host_brakes_the_crawl_and_bounds_the_remaining_time(tmp_path: Path, processes: int) -> None:
    seen: list[Snapshot] = []
    with grow(7) as tree:
        settings = Settings(
            delay=0.2, robots=False, state=str(tmp_path / "state"), output=(str(tmp_path / "items.jsonl"),),
            processes=processes,
        )  # fmt: skip
        run_crawl(settings, [tree.url], observe=seen.append)
    braked = [each for each in seen if each.brake]
    assert {each.brake for each in braked} == {"delay of 0.2 s on 1 host"}
    assert any(each.least_s >= 0.2 * each.queued > 0 for each in braked)
