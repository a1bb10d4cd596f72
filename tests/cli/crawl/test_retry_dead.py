"""`--retry-dead`: a finished crawl with dead URLs is run again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.command import lycosa

REFRESH_S = 1.1
"""After this time `--refresh 1` queues a URL again."""


class Page(BaseHTTPRequestHandler):
    """Answers 200 once `server.well` is set, 500 before."""

    def do_GET(self) -> None:
        body = b"<title>well</title>"
        self.send_response(200 if getattr(self.server, "well", False) else 500)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write no log."""


@contextmanager
def serving() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_dead_urls_are_queued_again_only_with_retry_dead(tmp_path: Path) -> None:
    with serving() as server:
        url = f"http://127.0.0.1:{server.server_port}/"
        command = ("crawl", url, "--no-robots", "-s", "retries=0", "-o", "items.jsonl")
        assert lycosa(*command, cwd=tmp_path).returncode == 1
        server.well = True  # type: ignore[attr-defined]
        again = lycosa(*command, cwd=tmp_path)
        assert again.returncode == 1
        assert "--retry-dead queues the dead URLs again, -O starts afresh" in again.stderr.splitlines()[0]
        assert "  dead    1 in all runs (500: 1)" in again.stderr
        assert f"the start URL {url} failed in an earlier run (500): --retry-dead queues failed URLs" in again.stderr
        retried = lycosa(*command, "--retry-dead", cwd=tmp_path)
        assert retried.returncode == 0, retried.stderr
        assert retried.stderr.startswith("finished: 1 page, 1 item ")
        assert (tmp_path / "items.jsonl").read_bytes().count(b"\n") == 1
        assert "nothing to do" in lycosa(*command, "--retry-dead", cwd=tmp_path).stderr


def test_a_robots_txt_that_could_not_be_fetched_is_fetched_again_for_requeued_urls(tmp_path: Path) -> None:
    with serving() as server:
        command = ("crawl", f"http://127.0.0.1:{server.server_port}/", "-s", "retries=0", "-o", "items.jsonl")
        assert "dead    1 (cannot fetch robots.txt: 500: 1)" in lycosa(*command, cwd=tmp_path).stderr
        server.well = True  # type: ignore[attr-defined]
        requeued = lycosa("frontier", "requeue", cwd=tmp_path)
        assert requeued.stdout == "1 URL queued again\n"
        assert lycosa(*command, cwd=tmp_path).stderr.startswith("finished: 1 page, 1 item ")


@pytest.mark.parametrize("requeue", [("--retry-dead",), ("--refresh", "1")])
def test_dead_urls_are_queued_again_although_robots_txt_was_unreachable(tmp_path: Path, requeue) -> None:
    """The stored robots.txt forbids everything and is still valid, but must not make the queued URLs dead at once."""
    with serving() as server:
        root = f"http://127.0.0.1:{server.server_port}/"
        command = ("crawl", root, "-s", "retries=0", "-o", "items.jsonl")
        first = lycosa(*command, cwd=tmp_path)
        assert (first.returncode, f"{root}  cannot fetch {root}robots.txt: 500" in first.stderr) == (1, True)
        assert "dead    1 (cannot fetch robots.txt: 500: 1)" in first.stderr
        time.sleep(REFRESH_S * ("--refresh" in requeue))
        still_down = lycosa(*command, *requeue, cwd=tmp_path)
        assert (still_down.returncode, "dead    1 in all runs" in still_down.stderr) == (1, True)
        server.well = True  # type: ignore[attr-defined]
        time.sleep(REFRESH_S * ("--refresh" in requeue))
        retried = lycosa(*command, *requeue, cwd=tmp_path)
        assert (retried.returncode, "finished: 1 page, 1 item " in retried.stderr) == (0, True), retried.stderr


def test_a_crawl_ended_by_max_pages_names_the_command_that_resumes_it(tmp_path: Path) -> None:
    with serving() as server:
        server.well = True  # type: ignore[attr-defined]
        urls = [f"http://127.0.0.1:{server.server_port}/{number}" for number in range(4)]
        common = ("crawl", *urls, "--no-robots", "--state", "state")
        afresh = lycosa(*common, "-O", "items.jsonl", "--max-pages", 2, cwd=tmp_path).stderr
        what = "hint: stopped at --max-pages 2, which counts the pages of all runs: to resume, repeat the command with "
        assert f"{what}-o instead of -O and a larger number\n" in afresh
        same = lycosa(*common, "-o", "items.jsonl", "--max-pages", 2, cwd=tmp_path).stderr
        assert f"{what}a larger number\n" in same
        assert (tmp_path / "items.jsonl").read_bytes().count(b"\n") == 2
        lycosa(*common, "-o", "items.jsonl", "--max-pages", 4, cwd=tmp_path)
        assert (tmp_path / "items.jsonl").read_bytes().count(b"\n") == 4
