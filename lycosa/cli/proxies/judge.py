"""`lycosa proxies judge`, which runs until SIGINT (exit 130) or SIGTERM (0)."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import click

from lycosa.cli.parameters import NON_EMPTY
from lycosa.cli.proxies.pool import parse_bind, stop_signal
from lycosa.core.errors import UsageError

BIND = "127.0.0.1:8300"
NAME = re.compile(r"[\w.-]{1,253}")


@click.command("judge")
@click.option(
    "--bind", default=BIND, show_default=True, metavar="ADDR:PORT", help="Address to listen on. Port 0: any free port."
)
@click.option(
    "--tls-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port for HTTPS.  [default: the port of --bind plus 1]",
)
@click.option("--no-tls", is_flag=True, help="Do not serve HTTPS. Proxies that replace certificates are not detected.")
@click.option(
    "--public",
    type=NON_EMPTY,
    metavar="HOST",
    help="Name or address at which proxies reach the judge.  [default: the address of --bind]",
)
@click.option(
    "--keep",
    type=NON_EMPTY,
    metavar="DIR",
    help="Folder for the key and the certificate, so that the address stays the same.  [default: a temporary folder]",
)
def command(bind: str, tls_port: int | None, public: str | None, keep: str | None, *, no_tls: bool) -> int:
    """Run a proxy judge: a server that reports how requests through a proxy arrive.

    It prints its address, which includes a secret key. Give the address to `lycosa proxies check --judge ADDRESS`, or
    set judges = ["ADDRESS"] in [proxies.checks] of lycosa.toml. Proxies must be able to reach
    the judge: run it on a machine with a public address, usually not behind a home router.

    \b
    lycosa proxies judge --bind 0.0.0.0:8300 --public judge.example.org --keep judge
    """
    host, port = parse_bind(bind, f"{BIND} or 0.0.0.0:8300")
    public_host = _parse_public(public) if public else _reachable(host)
    with _folder(keep) as folder:
        from lycosa.app.proxies.judge import open_judge

        tls_port = (port + 1 if port else 0) if tls_port is None else tls_port
        judge = open_judge(folder, tls=not no_tls, host=host, port=port, tls_port=tls_port, public=public_host)
        return asyncio.run(_serve(judge))


async def _serve(opening: AbstractAsyncContextManager[Any]) -> int:
    from lycosa.infra.web.listening import stop_note

    stopped = stop_signal()  # before the address is printed: the reader of the address may send a signal at once
    async with opening as judge:
        print(judge.address.url, flush=True)
        notes = stop_note(judge.note, server="the judge")
        print(f"This address is secret: use it with lycosa proxies check ({notes})", file=sys.stderr)
        return await stopped


def _parse_public(text: str) -> str:
    """Raises `UsageError` for anything but a host name or an IP address."""
    host = text.strip("[]")
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(host))
    if not NAME.fullmatch(host):
        raise UsageError(f"--public {text}: write only a name or an address, such as judge.example.org")
    return host


def _reachable(host: str) -> str:
    """Raises `UsageError` if --bind means all addresses of this machine."""
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_unspecified:
            raise UsageError(f"--bind {host}: use --public HOST for the name or address at which proxies reach it")
    return host


@contextlib.contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    """Yield the folder for the key and the certificate. If it is created here, only its owner can read it."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="lycosa-judge-") as folder:
            yield Path(folder)
        return
    path = Path(keep)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        problem = "not a folder" if isinstance(error, FileExistsError) else (error.strerror or str(error)).lower()
        raise UsageError(f"--keep {keep}: {problem}") from None
    yield path
