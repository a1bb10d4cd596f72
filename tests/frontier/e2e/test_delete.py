"""`lycosa frontier delete` deletes one shared crawl and no other. It never guesses the crawl or its server, and needs
`--force` if some URLs were not fetched.
"""

from __future__ import annotations

import json
from pathlib import Path
from secrets import token_hex

import pytest

from tests.cli.command import assert_one_line, lycosa
from tests.servers.redis import RedisServer
from tests.servers.redis_client import redis_client

pytestmark = pytest.mark.redis


def seeded(redis: RedisServer, home: Path) -> tuple[str, ...]:
    """Start a crawl with two URLs. Return the options that name it."""
    options = ("--frontier", redis.url, "--crawl-name", token_hex(4))
    done = lycosa("seed", "http://a.example/", "http://b.example/", *options, cwd=home)
    assert done.returncode == 0, done.stderr
    return options


def test_a_crawl_is_deleted_and_another_one_is_not(tmp_path: Path, redis: RedisServer) -> None:
    crawl, other = seeded(redis, tmp_path), seeded(redis, tmp_path)
    refused = lycosa("frontier", "delete", *crawl, cwd=tmp_path)
    assert refused.returncode == 2
    assert "2 URLs of the crawl" in assert_one_line(refused.stderr)
    done = lycosa("frontier", "delete", *crawl, "--force", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"crawl {crawl[-1]} deleted: 2 URLs forgotten\n"), done.stderr
    keys = list(redis_client(redis.url).scan_iter(match=f"lycosa:{{{crawl[-1]}*"))
    assert keys == []
    again = lycosa("frontier", "delete", *crawl, "--force", cwd=tmp_path)
    assert again.returncode == 2
    assert "there is no crawl" in assert_one_line(again.stderr)
    done = lycosa("frontier", "delete", *other, "--force", "--json", cwd=tmp_path)
    assert json.loads(done.stdout) == {"crawl": other[-1], "deleted": 2}


def test_the_name_and_the_server_are_never_guessed(tmp_path: Path, redis: RedisServer) -> None:
    for options, message in ((("--frontier", redis.url), "--crawl-name"), (("--crawl-name", "shop"), "--frontier")):
        refused = lycosa("frontier", "delete", *options, "--force", cwd=tmp_path)
        assert refused.returncode == 2
        assert message in assert_one_line(refused.stderr)
