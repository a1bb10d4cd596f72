"""`lycosa proxies keep` (P6) in a process of its own, on a pool in a folder, until a signal."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lycosa.app.proxies.checks import keep
from lycosa.core.errors import UsageError
from lycosa.proxies.checking.judge_server import run_judge
from lycosa.proxies.core.checks.checks import Checks
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.proxy import parse_proxy
from lycosa.proxies.core.sources.sources import RefreshResult, sources_from
from lycosa.proxies.memory.pool import LocalPool
from tests.conftest import ROOT
from tests.servers.proxies import new_address
from tests.servers.proxy import proxying

PROJECT = """
[[proxies.sources]]
name = "mine"
kind = "file"
path = "list.txt"
every = 1
keep = 0
"""
LONG_S = 30.0


@contextmanager
def keeping(folder: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LYCOSA_")}
    command = [sys.executable, "-m", "lycosa", "proxies", "keep", "--pool", str(folder / "pool"), *options]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, env={**environ, "PYTHONPATH": str(ROOT)})
    with process:
        try:
            yield process
        finally:
            process.kill()


async def line_with(process: subprocess.Popen[bytes], text: str) -> str:
    """Return the next line with this text, without blocking the loop."""
    assert process.stderr is not None
    async with asyncio.timeout(LONG_S):
        while line := await asyncio.to_thread(process.stderr.readline):
            if text in line.decode():
                return line.decode()
    raise AssertionError(f"the command ended without {text!r}")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_changes_of_sources_and_proxies_are_reported(tmp_path: Path, number: signal.Signals, code: int) -> None:
    async def main() -> None:
        async with run_judge() as judge, proxying(exit=new_address(), user="ann", password="secret") as proxy:
            (tmp_path / "lycosa.toml").write_text(PROJECT)
            (tmp_path / "list.txt").write_text(f"{proxy.url_with_login}\nnonsense\n")
            with keeping(tmp_path, "--judge", judge.address.url) as process:
                assert "1 new, 1 invalid line" in await line_with(process, "source mine: 1 proxy")
                assert "line 2: 'nonsense' has no port" in await line_with(process, "line 2")
                works = await line_with(process, "works (anonymous, http)")
                assert "secret" not in works
                (tmp_path / "list.txt").unlink()
                await line_with(process, "source mine: does not exist")
                process.send_signal(number)
                assert await asyncio.to_thread(process.wait, LONG_S) == code

    asyncio.run(main())


def test_without_sources_and_judges_there_is_nothing_to_keep() -> None:
    with pytest.raises(UsageError, match=r"write \[\[proxies.sources\]\], or judges in \[proxies.checks\]"):
        asyncio.run(keep(LocalPool(), (), Checks(), Path()))


def test_nothing_to_keep_is_bad_usage(tmp_path: Path) -> None:
    with keeping(tmp_path) as process:
        _, stderr = process.communicate(timeout=LONG_S)
    assert (process.returncode, stderr.count(b"\n")) == (2, 1)
    assert b"nothing to keep" in stderr


def test_forgotten_dead_proxies_of_a_source_are_added_again_and_not_leased_before_a_check(tmp_path: Path) -> None:
    """P6: a waiting request does not get such a proxy either."""
    (tmp_path / "list.txt").write_text("127.0.0.1:1\n")
    source = sources_from([{"name": "mine", "kind": "file", "path": "list.txt", "every": 1}], {})

    async def main() -> None:
        pool, forgotten, added, added_again = LocalPool(), [], asyncio.Event(), asyncio.Event()
        async with asyncio.timeout(LONG_S), run_judge() as judge:
            (dead,) = [parse_proxy("127.0.0.1:1")]
            checks = Checks(judges=(judge.address,), dead_kept_s=0.5, timeout_s=1.0)

            def on_refresh(result: RefreshResult) -> None:
                if result.added:
                    (added_again if forgotten else added).set()

            options = {"on_forgotten": forgotten.extend, "on_refresh": on_refresh, "round_s": 0.05}
            keeping = asyncio.create_task(keep(pool, source, checks, tmp_path, **options))  # type: ignore[arg-type]
            await added.wait()
            await pool.report_check(dead.key, Outcome(Blame.UNFIT, "not fit"))
            waiting = asyncio.create_task(pool.acquire("shop.example", wait_s=LONG_S))
            await added_again.wait()
            (view,) = await pool.proxies()
            assert (set(forgotten), view.state, waiting.done()) == ({dead.key}, ProxyState.DEAD, False)
            for task in (keeping, waiting):
                task.cancel()
            await asyncio.gather(keeping, waiting, return_exceptions=True)

    asyncio.run(main())
