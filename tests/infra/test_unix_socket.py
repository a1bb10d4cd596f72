"""Unix sockets in a folder: who may connect, what is replaced, and how long a path may be."""

from __future__ import annotations

import asyncio
import socket
import stat
from collections.abc import Awaitable
from pathlib import Path

import pytest

from lycosa.infra.unix_socket import SOCKET_PATH_MAX, connect, listen


def run_scenario(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario

    asyncio.run(bounded())


async def send_and_receive(path: Path) -> None:
    """Send some bytes from one end to the other."""
    with listen(path, 5) as listening, await connect(path) as client:
        accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
        with accepted:
            client.send(b"hello")
            assert await asyncio.get_running_loop().sock_recv(accepted, 100) == b"hello"


def test_only_our_user_may_connect(tmp_path: Path) -> None:
    with listen(tmp_path / "socket", 5):
        assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o600


def test_the_socket_of_a_dead_owner_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "socket"))
    run_scenario(send_and_receive(tmp_path / "socket"))


def test_impossible_and_missing_sockets_are_os_errors(tmp_path: Path) -> None:
    (tmp_path / "socket").mkdir()
    with pytest.raises(OSError):
        listen(tmp_path / "socket", 5)
    for name in ("socket", "missing"):
        with pytest.raises(OSError):
            run_scenario(connect(tmp_path / name))  # type: ignore[arg-type]


def test_a_path_may_exceed_the_limit_of_the_system(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)
    assert len(str(folder)) > SOCKET_PATH_MAX
    run_scenario(send_and_receive(folder / "socket"))
    open_folders = [each for each in Path("/proc/self/fd").iterdir() if each.exists() and each.samefile(folder)]
    assert open_folders == []
