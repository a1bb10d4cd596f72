"""`lycosa proxies serve` as a process (P6): it leases from a pool in a folder, and shuts down in order."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import ProxyHandler, build_opener, urlopen

import pytest

from lycosa.cli.main import main
from tests.cli.command import Running, lycosa, start_command
from tests.servers.misbehaving import running as sites
from tests.servers.proxies import Microsocks, Tinyproxy, running

pytestmark = pytest.mark.proxies

SERVES = re.compile(rb"Forward proxy: http://127\.0\.0\.1:(\d+)")
OPEN = ("--ports", "1-65535", "--allow-private", "*")


def port_of(process: Running) -> int:
    assert process.until(lambda: SERVES.search(process.stdout) is not None), process.stderr
    found = SERVES.search(process.stdout)
    assert found
    return int(found[1])


@contextmanager
def serving(cwd: Path, *options: object) -> Iterator[tuple[Running, int]]:
    with start_command("proxies", "serve", "--pool", "pool", "--bind", "127.0.0.1:0", *options, cwd=cwd) as process:
        yield process, port_of(process)


def get(port: int, url: str) -> bytes:
    with build_opener(ProxyHandler({"http": f"http://127.0.0.1:{port}"})).open(url, timeout=20) as answer:
        return answer.read()


def states(cwd: Path) -> list[dict[str, object]]:
    done = lycosa("proxies", "list", "--pool", "pool", "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def tunnel(port: int, to: str) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=20)
    client.sendall(f"CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n".encode())
    assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
    return client


def echo_server() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def test_requests_use_a_pool_in_a_folder_and_their_results_are_recorded_in_it(tmp_path: Path):
    proxies = (Tinyproxy(user="ann", password="secret"), Microsocks())
    with running(*proxies), sites() as site:
        (tmp_path / "list").write_text("\n".join(each.url for each in proxies) + "\n127.0.0.1:1\n")
        assert lycosa("proxies", "add", "--pool", "pool", "list", cwd=tmp_path).returncode == 0
        with serving(tmp_path, *OPEN, "--metrics", "127.0.0.1:0") as (process, port):
            for _ in range(6):
                assert get(port, site.url("/good"))
            assert process.until(lambda: "metrics: http" in process.stderr)
            address = re.search(r"metrics: (\S+)", process.stderr)
            assert address
            page = urlopen(address[1], timeout=20).read().decode()
            assert 'lycosa_gateway_requests_total{status="200"} 6' in page
            process.process.send_signal(signal.SIGTERM)
            assert process.end() == 0
            assert "secret" not in process.stderr + page
        known = {str(each["name"]).partition("#")[0]: each for each in states(tmp_path)}
        good = [known[each.url_without_login]["good"] for each in proxies]
        assert sum(good) == 6
        assert min(good) > 0, "both are used; the faster one may be used more"
        assert known["http://127.0.0.1:1"]["state"] != "ready"


def test_an_open_tunnel_continues_after_a_signal(tmp_path: Path):
    with running(Microsocks()) as (proxy,), echo_server() as site:
        (tmp_path / "list").write_text(proxy.url + "\n")
        assert lycosa("proxies", "add", "--pool", "pool", "list", cwd=tmp_path).returncode == 0
        with serving(tmp_path, *OPEN, "--grace", "30") as (process, port):
            client = tunnel(port, f"127.0.0.1:{site.getsockname()[1]}")
            there, _ = site.accept()
            process.process.send_signal(signal.SIGINT)
            assert process.until(lambda: not accepts(port))
            client.sendall(b"still here")
            assert there.recv(100) == b"still here"
            client.close()
            there.close()
            assert process.end() == 130


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=20).close()
    except OSError:
        return False
    return True


def test_a_second_signal_ends_tunnels_at_once(tmp_path: Path):
    with running(Microsocks()) as (proxy,), echo_server() as site:
        (tmp_path / "list").write_text(proxy.url + "\n")
        assert lycosa("proxies", "add", "--pool", "pool", "list", cwd=tmp_path).returncode == 0
        with serving(tmp_path, *OPEN, "--grace", "300") as (process, port):
            client = tunnel(port, f"127.0.0.1:{site.getsockname()[1]}")
            process.process.send_signal(signal.SIGTERM)
            assert process.until(lambda: not accepts(port))
            process.process.send_signal(signal.SIGTERM)
            assert process.end() == 0
            client.close()
        assert [each["state"] for each in states(tmp_path)] == ["ready"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--bind", "0.0.0.0:0"], "--bind 0.0.0.0:0 would be open to other machines: add --user NAME:PASSWORD"),
        (["--bind", "nonsense"], "--bind nonsense: write ADDRESS:PORT such as 127.0.0.1:3128"),
        (["--user", "ann"], "--user, line 1: write NAME:PASSWORD"),
        (["--users", "missing"], "--users missing: no such file or directory"),
        (["--users", "empty"], "--users empty: the file has no accounts"),
        (["--bind", "nonsense", "--users", "marked"], "--bind nonsense: write ADDRESS:PORT"),
        (["--ports", "https"], "--ports 'https': write ports such as"),
        (["--proxy-ca", "empty", "--bind", "127.0.0.1:0"], "--proxy-ca empty: not a certificate file (PEM)"),
        (["--names", "maybe"], "invalid value for '--names'"),
        (["--bind", "a..b:0"], "--bind a..b:0: no such address"),
        (["--bind", f"{'a' * 300}:0"], "--bind aaa"),
        (["--user", "ann:\udcff"], "--user, line 1: write NAME:PASSWORD"),
        (
            ["--bind", "nonsense", "--allow-private", "10.0.0.0/99"],
            "--allow-private '10.0.0.0/99': write a host",
        ),
        (
            ["--bind", "nonsense", "--allow-private", "http://x/"],
            "--allow-private 'http://x/': write a host",
        ),
    ],
)
def test_bad_usage_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbfann:secret\r\n")  # as editors on Windows write it
    assert main(["proxies", "serve", "--pool", "pool", *arguments]) == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith(f"lycosa: {line}"), stderr
    assert stderr.count("\n") == 1
