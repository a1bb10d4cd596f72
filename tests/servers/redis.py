"""Real Redis servers as child processes, on loopback, each in a temporary folder; they die with their parent.

    with redis_server(append="always", password="secret") as server:
        ... server.url ...
        server.kill()
        server.start()                        # on the same port, with its data (or with keep=False without)

    with redis_cluster() as cluster:          # three masters, a replica for each
        ... cluster.url, cluster.nodes ...

    with redis_sentinels() as watched:        # a master, a replica, and three Sentinels that watch them
        ... watched.url, watched.master() ...

With `program="valkey"` the servers are those of Valkey.

`python -m tests.servers.redis` serves an empty one until Ctrl-C.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.servers.children import suspend
from tests.servers.ports import ReservedPort

ADDRESS = "127.0.0.1"
START_MAX_S = 60.0
STOP_MAX_S = 10.0
CLUSTER_MAX_S = 60.0
MASTERS, REPLICAS = 3, 3
WATCHED = "shop"
"""The name under which the Sentinels know their master."""

SENTINEL = """
bind {address}
port {port}
sentinel monitor {name} {address} {master} {quorum}
sentinel down-after-milliseconds {name} 700
sentinel failover-timeout {name} 3000
"""


class RedisFailed(Exception):
    """A program is missing, or a server did not start."""


class RedisServer:
    """A server that can be stopped and started again. `url` contains its password; `ca` is the certificate if it
    uses TLS.
    """

    def __init__(
        self,
        home: Path,
        port: int,
        options: dict[str, Any],
        *,
        password: str = "",
        tls: bool = False,
        program: str = "redis",
    ) -> None:
        self.home, self.port, self.password, self.tls = home, port, password, tls
        self.ca = home / "server.crt"
        self.process: subprocess.Popen[bytes] | None = None
        self._options = options
        self.is_sentinel = False
        self.program = program
        self.environment: dict[str, str] = {}

    @property
    def url(self) -> str:
        """The URL of database 0."""
        login = f":{self.password}@" if self.password else ""
        return f"redis{'s' if self.tls else ''}://{login}{ADDRESS}:{self.port}/0"

    def start(self, *, keep: bool = True) -> None:
        """Start it, with its previous data or empty. Raises RedisFailed."""
        if not keep:
            for path in (self.home / "appendonlydir", self.home / "dump.rdb"):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        words = ["sentinel.conf", "--sentinel"] if self.is_sentinel else _words(self._options)
        command = [f"{self.program}-server", *words]
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.home,
                env=os.environ | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_until_it_answers()

    def stop(self) -> None:
        """Terminate it, so that it saves its data if it is configured to."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop it with SIGSTOP, with its connections open, until `resume`."""
        assert self.process
        suspend(self.process.pid)

    def resume(self) -> None:
        """Continue it with SIGCONT."""
        assert self.process
        self.process.send_signal(signal.SIGCONT)

    def fail(self, replica: RedisServer, behind_s: float) -> None:
        """Kill it, leaving a replica that lacks the writes of the last `behind_s` seconds."""
        with self.losing(replica):
            time.sleep(behind_s)

    @contextmanager
    def losing(self, replica: RedisServer) -> Iterator[None]:
        """Kill it after the block, leaving a replica that has the earlier writes, but none from within the block."""
        written = self._offset("master_repl_offset")
        _wait_for(lambda: replica._offset("slave_repl_offset") >= written)
        replica.pause()
        self.cli("CLIENT", "KILL", "TYPE", "replica")
        yield
        self.kill()
        replica.resume()

    def _offset(self, name: str) -> int:
        """Return a replication offset in bytes."""
        lines = self.cli("INFO", "replication").splitlines()
        return next(int(line.partition(":")[2]) for line in lines if line.startswith(f"{name}:"))

    def cli(self, *words: str) -> str:
        """Run a command and return its output. Raises RedisFailed."""
        login = ["-a", self.password, "--no-auth-warning"] if self.password else []
        tls = ["--tls", "--cacert", str(self.ca)] if self.tls else []
        command = [f"{self.program}-cli", "-h", ADDRESS, "-p", str(self.port), *login, *tls, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CLUSTER_MAX_S, check=False)
        if done.returncode:
            raise RedisFailed(f"{self.program}-cli {' '.join(words)}: {(done.stdout + done.stderr).strip()[-500:]}")
        return done.stdout.strip()

    def _end(self, signal_number: signal.Signals) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal_number)
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(STOP_MAX_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_MAX_S
        while time.monotonic() < deadline and self.process and self.process.poll() is None:
            with suppress(RedisFailed):
                if self.cli("PING") == "PONG":
                    return
            time.sleep(0.01)
        self._end(signal.SIGKILL)
        raise RedisFailed(
            f"{self.program}-server did not start: {(self.home / 'log').read_text(errors='replace')[-500:]}"
        )


class RedisCluster:
    """A cluster of six servers. `url` names all of them."""

    def __init__(self, nodes: list[RedisServer]) -> None:
        self.nodes = nodes

    @property
    def url(self) -> str:
        """The URL of the cluster."""
        return f"redis+cluster://{','.join(f'{ADDRESS}:{node.port}' for node in self.nodes)}"

    def owner(self, key: str) -> RedisServer:
        """Return the master that has this key now."""
        slot = int(self.nodes[0].cli("CLUSTER", "KEYSLOT", key))
        for line in next(node for node in self.nodes if node.process).cli("CLUSTER", "NODES").splitlines():
            _, address, flags, _, _, _, _, _, *ranges = line.split()
            if "master" in flags and "fail" not in flags and any(_holds(each, slot) for each in ranges):
                port = int(address.partition("@")[0].rpartition(":")[2])
                return next(node for node in self.nodes if node.port == port)
        raise RedisFailed(f"no master has slot {slot}")

    def replica_of(self, master: RedisServer) -> RedisServer:
        """Return the replica of a master."""
        line = next(each for each in master.cli("INFO", "replication").splitlines() if each.startswith("slave0:"))
        return next(node for node in self.nodes if f"port={node.port}," in line)

    def is_complete(self) -> bool:
        """Whether all slots are served and all replicas follow their masters."""
        states = [node.cli("CLUSTER", "INFO") + node.cli("INFO", "replication") for node in self.nodes if node.process]
        return all(
            "cluster_state:ok" in state and ("role:master" in state or "master_link_status:up" in state)
            for state in states
        )


class WatchedRedis:
    """A master, its replica, and Sentinels that may fail over. `url` names the Sentinels."""

    def __init__(self, nodes: list[RedisServer], sentinels: list[RedisServer]) -> None:
        self.nodes = nodes
        self.sentinels = sentinels

    @property
    def url(self) -> str:
        """The URL of the Sentinels."""
        return f"redis+sentinel://{','.join(f'{ADDRESS}:{each.port}' for each in self.sentinels)}/{WATCHED}/0"

    def master(self) -> RedisServer:
        """Return the current master according to the Sentinels."""
        port = int(self.sentinels[0].cli("SENTINEL", "GET-MASTER-ADDR-BY-NAME", WATCHED).split()[1])
        return next(node for node in self.nodes if node.port == port)

    def is_complete(self) -> bool:
        """Whether the replica follows, and all Sentinels know it and each other."""
        others = f"num-other-sentinels\n{len(self.sentinels) - 1}\n"
        states = [each.cli("SENTINEL", "MASTER", WATCHED) for each in self.sentinels]
        up = "master_link_status:up" in self.nodes[1].cli("INFO", "replication")
        return up and all("num-slaves\n1\n" in each and others in each for each in states)


@contextmanager
def redis_server(
    *,
    password: str = "",
    append: str = "",
    maxmemory: str = "",
    policy: str = "noeviction",
    tls: bool = False,
    environment: Mapping[str, str] | None = None,
    program: str = "redis",
    **options: Any,
) -> Iterator[RedisServer]:
    """Run a server while the block runs. `append` is an appendfsync policy; `options` are settings of redis.conf."""
    settings = {"bind": ADDRESS, "save": "", "daemonize": "no", "databases": 512, "enable-debug-command": "yes"}
    settings |= {"repl-diskless-sync-delay": 0}  # instead of waiting five seconds for further replicas
    settings |= {"requirepass": password} if password else {}
    settings |= {"appendonly": "yes", "appendfsync": append} if append else {}
    settings |= {"maxmemory": maxmemory, "maxmemory-policy": policy} if maxmemory else {}
    settings |= {name.replace("_", "-"): value for name, value in options.items()}
    home = Path(tempfile.mkdtemp(prefix="lycosa-redis-"))
    ports = ExitStack()
    port = ports.enter_context(ReservedPort(ADDRESS)).number
    server = RedisServer(home, port, settings, password=password, tls=tls, program=program)
    server.environment = dict(environment or {})
    try:
        if not find_redis(program):
            raise RedisFailed(f"it is not installed: apt-get install {program}-server")
        if tls:
            _certify(home)
            settings |= {"tls-cert-file": "server.crt", "tls-key-file": "server.key", "tls-ca-cert-file": "server.crt"}
            settings |= {"tls-auth-clients": "no"}
        settings |= {"port": 0, "tls-port": port} if tls else {"port": port}
        if "cluster-enabled" in settings:
            settings["cluster-port"] = ports.enter_context(ReservedPort(ADDRESS)).number
        server.start()
        yield server
    finally:
        server._end(signal.SIGKILL)
        ports.close()
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def redis_cluster(**options: Any) -> Iterator[RedisCluster]:
    """Run three masters with one replica each while the block runs, with options like `redis_server`. Raises
    RedisFailed.
    """
    with _many(MASTERS + REPLICAS, {"cluster_enabled": "yes", "cluster_node_timeout": 1000} | options) as nodes:
        addresses = [f"{ADDRESS}:{node.port}" for node in nodes]
        nodes[0].cli("--cluster", "create", *addresses, "--cluster-replicas", "1", "--cluster-yes")
        cluster = RedisCluster(nodes)
        _wait_for(cluster.is_complete)
        yield cluster


@contextmanager
def redis_sentinels(*, count: int = 3, program: str = "redis", **options: Any) -> Iterator[WatchedRedis]:
    """Run a master, a replica and some Sentinels while the block runs. Raises RedisFailed."""
    with _many(2, options | {"program": program}) as nodes:
        nodes[1].cli("REPLICAOF", ADDRESS, str(nodes[0].port))
        _wait_for(lambda: "master_link_status:up" in nodes[1].cli("INFO", "replication"))
        with _sentinels(count, nodes[0].port, program) as sentinels:
            watched = WatchedRedis(nodes, sentinels)
            _wait_for(watched.is_complete)
            yield watched


@contextmanager
def _sentinels(count: int, master: int, program: str) -> Iterator[list[RedisServer]]:
    sentinels: list[RedisServer] = []
    ports = ExitStack()
    try:
        for _ in range(count):
            home = Path(tempfile.mkdtemp(prefix="lycosa-sentinel-"))
            port = ports.enter_context(ReservedPort(ADDRESS)).number
            sentinels.append(RedisServer(home, port, {}, program=program))
            parameters = {"address": ADDRESS, "port": port, "master": master, "quorum": count // 2 + 1}
            (home / "sentinel.conf").write_text(SENTINEL.format(name=WATCHED, **parameters))
            sentinels[-1].is_sentinel = True
            sentinels[-1].start()
        yield sentinels
    finally:
        for each in sentinels:
            each._end(signal.SIGKILL)
            shutil.rmtree(each.home, ignore_errors=True)
        ports.close()


@contextmanager
def _many(count: int, options: dict[str, Any]) -> Iterator[list[RedisServer]]:
    if not count:
        yield []
        return
    with redis_server(**options) as server, _many(count - 1, options) as others:
        yield [server, *others]


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + CLUSTER_MAX_S
    while not condition():
        if time.monotonic() > deadline:
            raise RedisFailed("the servers did not find each other")
        time.sleep(0.05)


def find_redis(program: str = "redis") -> bool:
    """Whether the programs of Redis or Valkey are installed."""
    return all(shutil.which(f"{program}-{part}") for part in ("server", "cli"))


def _words(options: dict[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        yield from (f"--{name}", str(value))


def _certify(home: Path) -> None:
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "server.key"]
    subject = ["-subj", f"/CN={ADDRESS}", "-addext", f"subjectAltName=IP:{ADDRESS}"]
    command = ["openssl", "req", "-x509", *key, "-out", "server.crt", "-days", "2", *subject]
    subprocess.run(command, cwd=home, check=True, capture_output=True, timeout=30)


def _holds(slots: str, slot: int) -> bool:
    first, _, last = slots.partition("-")
    return first.isdigit() and int(first) <= slot <= int(last or first)


def main() -> None:
    """Serve until Ctrl-C."""
    with suppress(KeyboardInterrupt), redis_server() as server:
        print(server.url, flush=True)
        assert server.process
        server.process.wait()


if __name__ == "__main__":
    main()
