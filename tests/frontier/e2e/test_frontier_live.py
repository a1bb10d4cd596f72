"""A running crawl, inspected and changed through its socket (F2, F6, F7, C8; issue 3 "Operations").

URLs that arrive through the socket are crawled like all others: exactly once, durably, and at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lycosa.app.frontier.operations import open_state
from lycosa.core.errors import StateLocked
from tests.cli.command import Running, assert_exactly_once, items, items_so_far, lycosa, start_command, without_waits
from tests.servers.misbehaving import Server, running
from tests.servers.tree import Tree, grow

PAGES = 100


@pytest.fixture
def tree() -> Iterator[Tree]:
    with grow(PAGES, delay_s=0.1) as grown:
        yield grown


@pytest.fixture
def server() -> Iterator[Server]:
    with running(host="127.0.0.2") as running_server:
        yield running_server


def crawl_of(tree: Tree, *more: object) -> tuple[object, ...]:
    return ("crawl", tree.url, "--no-robots", "-o", "items.jsonl", "--state", "state", "--concurrency", 4, *more)


def frontier_json(home: Path, *arguments: object) -> list[dict[str, Any]]:
    """Run `lycosa frontier ... --json` and return its output."""
    done = lycosa("frontier", *arguments, "--state", "state", "--json", cwd=home)
    assert (done.returncode, without_waits(done.stderr)) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def wait_until_running(crawl: Running) -> None:
    """Wait until pages are written and the socket exists."""
    assert crawl.until(
        lambda: (crawl.home / "items.jsonl").exists() and (crawl.home / "items.jsonl").stat().st_size > 0
    )
    assert stat.S_ISSOCK((crawl.home / "state" / "socket").stat().st_mode)


def urls(home: Path) -> list[str]:
    return [item["url"] for item in items(home / "items.jsonl")]


def test_running_crawl_can_be_inspected_without_being_disturbed(tmp_path: Path) -> None:
    with grow(5000, delay_s=0.05) as tree, start_command(*crawl_of(tree), cwd=tmp_path) as crawl:
        wait_until_running(crawl)
        (known,) = frontier_json(tmp_path, "status")
        assert (known["running"], known["pid"]) == (True, crawl.process.pid)
        assert crawl.until(lambda: frontier_json(tmp_path, "status")[0]["rate"] > 0)
        assert known["leased"] <= 4
        states: dict[str, str] = {}

        def are_all_there() -> bool:
            """Whether URLs in all three states are listed; on a busy machine, sometimes no URL is leased."""
            states.update({row["url"]: row["state"] for row in frontier_json(tmp_path, "list", "--limit", 0)})
            return {"done", "leased", "queued"} <= set(states.values())

        assert crawl.until(are_all_there)
        assert set(states) <= tree.urls()
        done = next(url for url, state in states.items() if state == "done")
        assert "it was fetched (200)" in frontier_json(tmp_path, "explain", done)[0]["why"][0]
        assert frontier_json(tmp_path, "verify") == [{"found": []}]
        (sizes,) = frontier_json(tmp_path, "compact")
        assert 0 < sizes["after_bytes"] <= sizes["before_bytes"]
        assert_garbage_is_dropped(tmp_path)
        assert_hung_while_stopped(crawl)
        size_bytes = tree.hit_bytes()
        assert crawl.until(lambda: tree.hit_bytes() > size_bytes)
        crawl.process.terminate()
        assert crawl.end() == 130
        assert "Traceback" not in crawl.stderr
    found = urls(tmp_path)
    assert len(found) == len(set(found))
    assert not (tmp_path / "state" / "socket").exists()
    (known,) = frontier_json(tmp_path, "status")
    assert (known["running"], known["done"], known["leased"]) == (False, len(found), 0)


def assert_hung_while_stopped(crawl: Running) -> None:
    """Assert that an owner that was stopped by a signal is named."""

    async def frontier_json() -> None:
        async with open_state(crawl.home / "state", answer_max_s=0.3):
            pytest.fail("it cannot answer")

    os.kill(crawl.process.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StateLocked, match=r"process \d+ has not answered for 0\.3 s: it hangs or was stopped"):
            asyncio.run(frontier_json())
    finally:
        os.kill(crawl.process.pid, signal.SIGCONT)


def assert_garbage_is_dropped(home: Path) -> None:
    """Assert that the crawl still answers after many clients sent garbage and stayed connected."""
    with ExitStack() as stack:
        for data in (b"\xff" * 100, b"\0\0\0\x05hello", b"GET / HTTP/1.1\r\n\r\n", b"\0") * 10:
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(home / "state" / "socket"))
            client.sendall(data)
        assert frontier_json(home, "segments")[0]["state"] == "open"


def test_imported_or_requeued_urls_are_fetched_at_once_and_only_once(
    tree: Tree, server: Server, tmp_path: Path
) -> None:
    """A page that never responds keeps the crawl running for as long as the commands take."""
    more, dead = [server.url(f"/tree/50/{number}") for number in range(20, 40)], server.url("/500")
    with start_command(
        *crawl_of(tree, dead, server.url("/hang"), "--retries", 0, "--timeout", 600), cwd=tmp_path
    ) as crawl:
        wait_until_running(crawl)
        while not frontier_json(tmp_path, "list", "--status", "dead"):
            assert crawl.process.poll() is None
        assert frontier_json(tmp_path, "requeue", "--url", dead) == [{"requeued": 1}]
        assert crawl.until(lambda: server.paths().count("/500") == 2)
        (tmp_path / "seeds.txt").write_text("\n".join(more))
        assert frontier_json(tmp_path, "import", "seeds.txt", "--priority", 5)[0]["queued"] == len(more)
        result = frontier_json(tmp_path, "import", "seeds.txt")[0]
        assert (result["queued"], result["known"]) == (0, len(more))
        expected_urls, output = tree.urls() | set(more), tmp_path / "items.jsonl"
        assert crawl.until(lambda: expected_urls <= {item["url"] for item in items_so_far(output)}), (
            "the new URLs were not fetched while the crawl ran"
        )
        assert server.paths().count("/500") == 2
        crawl.process.terminate()
        assert crawl.end() == 130
    found = urls(tmp_path)
    assert len(found) == len(set(found))


def test_import_wakes_a_waiting_crawl(server: Server, tmp_path: Path) -> None:
    """The only work left is due in ten minutes, but imported URLs are fetched immediately."""
    start = server.url("/429?after=600")
    arguments = ("crawl", start, "--no-robots", "-o", "items.jsonl", "--state", "state", "--scope", "any")
    with running(host="127.0.0.3") as other, start_command(*arguments, cwd=tmp_path) as crawl:
        assert crawl.until(lambda: len(server.hits) > 0 and (tmp_path / "state" / "socket").exists())
        while frontier_json(tmp_path, "list", "--status", "retry") == []:
            assert crawl.process.poll() is None
        (tmp_path / "seeds.txt").write_text(other.url("/tree/3/0"))
        frontier_json(tmp_path, "import", "seeds.txt")
        assert crawl.until(lambda: len(other.hits) >= 3)
        (row,) = frontier_json(tmp_path, "list", "--status", "retry")
        assert row["url"] == start
        why = frontier_json(tmp_path, "explain", start)[0]["why"][0]
        assert "will be retried" in why
        why = frontier_json(tmp_path, "explain", server.url("/x"))[0]["why"]
        assert why[0] == "never seen"


def test_imported_state_is_crawled_by_a_later_run(server: Server, tmp_path: Path) -> None:
    more = [server.url(f"/tree/9/{number}") for number in (3, 4)]
    (tmp_path / "seeds.txt").write_text("\n".join(more))
    done = lycosa("frontier", "import", "seeds.txt", "--state", "state", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "state: created a new state\n")
    crawl = ("crawl", server.url("/tree/9/8"), "-o", "items.jsonl", "--state", "state", "--no-robots")
    other = lycosa(*crawl, "--fingerprint-rules", "tracking", cwd=tmp_path)
    assert (other.returncode, "identifies requests without --fingerprint-rules" in other.stderr) == (3, True)
    assert lycosa(*crawl, cwd=tmp_path).returncode == 0
    assert set(more) < set(urls(tmp_path))


def test_imported_urls_survive_a_kill(tree: Tree, server: Server, tmp_path: Path) -> None:
    more = {server.url(f"/tree/50/{number}") for number in (47, 48, 49)}
    with start_command(*crawl_of(tree, "--commit-every", 60, "--delay", 0.2), cwd=tmp_path) as crawl:
        assert crawl.until(lambda: len(tree.hits()) > 8)
        (tmp_path / "seeds.txt").write_text("\n".join(more))
        assert frontier_json(tmp_path, "import", "seeds.txt")[0]["queued"] == 3
        assert crawl.kill()
    assert (tmp_path / "state" / "socket").exists()
    assert more <= {row["url"] for row in frontier_json(tmp_path, "list", "--limit", 0)}
    assert lycosa(*crawl_of(tree), cwd=tmp_path).returncode == 0
    found = urls(tmp_path)
    assert len(found) == len(set(found))
    assert tree.urls() | more <= set(found)


def test_stopped_crawl_can_be_changed_and_resumed(tree: Tree, tmp_path: Path) -> None:
    with start_command(*crawl_of(tree, "--delay", 0.1), cwd=tmp_path) as crawl:
        wait_until_running(crawl)
        crawl.process.terminate()
        assert crawl.end() == 130
    frontier_json(tmp_path, "verify")
    exported = lycosa("frontier", "export", "rows.jsonl", "--state", "state", cwd=tmp_path)
    assert exported.returncode == 0, exported.stderr
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert {line["url"] for line in lines if line["state"] == "done"} == set(urls(tmp_path))
    frontier_json(tmp_path, "compact")
    assert frontier_json(tmp_path, "import", "rows.jsonl")[0]["queued"] == 0
    assert lycosa(*crawl_of(tree), cwd=tmp_path).returncode == 0
    assert_exactly_once(urls(tmp_path), tree.urls())
    assert frontier_json(tmp_path, "verify") == [{"found": []}]
