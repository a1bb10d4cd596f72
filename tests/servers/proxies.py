"""Real proxies as child processes on loopback, each with its own listening address and its own outgoing address.

    with Microsocks(user="ann", password="secret") as proxy:
        proxy.url                   # socks5h://ann:secret@127.21.0.1:41234
        proxy.exit                  # 127.21.0.2, the client address that a server sees
        proxy.kill()

    Tinyproxy    HTTP, a Via, and passwords; may refuse sites (403)
    Squid        HTTP, passwords checked by a program of its own, X-Forwarded-For as `forwards` says
    Microsocks   SOCKS5, passwords
    Dante        SOCKS4 and SOCKS5

Proxies that misbehave on purpose are in `proxy.py`. A proxy writes to a temporary folder of its own only, and
dies with its parent. Several are started together by `running(*proxies)`, which returns when all accept connections.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import ClassVar, Self
from urllib.parse import quote

from tests.servers.ports import ReservedPort

START_MAX_S = 60.0
STOP_MAX_S = 60.0
NOBODY = 65_534
SAFE = "!$&()*+,-./:;=?@_"
SHARED_MEMORY = Path("/dev/shm")
PROXIES = "tinyproxy, squid, microsocks, dante (apt-get install tinyproxy-bin squid microsocks dante-server)"
"""The text for `need`."""

_addresses = count(1)


class ProxyFailed(Exception):
    """A program is missing, or a proxy did not start."""


def find_proxies() -> bool:
    """Whether all programs are installed."""
    return all(_found(each.program) for each in (Tinyproxy, Squid, Microsocks, Dante))


def new_address() -> str:
    """Return a loopback address that is unique in this process, and rarely used by another one."""
    number = next(_addresses)
    return f"127.{16 + os.getpid() % 200}.{number // 250}.{1 + number % 250}"


class RealProxy:
    """A proxy at `address:port` that connects from `exit`. With a user it requires a login."""

    program: ClassVar[str]
    scheme: ClassVar[str] = "http"
    ended_by: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, *, user: str = "", password: str = "", address: str = "") -> None:
        self.address, self.exit = address or new_address(), new_address()
        self.user, self.password = user, password
        self.port = 0
        self._reserved: ReservedPort | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.home = Path()

    @property
    def place(self) -> str:
        """Host and port."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"

    @property
    def url(self) -> str:
        """Its URL, with the login."""
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@" if self.user else ""
        return f"{self.scheme}://{login}{self.place}"

    @property
    def url_without_login(self) -> str:
        """Its URL without the login."""
        return f"{self.scheme}://{self.place}"

    def __enter__(self) -> Self:
        """Start it, and wait until it listens."""
        start_all([self])
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and remove its files."""
        self.stop()

    def launch(self) -> None:
        """Start its process; `wait` waits until it listens. After `kill` it uses the same address and port again."""
        path = _found(self.program)
        if path is None:
            raise ProxyFailed(f"{self.program} is not installed: {PROXIES}")
        if not self.port:
            self.home = Path(tempfile.mkdtemp(prefix=f"lycosa-{self.program}-"))
            self.home.chmod(0o777)  # some programs give up root
            self._reserved = ReservedPort(self.address)
            self.port = self._reserved.number
        with (self.home / "output").open("ab") as output:
            self.process = subprocess.Popen(
                [*self._before(), path, *self._arguments()],
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Wait until it listens. Raises `ProxyFailed`."""
        deadline = time.monotonic() + START_MAX_S
        while time.monotonic() < deadline and self.process is not None and self.process.poll() is None:
            with suppress(OSError), socket.create_connection((self.address, self.port), START_MAX_S):
                return
            time.sleep(0.01)
        raise ProxyFailed(f"{self.program} did not start: {self._output()[-800:]}")

    def kill(self) -> None:
        """Kill it with its children. Connections are refused afterwards."""
        process, self.process = self.process, None
        if process is None:
            return
        process.send_signal(self.ended_by)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_MAX_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_MAX_S)
        deadline = time.monotonic() + STOP_MAX_S
        while self._listens() and time.monotonic() < deadline:  # until the last child has ended
            time.sleep(0.01)

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection((self.address, self.port), START_MAX_S):
            return True
        return False

    def stop(self) -> None:
        """End it, and remove its files."""
        self.kill()
        if self._reserved:
            self._reserved.close()
            shutil.rmtree(self.home, ignore_errors=True)

    def _output(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in self.home.glob("*") if path.suffix != ".conf")

    def _arguments(self) -> list[str]:
        raise NotImplementedError

    def _before(self) -> list[str]:
        """Return a command prefix that lets the proxy die with its parent.

        A change of the user must come before, since Linux clears the signal of `--pdeathsig` when the user changes.
        """
        return ["setpriv", "--pdeathsig", "KILL"]

    def _write(self, name: str, *lines: str) -> str:
        path = self.home / name
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
        return str(path)


class Tinyproxy(RealProxy):
    """An HTTP proxy that adds a Via field. It answers 403 for hosts in `refuses` (patterns)."""

    program = "tinyproxy"

    def __init__(self, *, user: str = "", password: str = "", address: str = "", refuses: Iterable[str] = ()) -> None:
        super().__init__(user=user, password=password, address=address)
        self._refuses = list(refuses)

    def _arguments(self) -> list[str]:
        login = [f"BasicAuth {self.user} {self.password}"] if self.user else []
        refused = []
        if self._refuses:
            refused = [f'Filter "{self._write("refused", *self._refuses)}"', "FilterExtended On"]
        lines = [f"Port {self.port}", f"Listen {self.address}", f"Bind {self.exit}", "Timeout 60", "MaxClients 500"]
        logged = [f'LogFile "{self.home}/log"', "LogLevel Warning"]
        return ["-d", "-c", self._write("tinyproxy.conf", *lines, *logged, *login, *refused)]


class Squid(RealProxy):
    """An HTTP proxy. `forwards` is squid's `forwarded_for`; with "delete" it adds no Via field either.

    It answers 403 for hosts in `refuses`.
    """

    program = "squid"

    def __init__(
        self, *, user: str = "", password: str = "", forwards: str = "on", refuses: Iterable[str] = ()
    ) -> None:
        super().__init__(user=user, password=password)
        self._service = f"lycosa{token_hex(6)}"
        self._forwards = forwards
        self._refuses = list(refuses)

    def _before(self) -> list[str]:
        if os.getuid():
            return super()._before()
        user = f"--reuid={NOBODY} --regid={NOBODY} --clear-groups"
        return ["setpriv", *user.split(), "--pdeathsig", "KILL"]

    def _arguments(self) -> list[str]:
        return ["-N", "-n", self._service, "-f", self._write("squid.conf", *self._lines())]

    def kill(self) -> None:
        """See `RealProxy`. Also removes its named shared memory."""
        super().kill()
        for file in SHARED_MEMORY.glob(f"{self._service}-*"):
            file.unlink(missing_ok=True)

    def _lines(self) -> Iterator[str]:
        yield from (f"http_port {self.place}", f"tcp_outgoing_address {self.exit}", f"pid_filename {self.home}/pid")
        yield from (f"cache_log {self.home}/log", "access_log none", "cache_store_log none", "cache deny all")
        yield from ("pinger_enable off", "netdb_filename none", "shutdown_lifetime 0 seconds", "cache_mem 8 MB")
        yield from (f"coredump_dir {self.home}", "visible_hostname tests", f"forwarded_for {self._forwards}")
        yield f"via {'off' if self._forwards == 'delete' else 'on'}"
        yield "acl CONNECT method CONNECT"
        if self._refuses:
            yield f"acl refused dstdomain -n {' '.join(self._refuses)}"
            yield "http_access deny refused"
        if self.user:
            yield f"auth_param basic program /bin/sh {self._checker()}"
            yield "auth_param basic children 1 startup=1 idle=1"
            yield "acl known proxy_auth REQUIRED"
            yield "http_access allow known"
        else:
            yield "http_access allow all"
        yield "http_access deny all"

    def _checker(self) -> str:
        """Write the program that Squid asks about each login: one line, with both words quoted as in RFC 1738."""
        expected = shlex.quote(f"{quote(self.user, safe=SAFE)} {quote(self.password, safe=SAFE)}")
        loop = "while IFS= read -r line; do"
        return self._write("checker", loop, f'[ "$line" = {expected} ] && echo OK || echo ERR', "done")


class Microsocks(RealProxy):
    """A SOCKS5 proxy that resolves host names itself."""

    program = "microsocks"
    scheme = "socks5h"

    def _arguments(self) -> list[str]:
        login = ["-u", self.user, "-P", self.password] if self.user else []
        return ["-i", self.address, "-p", str(self.port), "-b", self.exit, *login]


class Dante(RealProxy):
    """A SOCKS4 and SOCKS5 proxy. It has no logins here, since the logins of Dante are the users of the machine."""

    program = "danted"
    scheme = "socks5h"
    ended_by = signal.SIGTERM  # on SIGTERM it ends its many children

    def _before(self) -> list[str]:
        if os.getuid():
            return super()._before()
        user = f"--reuid={NOBODY} --regid={NOBODY} --clear-groups"
        return ["setpriv", *user.split(), "--pdeathsig", "KILL"]

    def _arguments(self) -> list[str]:
        lines = (
            f"logoutput: {self.home}/log",
            f"internal: {self.address} port = {self.port}",
            f"external: {self.exit}",
            "clientmethod: none",
            "socksmethod: none",
            "client pass { from: 0.0.0.0/0 to: 0.0.0.0/0 log: error }",
            "socks pass { from: 0.0.0.0/0 to: 0.0.0.0/0 log: error }",
        )
        return ["-N", "1", "-p", f"{self.home}/pid", "-f", self._write("danted.conf", *lines)]

    @property
    def url_socks4(self) -> str:
        """Its URL for SOCKS4."""
        return f"socks4://{self.place}"


def start_all(proxies: Iterable[RealProxy]) -> None:
    """Start several proxies together, which takes little longer than one. Raises `ProxyFailed` after stopping all."""
    started: list[RealProxy] = []
    try:
        for proxy in proxies:
            started.append(proxy)
            proxy.launch()
        for proxy in started:
            proxy.wait()
    except BaseException:
        for proxy in started:
            proxy.stop()
        raise


@contextmanager
def running(*proxies: RealProxy) -> Iterator[tuple[RealProxy, ...]]:
    """Run these proxies while the block runs."""
    start_all(proxies)
    with ExitStack() as stack:
        for proxy in proxies:
            stack.callback(proxy.stop)
        yield proxies


def _found(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")
