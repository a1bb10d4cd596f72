"""`lycosa proxies judge`: tells what it sees of requests through proxies, until SIGINT (exit 130) or SIGTERM (0)."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import click

from lycosa.cli.exit_codes import DONE, INTERRUPTED
from lycosa.cli.parameters import WRITTEN
from lycosa.core.errors import UsageError

BIND = "127.0.0.1:8300"
NAME = re.compile(r"[\w.-]{1,253}")


@click.command("judge", short_help="Be a judge, by which proxies are checked.")
@click.option("--bind", default=BIND, show_default=True, metavar="ADDR:PORT", help="Where to listen; 0: a free port.")
@click.option("--tls-port", type=click.IntRange(0, 65535), metavar="N", help="Port for HTTPS.  [default: the next one]")
@click.option("--no-tls", is_flag=True, help="No HTTPS: then nobody learns who changes certificates.")
@click.option(
    "--public",
    type=WRITTEN,
    metavar="HOST",
    help="Name or address at which proxies reach it.  [default: that of --bind]",
)
@click.option(
    "--keep", type=WRITTEN, metavar="DIR", help="Keep key and certificate here, so that the address stays the same."
)
def command(bind: str, tls_port: int | None, public: str | None, keep: str | None, *, no_tls: bool) -> int:
    """Be a judge: tell those who have its key what arrives of their requests through a proxy.

    It prints its address, a secret, which whoever checks proxies wants: `lycosa proxies check --judge ADDRESS`, or
    judges = ["ADDRESS"] in the table [proxies.checks]. Proxies must be able to reach it: run it on a machine with a
    public address, not behind the proxies.

    \b
    lycosa proxies judge --bind 0.0.0.0:8300 --public judge.example.org --keep judge
    """
    host, port = _place(bind)
    shown = _public(public) if public else _shown(host)
    with _folder(keep) as folder:
        from lycosa.app.proxies.judge import judge_in

        tls_port = (port + 1 if port else 0) if tls_port is None else tls_port
        judge = judge_in(folder, tls=not no_tls, host=host, port=port, tls_port=tls_port, public=shown)
        return asyncio.run(_serve(judge))


async def _serve(judging: AbstractAsyncContextManager[Any]) -> int:
    loop = asyncio.get_running_loop()
    ended: asyncio.Queue[int] = asyncio.Queue()
    loop.add_signal_handler(signal.SIGINT, ended.put_nowait, INTERRUPTED)
    loop.add_signal_handler(signal.SIGTERM, ended.put_nowait, DONE)
    async with judging as judge:
        print(judge.address.url, flush=True)
        print("A judge, for whoever has this address (Ctrl-C stops it)", file=sys.stderr, flush=True)
        return await ended.get()


def _place(bind: str) -> tuple[str, int]:
    host, _, port = bind.rpartition(":")
    if not (host and port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise UsageError(f"--bind {bind}: write ADDR:PORT, such as {BIND} or 0.0.0.0:8300")
    return host.strip("[]"), int(port)


def _public(text: str) -> str:
    """Return the name or address at which proxies reach it. Raises `UsageError`, for a URL or one with a port."""
    host = text.strip("[]")
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(host))
    if not NAME.fullmatch(host):
        raise UsageError(f"--public {text}: write a name or an address alone, such as judge.example.org")
    return host


def _shown(host: str) -> str:
    """Return the host of the address, which no proxy could reach if it stood for all addresses of this machine."""
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_unspecified:
            raise UsageError(f"--bind {host}: say with --public HOST at which name or address proxies reach it")
    return host


@contextlib.contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    """Yield where key and certificate are: a folder that only we can read, and that goes if it is not to be kept."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="lycosa-judge-") as made:
            yield Path(made)
        return
    folder = Path(keep)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        why = "it is no folder" if isinstance(error, FileExistsError) else (error.strerror or str(error)).lower()
        raise UsageError(f"--keep {keep}: {why}") from None
    yield folder
