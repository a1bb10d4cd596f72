"""`lycosa frontier ... --frontier redis://...`: a shared crawl is inspected and changed (C4, C8, F2)."""

from __future__ import annotations

import itertools
import json
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lycosa.cli.frontier import frontier as looking
from lycosa.cli.main import main
from tests.cli.command import assert_exactly_once, items, lycosa, start_command
from tests.frontier.e2e.test_incremental import PAGES, later
from tests.servers.changing import Site, serve
from tests.servers.ports import closed_port
from tests.servers.redis import RedisServer, redis_server
from tests.servers.tree import grow

pytestmark = pytest.mark.redis
KEEP = ("-s", "keep_done=true")


DATABASES = itertools.count(400)


@pytest.fixture
def server(redis: RedisServer) -> SimpleNamespace:
    """A database without crawls."""
    return SimpleNamespace(url=f"{redis.url.rpartition('/')[0]}/{next(DATABASES)}")


@pytest.fixture
def run_command(tmp_path: Path, server: SimpleNamespace, capsys, monkeypatch) -> Callable[..., SimpleNamespace]:
    """A function that runs `lycosa frontier VERB ... --frontier` in this process, and checks its exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(looking, "RATE_OVER_S", 0.05)

    def run_(*words: str, code: int = 0) -> SimpleNamespace:
        returned = main(["frontier", *words, "--frontier", server.url])
        output = capsys.readouterr()
        assert returned == code, output.out + output.err
        return SimpleNamespace(stdout=output.out, stderr=output.err)

    return run_


def crawl(site: Any, server: SimpleNamespace, cwd: Path, *more: object, code: int = 0) -> str:
    command = ("crawl", site.url, "-o", "items.jsonl", "--state", "state", "--frontier", server.url)
    done = lycosa(*command, "--crawl-name", "shop", "--retries", "0", *more, cwd=cwd)
    assert done.returncode == code, done.stderr
    return done.stderr


def rows_of(done: SimpleNamespace) -> list[Any]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_done_urls_can_be_inspected_and_fetched_again(tmp_path: Path, server, run_command) -> None:
    with serve(PAGES, "etag") as site:
        crawl(site, server, tmp_path, *KEEP)
        (status,) = rows_of(run_command("status", "--json"))
        assert (status["done"], status["queued"], status["running"], status["pid"]) == (4, 0, False, None)
        assert status["path"] == f"shop in {server.url}"
        assert status["seeds"] == 1
        rows = {row["url"].rpartition("/")[2]: row for row in rows_of(run_command("list", "--json"))}
        assert {name: row["state"] for name, row in rows.items()} == dict.fromkeys(["", "a", "b", "gone"], "done")
        assert rows["gone"]["reason"] == "404"
        assert "it was fetched (200)" in run_command("explain", f"{site.url}/a").stdout
        assert "out of scope: not on the host of a start URL" in run_command("explain", "http://other.example/").stdout
        assert len(rows_of(run_command("hosts", "--json"))) == 1
        assert "finished" in run_command("segments").stdout
        site.take()
        later()
        site.pages["/b"] = "<p>changed <a href=/new>new</a></p>"
        site.pages["/new"] = "new"
        crawl(site, server, tmp_path, *KEEP, "--refresh", "1s")
        assert site.take() == [("/", 304), ("/a", 304), ("/b", 200), ("/gone", 404), ("/new", 200)]
        assert run_command("requeue", "--done", "--url", "*/new").stdout == "1 URL queued again\n"
        assert "queued\n  the crawl is not running" in run_command("explain", f"{site.url}/new").stdout
        crawl(site, server, tmp_path, *KEEP)
        assert site.take() == [("/new", 304)]
        assert run_command("verify").stdout == "no errors found\n"
        assert "before, " in run_command("compact").stdout
        run_command("archive", "")
        assert {row["state"] for row in rows_of(run_command("list", "--json"))} == {"archived"}


def test_done_urls_that_are_not_stored_cannot_be_fetched_again(tmp_path: Path, server, run_command) -> None:
    with serve(PAGES) as site:
        crawl(site, server, tmp_path)
        assert rows_of(run_command("list", "--json", "--status", "done")) == []
        assert "done: its time and reason are not stored" in run_command("explain", f"{site.url}/a").stdout
        assert "never seen" in run_command("explain", f"{site.url}/other").stdout
        assert "keep_done=true" in run_command("requeue", "--done", code=2).stderr
        assert "-s keep_done=true" in crawl(site, server, tmp_path, "--refresh", "1s", code=2)
        assert "was started without keep_done" in crawl(site, server, tmp_path, *KEEP, code=3)


def test_dead_urls_are_exported_and_requeued(tmp_path: Path, server, run_command) -> None:
    site = Site({}, url=f"http://127.0.0.1:{closed_port()}")
    crawl(site, server, tmp_path, "--no-robots", code=1)
    assert run_command("export", "dead.jsonl", "--status", "dead").stderr.endswith("1 URL exported to dead.jsonl\n")
    assert "marked dead" in run_command("explain", site.url).stdout
    assert run_command("requeue", "--reason", "no such*").stdout == "0 URLs queued again\n"
    assert run_command("requeue").stdout == "1 URL queued again\n"
    assert [row["state"] for row in rows_of(run_command("list", "--json"))] == ["queued"]
    assert run_command("verify").stdout == "no errors found\n"
    assert run_command("import", "dead.jsonl", "--segment", "later").stdout == "1 URL queued, 0 already known\n"
    assert "not fetched yet: use --force" in run_command("drop", "later", code=2).stderr
    assert run_command("drop", "later", "--force").stdout == "segment later dropped: 1 URL forgotten\n"
    assert run_command("verify").stdout == "no errors found\n"


def test_a_crawl_may_start_with_imported_urls(tmp_path: Path, server, run_command) -> None:
    (tmp_path / "seeds.txt").write_text("http://127.0.0.1:9/a\nhttp://127.0.0.1:9/b\n")
    assert "give --crawl-name NAME to start one" in run_command("import", "seeds.txt", code=2).stderr
    done = run_command("import", "seeds.txt", "--crawl-name", "shop")
    assert "Started crawl" in done.stderr
    assert done.stdout == "2 URLs queued, 0 already known\n"
    assert (
        "no crawl has been started here: lycosa crawl START-URL --frontier"
        in run_command("explain", "http://127.0.0.1:9/a").stdout
    )
    options = ("--state", "state", "--no-robots", "--retries", "0", "--frontier", server.url, "--crawl-name", "shop")
    done = lycosa("crawl", "http://127.0.0.1:9/", *options, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    (status,) = rows_of(run_command("status", "--json"))
    assert (status["dead"], status["queued"]) == (3, 0), "the dead URLs include the imported ones"
    other = lycosa(
        "crawl", "http://127.0.0.1:9/", *options[2:], "--fingerprint-rules", "sort", "--state", "other", cwd=tmp_path
    )
    assert "not to start URLs (--fingerprint-rules sort): give another --crawl-name" in other.stderr
    assert other.returncode in (2, 3)


def test_an_ambiguous_or_unknown_crawl_is_reported_in_one_line(tmp_path: Path, server, run_command) -> None:
    def line(*words: object, code: int = 2) -> str:
        (message,) = run_command(*words, code=code).stderr.splitlines()
        return str(message)

    assert "there is no crawl in redis://" in line("status")
    (tmp_path / "seeds.txt").write_text("http://127.0.0.1:9/a\n")
    run_command("import", "seeds.txt", "--crawl-name", "one")
    assert "there is no crawl 'two' in redis://" in line("status", "--crawl-name", "two")
    run_command("import", "seeds.txt", "--crawl-name", "two")
    assert "Give --crawl-name with one of one, two" in line("status")
    assert "exclude each other" in line("status", "--state", "x")
    run_command("status", "--crawl-name", "two")


def test_a_running_crawl_is_reached_in_two_ways(tmp_path: Path, server, run_command, capsys) -> None:
    """The ways are the socket of a worker, and Redis. URLs that are imported either way are crawled."""
    options = ("-o", "items.jsonl", "--state", "state", "--frontier", server.url, "--keep-alive")
    with serve(PAGES) as site:
        with start_command("worker", site.url, *options, "--allow", "*", cwd=tmp_path) as worker:
            assert worker.until(lambda: len(site.hits) >= 4)
            (status,) = rows_of(run_command("status", "--json"))
            assert status["running"]
            assert "running in 1 worker" in run_command("status").stdout
            (tmp_path / "one.txt").write_text(f"{site.url}/one\n")
            assert run_command("import", "one.txt").stdout == "1 URL queued, 0 already known\n"
            assert worker.until(lambda: "/one" in dict(site.hits))
            (tmp_path / "two.txt").write_text(f"{site.url}/two\n{site.url}/one\n")
            for words in (("import", "two.txt"), ("status", "--json"), ("verify",), ("list",)):
                assert main(["frontier", *words, "--state", "state"]) == 0
            output = capsys.readouterr().out
            assert "1 URL queued, 1 already known" in output
            assert f'"pid":{worker.process.pid}' in output
            assert worker.until(lambda: "/two" in dict(site.hits))
            worker.process.send_signal(signal.SIGTERM)
            assert worker.end() == 0
        assert "stopped" in run_command("status").stdout
        assert main(["frontier", "status", "--state", "state"]) == 2
        assert "state is the state of a stopped worker: give its --frontier" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "message", "code"),
    [
        ("http://127.0.0.1/", "write redis://host:6379/0", 2),
        ("redis://127.0.0.1:1/0", "redis://127.0.0.1:1/0: the connection was refused: is Redis running there?", 3),
        ("redis://:wrong@127.0.0.1:{port}/0", "rejects this user and password", 2),
    ],
)
def test_an_unusable_server_is_reported(tmp_path: Path, address: str, message: str, code: int) -> None:
    with redis_server(password="secret") as server:
        done = lycosa("frontier", "status", "--frontier", address.format(port=server.port), cwd=tmp_path)
    assert done.returncode == code
    assert message in done.stderr.splitlines()[-1]
    assert len(done.stderr.splitlines()) <= 2


def test_a_crawl_name_needs_a_frontier(tmp_path: Path) -> None:
    done = lycosa("frontier", "status", "--crawl-name", "shop", cwd=tmp_path)
    assert done.returncode == 2
    assert "add --frontier redis://host:6379/0" in done.stderr


def test_a_worker_follows_the_links_of_pages_from_other_start_urls(tmp_path: Path, server) -> None:
    frontier = ("--frontier", server.url, "--crawl-name", "shop", "--no-robots")
    with grow(13) as first_site, grow(13) as second_site:
        first = (
            "crawl",
            first_site.url,
            *frontier,
            "-o",
            "1.jsonl",
            "--state",
            "1",
            "--max-pages",
            "1",
            "--concurrency",
            "1",
        )
        assert lycosa(*first, cwd=tmp_path).returncode == 0
        done = lycosa("crawl", second_site.url, *frontier, "-o", "2.jsonl", "--state", "2", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found = [item["url"] for file in ("1.jsonl", "2.jsonl") for item in items(tmp_path / file)]
        assert_exactly_once(found, first_site.urls() | second_site.urls())
