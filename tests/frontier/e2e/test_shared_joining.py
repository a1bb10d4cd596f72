"""Joining a shared crawl: when it is almost over, and with a frontier that is given in lycosa.toml (C3, C6)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from secrets import token_hex

import pytest
import redis as driver

from lycosa.cli.main import main
from lycosa.core.url import fingerprint, host_key
from lycosa.frontier.core.model import RECORD_VERSION, UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.worker.join import redis_frontier
from lycosa.frontier.redis.worker.membership import Membership
from lycosa.infra.redis import server
from tests.cli.command import END_MAX_S, items, lycosa, start_command
from tests.servers.changing import serve

pytestmark = pytest.mark.redis

WAITS_S = 1.5


def test_an_uncommitted_page_of_another_worker_may_be_fetched_again(tmp_path: Path, redis) -> None:
    """Nothing is queued or leased, but the crawl is not finished: the other worker leaves without a commit."""
    name = token_hex(4)

    async def scenario(url: str) -> None:
        other = await redis_frontier(
            redis.url, name, Policy(robots=False), Membership("other"), print, spider="start URLs"
        )
        await other.push([UrlRecord(RECORD_VERSION, fingerprint("GET", url), url, host_key(url))])
        (lease,) = await other.lease(1, time.time())
        assert await other.ack(lease, "200", (), time.time())
        assert (await other.stats()).unfinished == 0
        options = (
            "-o",
            "items.jsonl",
            "--state",
            "state",
            "--frontier",
            redis.url,
            "--crawl-name",
            name,
            "--no-robots",
        )
        with start_command("crawl", url, *options, cwd=tmp_path) as worker, driver.Redis.from_url(redis.url) as server:
            async with asyncio.timeout(END_MAX_S):
                while server.zcard(f"lycosa:{{{name}.0}}:workers") < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            waits_at = time.monotonic()
            await asyncio.sleep(WAITS_S)
            # If this process is paused, the other worker expires meanwhile.
            assert worker.process.poll() is None or time.monotonic() - waits_at > WAITS_S + 0.3, worker.stderr
            await other.close()
            assert await asyncio.to_thread(worker.end) == 0

    with serve({"/": "the only page"}) as site:
        asyncio.run(scenario(f"{site.url}/"))
        assert site.take() == [("/", 200)]
    assert len(items(tmp_path / "items.jsonl")) == 1


def test_the_frontier_may_be_given_in_the_settings(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(server, "JOIN_MAX_S", 0.2)
    url = "redis://127.0.0.1:1/0"
    (tmp_path / "lycosa.toml").write_text(f'frontier = "{url}"')
    done = lycosa("worker", "http://127.0.0.1:9/", cwd=tmp_path)
    assert (done.returncode, f"{url}: the connection was refused" in done.stderr) == (3, True), done.stderr
    for command in (["top"], ["seed", "http://127.0.0.1:9/", "--crawl-name", "x"]):
        assert main(command) == 3
        assert f"{url}: the connection was refused" in capsys.readouterr().err
    (tmp_path / "lycosa.toml").unlink()
    assert main(["worker", "http://127.0.0.1:9/"]) == 2
    assert "a worker needs --frontier" in capsys.readouterr().err
