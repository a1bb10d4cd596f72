"""A real nginx as a child process. It serves a folder on a loopback address, and needs neither root nor a service.

    with serve(root) as server:
        ... server.url ...
        requests = server.requests()          # its access log, in order

It writes to a temporary folder only, and dies with its parent. `python -m tests.servers.nginx ROOT`
serves a folder until Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen
from uuid import uuid4

from tests.servers.ports import ReservedPort

START_MAX_S = 60.0
LOGGED_MAX_S = 60.0
MARK = "mark-of-the-log"

CONFIG = """
daemon off;
master_process off;
pid {home}/pid;
error_log {home}/error.log warn;
events {{ worker_connections 4096; }}
http {{
    log_format json escape=json '{{"at":$msec,"method":"$request_method","uri":"$request_uri","status":$status,'
        '"type":"$sent_http_content_type","bytes":$body_bytes_sent,"connection":$connection,'
        '"agent":"$http_user_agent"}}';
    access_log {access_log};
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    types {{
        text/html html htm; text/css css; text/plain txt; application/javascript js; application/json json;
        image/png png; image/gif gif; image/jpeg jpg jpeg; image/svg+xml svg; application/pdf pdf; text/xml xml;
    }}
    default_type application/octet-stream;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 10000000;
    keepalive_timeout 75;
    open_file_cache max=20000;
    gzip {gzip};
    gzip_min_length 256;
    server {{
        listen {address}:{port} backlog=4096;
        root {root};
        index index.html;
        {extra}
    }}
}}
"""


class NginxFailed(Exception):
    """nginx is missing or did not start."""


class LogEntry(NamedTuple):
    """One line of the access log. `at` is in unix seconds, `type` the Content-Type, `connection` a serial number."""

    at: float
    method: str
    uri: str
    status: int
    type: str
    bytes: int
    connection: int
    agent: str


@dataclass(slots=True)
class Nginx:
    """A running server. `url` ends without a slash."""

    url: str
    home: Path
    process: subprocess.Popen[bytes]

    def requests(self) -> list[LogEntry]:
        """Return the requests answered so far.

        nginx logs a request after its response was sent. So this method makes one more request: once that is in the
        log of the only worker, all earlier ones are.
        """
        mark = f"/{MARK}-{uuid4().hex}"
        with suppress(HTTPError), urlopen(self.url + mark, timeout=LOGGED_MAX_S):
            pass
        deadline = time.monotonic() + LOGGED_MAX_S
        while mark.encode() not in (content := (self.home / "access.log").read_bytes()):
            if time.monotonic() > deadline:
                raise NginxFailed(f"the access log lacks {mark}")
            time.sleep(0.005)
        entries = [LogEntry(**json.loads(line)) for line in content.splitlines()]
        return [each for each in entries if MARK not in each.uri]

    def pages(self) -> set[str]:
        """Return the URIs answered with status 200 and text/html."""
        return {each.uri for each in self.requests() if each.status == 200 and each.type.startswith("text/html")}

    def forget(self) -> None:
        """Truncate the access log."""
        (self.home / "access.log").write_bytes(b"")


def find_nginx() -> str | None:
    """Return the path of the nginx program. On Debian it is not in the PATH of ordinary users."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def _quoted(path: Path) -> str:
    text = str(path)
    if any(c in text for c in '"$\\\n'):
        raise NginxFailed(f"nginx cannot be given this path: {text!r}")
    return f'"{text}"'


def _start(program: str, home: Path, settings: dict[str, Any]) -> subprocess.Popen[bytes]:
    config = home / "nginx.conf"
    config.write_text(CONFIG.format(home=home, **settings), encoding="utf-8")
    command = [program, "-p", str(home), "-c", str(config), "-e", str(home / "error.log")]
    if setpriv := shutil.which("setpriv"):
        command = [setpriv, "--pdeathsig", "KILL", *command]
    with (home / "output").open("wb") as output:
        # A separate session: Ctrl-C must reach only the process that started nginx, which then stops it.
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)


def _wait_until_started(process: subprocess.Popen[bytes], home: Path) -> bool:
    """Wait for the pid file, which nginx writes when it listens. Return False if it ended before."""
    deadline = time.monotonic() + START_MAX_S
    while time.monotonic() < deadline and process.poll() is None:
        if (home / "pid").exists():
            return True
        time.sleep(0.005)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    # nginx may miss a SIGTERM that arrives just before it waits for events.
    process.kill()
    process.wait()


def _launch(home: Path, address: str, port: int, settings: dict[str, Any]) -> Nginx:
    program = find_nginx()
    if program is None:
        raise NginxFailed("nginx is not installed: apt-get install nginx-light")
    process = _start(program, home, {"address": address, "port": port, **settings})
    if _wait_until_started(process, home):
        return Nginx(f"http://{address}:{port}", home, process)
    _stop(process)
    errors = (home / "error.log").read_text(errors="replace") + (home / "output").read_text(errors="replace")
    raise NginxFailed(f"nginx did not start: {errors.strip()[-500:]}")


@contextmanager
def serve(
    root: Path,
    *,
    address: str = "127.0.0.1",
    port: int = 0,
    gzip: bool = False,
    log: bool = True,
    extra: str = "",
) -> Iterator[Nginx]:
    """Serve a folder while the block runs, on this port or on a free one.

    `extra` holds directives for the server block. Raises NginxFailed.
    """
    home = Path(tempfile.mkdtemp(prefix="lycosa-nginx-"))
    (home / "error.log").touch()
    (home / "access.log").touch()
    settings = {
        "root": _quoted(root.resolve()),
        "gzip": "on" if gzip else "off",
        "access_log": f"{home}/access.log json" if log else "off",
        "extra": extra,
    }
    try:
        with nullcontext() if port else ReservedPort(address) as reserved:
            server = _launch(home, address, reserved.number if reserved else port, settings)
            try:
                yield server
            finally:
                _stop(server.process)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main() -> None:
    """Serve a folder until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Serve a folder with nginx on a loopback address.")
    parser.add_argument("root", type=Path)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--gzip", action="store_true")
    options = parser.parse_args()
    with (
        suppress(KeyboardInterrupt),
        serve(options.root, address=options.address, port=options.port, gzip=options.gzip) as server,
    ):
        print(f"{server.url}/", flush=True)
        server.process.wait()


if __name__ == "__main__":
    main()
