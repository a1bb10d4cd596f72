"""`lycosa proxies check` and `site` with real proxies, a judge, processes on one folder, and signals (P1, P6)."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lycosa.cli.main import main
from lycosa.proxies.checking.judge_server import run_judge
from tests.cli.command import LYCOSA, environment, lycosa
from tests.servers.ports import closed_port
from tests.servers.proxies import Microsocks, Tinyproxy, running
from tests.servers.proxy import proxying

LONG_S = 60.0
KEY = "a-key-that-nobody-guesses"


Run = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command without blocking the loop."""
    for variable in [name for name in os.environ if name.startswith("LYCOSA_")]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)

    async def call(*words: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(main, ["proxies", *words, "--pool", "pool"])
        return code, *capsys.readouterr()

    return call


@pytest.mark.proxies
def test_the_results_of_a_check_are_shown_and_saved_in_the_pool(run: Run, tmp_path: Path) -> None:
    good, plain = Microsocks(user="ann", password="hunter2"), Tinyproxy()
    dead = f"127.0.0.1:{closed_port()}"

    async def story() -> None:
        async with run_judge(None) as judge, proxying() as altering:
            altering.alters = (b"e", b"3")
            (tmp_path / "list.txt").write_text(f"{good.url}\n{plain.url}\n{altering.url}\n{dead}\n")
            assert (await run("add", "list.txt"))[1] == "4 proxies added\n"
            code, out, err = await run("check", "--judge", judge.address.url, "--timeout", "30", "--json")
            assert code == 0, err
            assert err.splitlines()[-1] == "4 checked: 2 work, 1 are not fit, 1 fail"
            assert "hunter2" not in out + err
            found = {row["name"].partition("#")[0]: row for row in map(json.loads, out.splitlines())}
            assert {name: row["result"] for name, row in found.items()} == {
                f"socks5h://{good.address}:{good.port}": "works",
                plain.url: "works",
                altering.url: "not fit",
                f"http://{dead}": "fails",
            }
            assert found[plain.url]["exit_ip"] == plain.exit
            assert found[plain.url]["latency_s"] > 0
            seen = {row["name"]: row for row in map(json.loads, (await run("list", "--json"))[1].splitlines())}
            assert (seen[altering.url]["state"], seen[plain.url]["state"]) == ("dead", "ready")
            assert seen[plain.url]["exit_ip"] == plain.exit
            code, out, _ = await run("check", plain.url, "--judge", judge.address.url)
            assert (code, len(out.splitlines())) == (0, 2)
            code, _, err = await run("check", "10.0.0.9:1", "--judge", judge.address.url)
            assert (code, "the pool has no proxy 10.0.0.9:1" in err) == (2, True)
        code, _, err = await run("check")
        assert (code, len(err.splitlines())) == (3, 1), "no judge"

    with running(good, plain):
        asyncio.run(story())


def test_the_table_of_a_check_has_aligned_columns(run: Run, tmp_path: Path) -> None:
    """Rows are printed one by one, and the widest may be the last."""
    port = closed_port()
    long = f"http://{'very-' * 10}long-name.of-a-provider.example:{port}"
    others = [
        "socks5h://ann:hunter2@127.0.0.1:{}",
        "http://[::1]:{}",
        "socks4a://127.0.0.2:{}",
        "http://[fe80::1:2:3]:{}",
    ]

    async def story() -> str:
        async with run_judge(None) as judge, proxying() as good:
            (tmp_path / "list.txt").write_text("\n".join([good.url, *(each.format(port) for each in others), long]))
            assert (await run("add", "list.txt"))[0] == 0
            code, out, err = await run("check", "--judge", judge.address.url, "--timeout", "10", "--concurrency", "1")
            assert code == 0, err
            return out

    header, *rows = asyncio.run(story()).splitlines()
    assert header.split() == ["result", "latency", "carries", "anonymity", "proxy", "exit", "problem"]
    assert len(rows) == 6
    for name in ("carries", "anonymity", "proxy", "exit", "problem"):
        at = header.index(name)
        assert [row for row in rows if row[at - 1] != " " or row[at] == " "] == [], name
    assert not any("\x1b" in row or "hunter2" in row for row in [header, *rows])


@contextmanager
def site(cwd: Path, key: str = "") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run `lycosa proxies site`. Yield its process and port."""
    command = [*LYCOSA, "proxies", "site", "--pool", "pool", "--bind", "127.0.0.1:0"]
    environ = {**environment(), **({"LYCOSA_PROXY_API_KEY": key} if key else {})}
    with subprocess.Popen(
        command, cwd=cwd, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("Proxies: http://127.0.0.1:"), process.communicate()
            yield process, int(line.split("127.0.0.1:")[1].split("/")[0])
        finally:
            process.kill()


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG_S)
    try:
        connection.request(method, path, body if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_the_api_and_the_commands_share_a_pool_in_a_folder(tmp_path: Path) -> None:
    """P1: a command sees a lease of the API."""
    (tmp_path / "list.txt").write_text("http://ann:hunter2@10.0.0.1:8080 country=de\n")
    (tmp_path / "lycosa.toml").write_text(
        '[proxies.targets."shop.example"]\nrules = [{ blame = "site", body = "slow" }]\n'
    )
    assert lycosa("proxies", "add", "list.txt", "--pool", "pool", cwd=tmp_path).returncode == 0
    with site(tmp_path, KEY) as (process, port):
        key = {"Authorization": f"Bearer {KEY}"}
        assert ask(port, "POST", "/api/leases", {"target": "shop.example"})[0] == 401
        status, result = ask(port, "POST", "/api/leases", {"target": "shop.example"}, **key)
        (lease,) = result["leases"]
        assert (status, lease["url"]) == (201, "http://ann:hunter2@10.0.0.1:8080")
        explained = lycosa("proxies", "explain", "shop.example", "--json", "--pool", "pool", cwd=tmp_path)
        assert (json.loads(explained.stdout)["why"], "hunter2" in explained.stdout) == ("leased", False)
        outcome = {"outcomes": [{"status": 200, "body": "please slow down"}]}
        assert ask(port, "POST", f"/api/leases/{lease['id']}/release", outcome, **key)[0] == 200
        _, result = ask(port, "GET", "/api/explain?target=shop.example", **key)
        assert result["verdicts"][0]["why"] == "cooling", "the rules of the project decide"
        second = lycosa("proxies", "site", "--pool", "pool", "--bind", f"127.0.0.1:{port}", cwd=tmp_path)
        assert (second.returncode, f"port {port} is in use" in second.stderr) == (3, True)
        stop(process, signal.SIGINT, 130)


def stop(process: subprocess.Popen[str], number: signal.Signals, code: int) -> None:
    process.send_signal(number)
    assert process.wait(LONG_S) == code
    assert process.stderr is not None
    assert process.stderr.read() == ""


def test_without_a_key_only_this_machine_has_access(tmp_path: Path) -> None:
    assert lycosa("proxies", "add", "10.0.0.1:8080", "--pool", "pool", cwd=tmp_path).returncode == 0
    with site(tmp_path) as (process, port):
        assert ask(port, "GET", "/api/targets") == (200, {"targets": []})
        assert ask(port, "GET", "/api/targets", Host="evil.example")[0] == 403
        stop(process, signal.SIGTERM, 0)
