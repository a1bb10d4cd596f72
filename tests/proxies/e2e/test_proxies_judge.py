"""`lycosa proxies judge` (P6) in a process of its own: used by a checker, ended by signals."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lycosa.app.proxies.checks import open_checker
from lycosa.cli.proxies.judge import command
from lycosa.core.errors import UsageError
from lycosa.proxies.core.checks.checks import Checks
from lycosa.proxies.core.checks.judging import JudgeAddress, parse_judge_address
from tests.conftest import ROOT, need
from tests.servers.ports import closed_port

CALL = "import sys; from lycosa.cli.proxies.judge import command; sys.exit(command(standalone_mode=False))"
LONG_S = 30


@contextmanager
def judge(*options: str) -> Iterator[tuple[subprocess.Popen[str], JudgeAddress]]:
    """Run the command. Yield its process and the address that it prints."""
    need("openssl", shutil.which("openssl") is not None)
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", CALL, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    )
    with process:
        try:
            assert process.stdout is not None
            yield process, parse_judge_address(process.stdout.readline())
        finally:
            process.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_it_prints_an_address_that_a_checker_can_use(number: signal.Signals, code: int) -> None:
    async def use(address: JudgeAddress) -> None:
        async with open_checker(Checks((address,))) as checker:
            await checker.ready()

    with judge("--bind", "127.0.0.1:0") as (process, address):
        assert (address.host, address.tls_port > 0) == ("127.0.0.1", True)
        asyncio.run(use(address))
        process.send_signal(number)
        assert process.wait(LONG_S) == code


def test_a_kept_key_and_certificate_are_used_again(tmp_path: Path) -> None:
    port = str(closed_port())
    found = []
    for _ in range(2):
        with judge("--bind", f"127.0.0.1:{port}", "--tls-port", "0", "--keep", str(tmp_path / "kept")) as (_, address):
            found.append((address.port, address.key, address.pin))
    assert found[0] == found[1]
    assert (tmp_path / "kept").stat().st_mode & 0o077 == 0


def test_the_address_has_the_public_name_and_no_tls_port_without_tls() -> None:
    with judge("--bind", "127.0.0.1:0", "--no-tls", "--public", "judge.example") as (_, address):
        assert (address.host, address.tls_port, address.pin) == ("judge.example", 0, "")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--bind", "8300"], "--bind 8300: write ADDR:PORT"),
        (["--bind", "127.0.0.1:http"], "write ADDR:PORT"),
        (["--bind", "0.0.0.0:0"], "use --public HOST for the name"),
        (["--bind", "[::]:0"], "use --public HOST for the name"),
        (["--keep", "/proc/nowhere"], "--keep /proc/nowhere: "),
    ],
)
def test_an_invalid_option_is_an_error_of_one_line(options: list[str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem.replace("[", "\\[")) as raised:
        command(options, standalone_mode=False)
    assert "\n" not in str(raised.value)
