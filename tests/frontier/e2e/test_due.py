"""Requests that are due later: a crawl waits for them without using the processor, or ends if asked to (F3, C7)."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from textwrap import dedent

import pytest

from tests.cli.command import Running, items, items_so_far, lycosa, start_command
from tests.servers.tree import Tree, grow

DAY_S = 86_400
WATCHED_S = 3.0
CPU_MAX_S = 0.1
"""A crawl that never sleeps uses all of WATCHED_S."""

SOON_S = 10.0


@pytest.fixture
def tree():
    with grow(10) as tree:
        yield tree


def write(cwd: Path, seeds: str) -> None:
    """Write a spider whose start requests are this expression; `site` is the URL of the tree."""
    spider = f"""
    import time
    from lycosa import Request, Spider
    class Later(Spider):
        name = "later"
        began = time.time()
        async def start(self):
            for request in {seeds}:
                yield request
        def parse(self, response):
            yield {{"url": response.url, "at": response.fetched_at, "began": self.began}}
    """
    (cwd / "spider.py").write_text(dedent(spider))


def later(cwd: Path, seconds: float) -> None:
    """Write a spider whose only request is due in this many seconds."""
    write(cwd, f"[Request(self.site + '/1', not_before={time.time() + seconds})]")


def command(tree: Tree, *more: object) -> list[object]:
    site = tree.url.removesuffix("/0")
    return ["runspider", "spider.py", "-a", f"site={site}", "-o", "items.jsonl", "--state", "state", *more]


def used_s(run: Running) -> float:
    """Return the processor time that a process uses in WATCHED_S."""
    before = run.cpu_s()
    time.sleep(WATCHED_S)
    used = run.cpu_s() - before
    print(f"{used * 1000:.0f} ms of processor time in {WATCHED_S} s")
    return used


def test_waiting_crawl_uses_no_cpu_and_ends_at_once_on_ctrl_c(tree, tmp_path):
    later(tmp_path, DAY_S)
    with start_command(*command(tree), cwd=tmp_path) as run:
        assert run.until(lambda: "waiting, next due at" in run.stderr)
        # The crawl may still be finishing its start, which takes longer on a busy machine.
        assert any(used_s(run) < CPU_MAX_S for _ in range(4))
        assert run.stderr.count("\n") == 1, "a crawl that waits says so once"
        at = time.monotonic()
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130
        assert time.monotonic() - at < SOON_S
        assert "the state is saved" in run.stderr
    assert tree.hits() == []
    idle = lycosa(*command(tree, "--exit-when-idle"), cwd=tmp_path)
    assert "next due at" in idle.stderr, "the request is still there"


def test_exit_when_idle_ends_an_idle_crawl_and_reports_the_next_due_time(tree, tmp_path):
    due = time.time() + 13 * 3600
    write(tmp_path, f"[Request(self.site + '/2'), Request(self.site + '/1', not_before={due})]")
    for run in range(2):
        ended = lycosa(*command(tree, "--exit-when-idle"), cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        message = re.search(
            r"^next due at (.+) \(in 13 h\); the same command resumes then$", ended.stderr, re.MULTILINE
        )
        assert message, ended.stderr
        assert message[1] == time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(due))
        assert ended.stderr.startswith(f"idle: {1 - run} page")
        assert [item["url"] for item in items(tmp_path / "items.jsonl")] == [tree.url[:-1] + "2"]


def test_delayed_request_is_fetched_at_its_due_time(tree, tmp_path):
    write(tmp_path, "[Request(self.site + f'/{number}', not_before=self.began + 5 - number) for number in (1, 2)]")
    ended = lycosa(*command(tree, "--exit-when-idle", "--no-robots"), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    waits_s = {item["url"][-1]: item["at"] - item["began"] for item in items(tmp_path / "items.jsonl")}
    assert set(waits_s) == {"1", "2"}
    assert 3 <= waits_s["2"] < 3 + SOON_S
    assert 4 <= waits_s["1"] < 4 + SOON_S


def test_url_imported_into_a_waiting_crawl_is_fetched_at_once(tree, tmp_path):
    later(tmp_path, DAY_S)
    site = tree.url.removesuffix("/0")
    with start_command(*command(tree), cwd=tmp_path) as run:
        assert run.until(lambda: "waiting, next due at" in run.stderr)
        (tmp_path / "urls").write_text(f"{site}/3\n")
        imported = lycosa("frontier", "import", "urls", "--state", "state", cwd=tmp_path)
        assert imported.returncode == 0, imported.stderr
        at = time.monotonic()
        assert run.until(lambda: bool(items_so_far(tmp_path / "items.jsonl")))
        assert time.monotonic() - at < SOON_S
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130
        assert "stopping" not in run.stderr, "nothing was under way"


def test_request_due_tomorrow_is_queued_in_the_segment_of_tomorrow(tree, tmp_path):
    write(tmp_path, f"[Request(self.site + '/2'), Request(self.site + '/1', not_before={time.time() + DAY_S})]")
    ended = lycosa(*command(tree, "--segment", "day", "--exit-when-idle"), cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^next due at .+ \(in 24 h\)", ended.stderr, re.MULTILINE), ended.stderr
    assert [item["url"] for item in items(tmp_path / "items.jsonl")] == [tree.url[:-1] + "2"]
