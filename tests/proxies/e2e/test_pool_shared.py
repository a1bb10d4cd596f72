"""`lycosa proxies` on a pool in a folder while a program uses it (P3, P5)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lycosa.pool import open_pool
from tests.conftest import ROOT

LONG_S = 60.0


async def lycosa(*arguments: str) -> tuple[int, str]:
    """Run a command in another process. Return its exit code and output."""
    command = [sys.executable, "-m", "lycosa", *arguments]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    async with asyncio.timeout(LONG_S):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


def test_commands_work_on_a_pool_that_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "pool"
    (tmp_path / "list.txt").write_text("10.0.0.1:8080\nhttp://ann:secret@10.0.0.2:8080\n")

    async def story() -> None:
        async with open_pool(path, create=True) as pool:
            waiting = asyncio.create_task(lease_one(pool))
            status, output = await lycosa("proxies", "add", str(tmp_path / "list.txt"), "--pool", str(path))
            assert status == 0, output
            async with asyncio.timeout(LONG_S):
                assert (await waiting).startswith("http://10.0.0."), "the waiting caller gets an added proxy at once"
            status, output = await lycosa("proxies", "list", "--pool", str(path))
            assert (status, "10.0.0.2" in output, "secret" in output) == (0, True, False), output

    asyncio.run(story())
    status, output = asyncio.run(lycosa("proxies", "list", "--pool", str(path)))
    assert (status, "10.0.0.2" in output) == (0, True), "the pool outlives its owner"


async def lease_one(pool: object) -> str:
    async with pool.lease("a.example", wait_s=LONG_S) as proxy:  # type: ignore[attr-defined]
        return str(proxy.name)


async def create_pool(path: Path) -> None:
    """Create a pool without an owner."""
    async with open_pool(path, create=True):
        pass


@pytest.mark.prove
def test_a_stopped_owner_is_named_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "pool"
    (tmp_path / "locks").mkdir()
    asyncio.run(create_pool(path))
    command = [
        sys.executable,
        "-m",
        "tests.proxies.e2e.pool_members",
        str(path),
        str(tmp_path / "diary"),
        str(tmp_path / "locks"),
    ]
    with subprocess.Popen(command, cwd=ROOT) as owner:
        try:
            while not (tmp_path / "diary").exists() or "joined" not in (tmp_path / "diary").read_text():
                assert owner.poll() is None
                time.sleep(0.01)
            os.kill(owner.pid, signal.SIGSTOP)
            status, output = asyncio.run(lycosa("proxies", "list", "--pool", str(path)))
            assert status != 0
            assert f"process {owner.pid} has not answered for 5 s: it hangs or was stopped" in output
            assert output.count("\n") == 1
        finally:
            owner.kill()
