"""Fixtures and settings of all tests. A missing program skips the test locally and fails it in CI (CI=true)."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.servers.nginx import find_nginx
from tests.servers.proxies import PROXIES, find_proxies
from tests.servers.redis import RedisCluster, RedisServer, find_redis, redis_cluster, redis_server

ROOT = Path(__file__).resolve().parent.parent
PROVE = os.environ.get("LYCOSA_PROVE") == "1"
"""Full counts, sizes and soaks: `make prove`."""
OF_TESTS = {"LYCOSA_PROVE", "LYCOSA_TEST_SEED"}
REDIS = "redis (apt-get install redis-server)"
VALKEY = "valkey (scripts/packages --backports valkey-server:valkey-server)"


MEMORY = Path("/dev/shm")

# How many examples hypothesis tries. There is no deadline: it would test the speed of the machine.
settings.register_profile("lycosa", max_examples=100 if PROVE else 30, deadline=None)
settings.load_profile("lycosa")

# The developer's own settings do not apply to commands under test.
for variable in [name for name in os.environ if name.startswith("LYCOSA_") and name not in OF_TESTS]:
    del os.environ[variable]

# A background shell may have made us ignore Ctrl-C, which all programs started by tests would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


LONGEST = (
    "test_shared_crawl", "test_kill", "test_blocks", "test_interrupted_twice", "test_processes", "test_engine_killed",
    "test_workers", "test_compile", "test_queue_folder", "test_shared_failover", "test_barrier_model", "test_queue",
    "test_polite", "test_record_store", "test_moving", "test_torrent_site_accessible",
)  # fmt: skip
"""The slowest files. They come first, so that no process runs one of them alone at the end."""
WAITING_SHARE = 0.8


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files: the slowest first, then whole crawls, which mostly wait, among the others, which compute.

    The tests of a file keep their random order.
    """
    items.sort(key=lambda item: sort_key(item.path))


def sort_key(path: Path) -> tuple[int, float, str]:
    """Return the sort key of a file. The whole crawls are spread over the first WAITING_SHARE of the other files."""
    if path.stem in LONGEST:
        return 0, LONGEST.index(path.stem), str(path)
    place = zlib.crc32(str(path.relative_to(ROOT)).encode()) / 2**32
    return 1, place * WAITING_SHARE if path.parent.name == "e2e" else place, str(path)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse to test stale compiled modules, which Python would load anyway."""
    command = [sys.executable, ROOT / "scripts/compile", "--check"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        pytest.exit(done.stdout.strip() or f"scripts/compile --check ended with {done.returncode}", returncode=1)


def need(requirement: str, present: bool) -> None:
    """Skip the test if something it needs is missing; fail it in CI, where everything is installed."""
    if present:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"needs {requirement}, which CI has to have", pytrace=False)
    pytest.skip(f"needs {requirement}")


@pytest.fixture(autouse=True)
def _programs(request: pytest.FixtureRequest) -> None:
    """Check the requirements given by the markers of the test."""
    if request.node.get_closest_marker("nginx"):
        need("nginx (apt-get install nginx-light)", find_nginx() is not None)
    if request.node.get_closest_marker("redis"):
        need(REDIS, find_redis())
    if request.node.get_closest_marker("valkey"):
        need(VALKEY, find_redis("valkey"))
    if request.node.get_closest_marker("browser"):
        found = bool(shutil.which("chromedriver") and (shutil.which("chromium") or shutil.which("google-chrome")))
        need("chromium and chromedriver (apt-get install chromium chromium-driver)", found)
    if request.node.get_closest_marker("proxies"):
        need(PROXIES, find_proxies())
    if request.node.get_closest_marker("spin"):
        need("spin and gcc (apt-get install spin gcc)", bool(shutil.which("spin") and shutil.which("gcc")))


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """A Redis server that all tests share: each test uses its own keys, and none stops the server."""
    need(REDIS, find_redis())
    with redis_server() as server:
        yield server


@pytest.fixture(scope="session")
def valkey() -> Iterator[RedisServer]:
    """A Valkey server that all tests share in the same way."""
    need(VALKEY, find_redis("valkey"))
    with redis_server(program="valkey") as server:
        yield server


@pytest.fixture(scope="session")
def cluster() -> Iterator[RedisCluster]:
    """A Redis Cluster that all tests share in the same way.

    The timeout is long, so that there is no failover when a node is slow on a busy machine.
    """
    need(REDIS, find_redis())
    with redis_cluster(cluster_node_timeout=10000) as servers:
        yield servers


@pytest.fixture(scope="session")
def docs_root() -> Path:
    """The folder with the packaged documentation of five projects; `index.html` links to all of them."""
    site = ROOT / ".cache" / "site"
    need("the packaged documentation (scripts/docs-site)", (site / "complete").exists())
    return site / "usr" / "share" / "doc"


@pytest.fixture
def rng() -> random.Random:
    """A generator seeded by LYCOSA_TEST_SEED, or randomly. The seed is printed if the test fails."""
    seed = int(os.environ.get("LYCOSA_TEST_SEED") or random.randrange(2**32))
    print(f"LYCOSA_TEST_SEED={seed}")
    return random.Random(seed)


@pytest.fixture
def quick_path(tmp_path) -> Iterator[Path]:
    """A folder in memory if possible, for tests with kills and recorded system calls, which do not depend on the
    disk.
    """
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as folder:
        yield Path(folder)
