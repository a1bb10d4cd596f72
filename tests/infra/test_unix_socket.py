"""Unix sockets in a folder: who may connect, what is replaced, and how long a path may be."""

from __future__ import annotations

import asyncio
import socket
import stat
from collections.abc import Awaitable
from pathlib import Path

import pytest

from lycosa.infra.unix_socket import SOCKET_PATH_MAX, connect, listen


def play(story: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await story

    asyncio.run(bounded())


async def meet(path: Path) -> None:
    """Send something from one end to the other."""
    with listen(path, 5) as listening, await connect(path) as plug:
        accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
        with accepted:
            plug.send(b"hello")
            assert await asyncio.get_running_loop().sock_recv(accepted, 100) == b"hello"


def test_only_our_user_may_connect(tmp_path: Path) -> None:
    with listen(tmp_path / "socket", 5):
        assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o600


def test_what_a_dead_owner_left_behind_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "socket"))
    play(meet(tmp_path / "socket"))


def test_where_nobody_listens_or_nobody_can_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "socket").mkdir()
    with pytest.raises(OSError):
        listen(tmp_path / "socket", 5)
    for name in ("socket", "missing"):
        with pytest.raises(OSError):
            play(connect(tmp_path / name))  # type: ignore[arg-type]


def test_a_path_may_be_longer_than_the_system_allows(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)
    assert len(str(folder)) > SOCKET_PATH_MAX
    play(meet(folder / "socket"))
    open_folders = [each for each in Path("/proc/self/fd").iterdir() if each.exists() and each.samefile(folder)]
    assert open_folders == []
