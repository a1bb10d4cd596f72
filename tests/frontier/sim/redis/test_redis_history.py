"""Random histories of five workers on one crawl in a real Redis, beside a model of it: see `history`."""

from __future__ import annotations

import random
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import redis as real_redis

from lycosa.frontier.redis.scripts import OPERATIONS_SCRIPT, WORKER_SCRIPT
from lycosa.frontier.redis.worker import calls
from tests.conftest import PROVE
from tests.frontier.sim.redis.history import History

pytestmark = pytest.mark.redis

HISTORIES = 2000 if PROVE else 8
PARTS = 8
SMALLER = {
    "SEEN_SET_MEAN = 256": "SEEN_SET_MEAN = 4",
    "RETAINED = 1000": "RETAINED = 3",
    "RETAINED_S = 5 ": "RETAINED_S = 0.5 ",
    "CLAIMS_IN_ROW_MAX = 8": "CLAIMS_IN_ROW_MAX = 2",
}
"""What the script does with many records, done with few."""

SLICE = 3
AT_ONCE = 2


def shrunk(url: str, monkeypatch: pytest.MonkeyPatch, *changes: tuple[str, str]) -> None:
    """Let the script split its sets, trim its outboxes and slice them with few records; change it so beside."""
    text = WORKER_SCRIPT.text.decode()
    for what, _ in (*SMALLER.items(), *changes):
        assert text.count(what) == 1, f"{what!r} is not in the script"
    monkeypatch.setattr(calls, "DELIVERED_AT_ONCE", SLICE)
    with real_redis.Redis.from_url(url) as client:
        for script in (WORKER_SCRIPT, OPERATIONS_SCRIPT):
            text = script.text.decode()
            for what, instead in (*SMALLER.items(), *changes):
                text = text.replace(what, instead)
            monkeypatch.setattr(script, "text", text.encode())
            monkeypatch.setattr(script, "checksum", client.script_load(text))


def play(url: str, seeds: list[int]) -> None:
    """Play a history of each seed."""
    with pytest.MonkeyPatch.context() as patch:
        shrunk(url, patch)
        for seed in seeds:
            print("seed", seed)
            try:
                History(url, seed).run()
            except BaseException as error:
                error.add_note(f"in the history of seed {seed}")
                raise


@pytest.mark.parametrize("part", range(PARTS))
def test_histories(redis, part: int) -> None:
    seeds = [random.randrange(1 << 32) for _ in range(HISTORIES // PARTS)]
    if not PROVE:
        play(redis.url, seeds)
        return
    with ProcessPoolExecutor(AT_ONCE, get_context("spawn")) as pool:  # a history waits for Redis a third of its time
        for _ in pool.map(play, [redis.url] * AT_ONCE, [seeds[n::AT_ONCE] for n in range(AT_ONCE)]):
            pass
