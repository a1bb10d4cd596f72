"""A pool in a folder that a program uses, and `lycosa proxies` beside it (P3, P5)."""

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


async def lycosa(*words: str) -> tuple[int, str]:
    """Run a command beside this process."""
    command = [sys.executable, "-m", "lycosa", *words]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    async with asyncio.timeout(LONG_S):
        said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


def test_commands_work_on_a_pool_that_is_in_use(tmp_path: Path) -> None:
    path = tmp_path / "pool"
    (tmp_path / "list.txt").write_text("10.0.0.1:8080\nhttp://ann:secret@10.0.0.2:8080\n")

    async def story() -> None:
        async with open_pool(path, create=True) as pool:
            waiting = asyncio.create_task(lent(pool))
            status, said = await lycosa("proxies", "add", str(tmp_path / "list.txt"), "--pool", str(path))
            assert status == 0, said
            async with asyncio.timeout(LONG_S):
                assert (await waiting).startswith("http://10.0.0."), "who waited has it at once"
            status, said = await lycosa("proxies", "list", "--pool", str(path))
            assert (status, "10.0.0.2" in said, "secret" in said) == (0, True, False), said

    asyncio.run(story())
    status, said = asyncio.run(lycosa("proxies", "list", "--pool", str(path)))
    assert (status, "10.0.0.2" in said) == (0, True), "the pool is there without its owner"


async def lent(pool: object) -> str:
    async with pool.lease("a.example", wait_s=LONG_S) as proxy:  # type: ignore[attr-defined]
        return str(proxy.name)


async def made(path: Path) -> None:
    """Let there be a pool, which nobody has then."""
    async with open_pool(path, create=True):
        pass


@pytest.mark.prove
def test_an_owner_that_was_stopped_is_told_of(tmp_path: Path) -> None:
    path = tmp_path / "pool"
    (tmp_path / "held").mkdir()
    asyncio.run(made(path))
    command = [
        sys.executable,
        "-m",
        "tests.proxies.e2e.pool_members",
        str(path),
        str(tmp_path / "diary"),
        str(tmp_path / "held"),
    ]
    with subprocess.Popen(command, cwd=ROOT) as owner:
        try:
            while not (tmp_path / "diary").exists() or "joined" not in (tmp_path / "diary").read_text():
                assert owner.poll() is None
                time.sleep(0.01)
            os.kill(owner.pid, signal.SIGSTOP)
            status, said = asyncio.run(lycosa("proxies", "list", "--pool", str(path)))
            assert status != 0
            assert f"process {owner.pid}, which owns the pool, does not answer: it hangs or was stopped" in said
            assert said.count("\n") == 1
        finally:
            owner.kill()
