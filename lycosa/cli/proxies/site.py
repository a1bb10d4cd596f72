"""`lycosa proxies site`, which runs until SIGINT (exit 130) or SIGTERM (0)."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import click

from lycosa.cli.exit_codes import DONE, INTERRUPTED
from lycosa.cli.frontier.rows import report_line
from lycosa.cli.parameters import NON_EMPTY
from lycosa.cli.proxies.pool import open_project_pool, parse_bind, pool_address, pool_option
from lycosa.core.errors import UsageError
from lycosa.infra.web.listening import Access, remote_note, stop_note, url_of

BIND = "127.0.0.1:8082"
KEY_VARIABLE = "LYCOSA_PROXY_API_KEY"
KEY_BYTES_MAX = 4096


@click.command("site")
@pool_option
@click.option(
    "--bind", default=BIND, show_default=True, metavar="ADDR:PORT", help="Address to listen on. Port 0: any free port."
)
@click.option(
    "--key-file",
    type=NON_EMPTY,
    metavar="FILE",
    help=f"File with the key for clients. [default: ${KEY_VARIABLE}; without a key: loopback only]",
)
def command(address: str | None, bind: str, key_file: str | None) -> int:
    """Serve the API of a pool (/api, described by /api/openapi.json), metrics for Prometheus, and web pages.

    Without a key only this machine has access, and only loopback addresses can be bound. With a key, programs send
    "Authorization: Bearer KEY", and a browser asks the user for the key as a password. HTTPS is not supported: put a
    reverse proxy in front of the server.

    \b
    lycosa proxies site --pool pool
    LYCOSA_PROXY_API_KEY=... lycosa proxies site --pool redis://localhost:6379/0 --bind 0.0.0.0:8082
    """
    from lycosa.cli.serving import listen
    from lycosa.proxies.core.api_key import checked_key

    where = pool_address(address)
    key = _read_key(key_file)
    if key:
        key = checked_key(key, f"--key-file {key_file}" if key_file else KEY_VARIABLE)
    host, port = parse_bind(bind, BIND)
    access = Access(bool(key), f"set {KEY_VARIABLE}", "the key")
    # Before the pool is opened, find out whether the port is in use.
    listener = listen(host, port, f"--bind {bind}", access, advice=f"--bind {host}:0")
    return asyncio.run(_serve(where, key, listener, access))


async def _serve(address: str, key: str, listener: socket.socket, access: Access) -> int:
    from lycosa.app.fast_shutdown import fast_shutdown
    from lycosa.app.proxies.site import build_pool_site
    from lycosa.cli.serving import Server

    with listener, fast_shutdown(report=report_line) as deadline:
        async with open_project_pool(address) as pool:
            server = Server(build_pool_site(pool, address, key), lifespan=True)
            url, note = url_of(listener.getsockname()), remote_note(listener.getsockname()[0], access)
            print(f"Proxies: {url}/  ({stop_note('API: /api', note)})", flush=True)
            await server.serve(sockets=[listener])
            if server.force_exit:
                deadline.start()
    return INTERRUPTED if server.interrupted else DONE


def _read_key(file: str | None) -> str:
    """Raises `UsageError`."""
    if file is None:
        return os.environ.get(KEY_VARIABLE, "")
    try:
        with Path(file).open("rb") as stream:
            key = stream.read(KEY_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError as error:
        raise UsageError(f"--key-file {file}: {(error.strerror or str(error)).lower()}") from None
    if not key:
        raise UsageError(f"--key-file {file}: the file has no key")
    return key
