"""Pipelines with a database of their own have each row exactly once after kill -9 at any point of a commit."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from textwrap import dedent

import pytest

from tests.cli.command import assert_exactly_once, start_command
from tests.conftest import PROVE, ROOT, need
from tests.servers.misbehaving import Server, running
from tests.servers.postgresql import POSTGRESQL, find_postgresql, postgresql_server

PAGES = 1000 if PROVE else 60
FAST = ("--no-robots", "--concurrency", 4, "-s", "commit_acks=3", "--state", "state", "-o", "items.jsonl")
POINTS = ("rows", "written", "committed", "acked")
KILLS = [(point, number) for number in (range(1, 6) if PROVE else [2]) for point in POINTS]
"""Where a run is killed: at which point of which of its commits."""

SPIDER = """
    import os, signal, sys
    sys.path.insert(0, {examples!r})
    from {module} import Pages as ExamplePages, {pipeline} as ExamplePipeline

    point, count = open("kill").read().split()

    def kill(here):
        if here == point and commits == int(count):
            os.kill(os.getpid(), signal.SIGKILL)

    commits = 0

    class Killed(ExamplePipeline):
        def before_commit(self, position, items):
            global commits
            kill("acked")
            commits += 1
            super().before_commit(position, self.rows(items))
            kill("committed")

        def rows(self, items):
            kill("rows")
            for item in items:
                yield item
            kill("written")

    class Pages(ExamplePages):
        pipelines = [Killed]
"""
"""`rows`: nothing of the commit is in the database; `written`: its rows are, but the transaction is open; `committed`:
the transaction has ended, but the pages are not done; `acked`: all is done, and the next commit begins."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def urls(server: Server) -> set[str]:
    return {server.url(f"/tree/{PAGES}/{n}") for n in range(PAGES)}


def some_kills() -> list[tuple[str, int]]:
    """Return a kill at the hardest point, `committed`, and one at another point; with PROVE, return all kills."""
    kills = random.sample(KILLS, len(KILLS))
    return kills if PROVE else sorted(kills, key=lambda kill: kill[0] != "committed")[:2]


def killed_again_and_again(
    server: Server,
    home: Path,
    database: str,
    module: str,
    pipeline: str,
    kills: list[tuple[str, int]],
    *options: object,
) -> None:
    """Crawl with a kill in each run, then to the end."""
    command = ("runspider", "spider.py", *FAST, *options, "-a", f"site={server.url(f'/tree/{PAGES}/0')}", "-a")
    values = {"examples": str(ROOT / "examples"), "module": module, "pipeline": pipeline}
    (home / "spider.py").write_text(dedent(SPIDER.format(**values)))
    for point, count in [*kills, ("never", 0)]:
        # The point is not written to spider.py: Python takes a file of the same size and second for unchanged.
        (home / "kill").write_text(f"{point} {count}")
        with start_command(*command, f"database={database}", cwd=home) as run:
            code = run.end()
            assert code == (0 if point == "never" else -9), (point, count, run.stderr)


def test_sqlite_rows_are_there_once_after_kills_at_every_point_of_a_commit(server, tmp_path):
    kills = random.sample(KILLS, len(KILLS))
    killed_again_and_again(server, tmp_path, "rows.sqlite", "rows_in_sqlite", "ToSqlite", kills)
    with sqlite3.connect(tmp_path / "rows.sqlite") as db:
        assert_exactly_once([url for (url,) in db.execute("SELECT url FROM pages")], urls(server))
        assert db.execute("SELECT count(DISTINCT writer) FROM pages").fetchone() == (1,)


@pytest.mark.redis
def test_rows_of_a_worker_of_a_shared_crawl_are_there_once_after_kills(server, tmp_path, redis):
    kills = some_kills()
    shared = ("--frontier", redis.url, "--crawl-name", token_hex(4))
    killed_again_and_again(server, tmp_path, "rows.sqlite", "rows_in_sqlite", "ToSqlite", kills, *shared)
    with sqlite3.connect(tmp_path / "rows.sqlite") as db:
        assert_exactly_once([url for (url,) in db.execute("SELECT url FROM pages")], urls(server))


def test_postgresql_rows_are_there_once_after_kills_at_every_point_of_a_commit(server, tmp_path):
    need(POSTGRESQL, find_postgresql() is not None)
    import psycopg

    kills = some_kills()
    with postgresql_server() as database:
        killed_again_and_again(server, tmp_path, database, "rows_in_postgresql", "ToPostgresql", kills)
        with psycopg.connect(database) as db:
            assert_exactly_once([url for (url,) in db.execute("SELECT url FROM pages")], urls(server))
