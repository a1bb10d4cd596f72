"""The nginx that other tests rely on: what it serves and logs, and that it leaves nothing behind."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from tests.conftest import ROOT, need
from tests.servers.nginx import NginxFailed, serve

pytestmark = pytest.mark.nginx


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = tmp_path / "a root"
    root.mkdir()
    (root / "index.html").write_text("<p>hello</p>" * 100)
    (root / "plain.txt").write_text("text")
    return root


def get(url: str, **headers: str) -> bytes:
    with urlopen(Request(url, headers=headers), timeout=60) as answer:
        return answer.read()


def test_requests_are_served_and_logged_in_order(site: Path):
    with serve(site, address="127.0.0.9") as server:
        assert get(server.url + "/", **{"User-Agent": 'an "agent"'}).startswith(b"<p>hello")
        get(server.url + "/plain.txt?q=1")
        with pytest.raises(HTTPError) as missing:
            get(server.url + "/none")
        missing.value.close()
        log = server.requests()
        assert [(each.uri, each.status) for each in log] == [("/", 200), ("/plain.txt?q=1", 200), ("/none", 404)]
        assert log[0].agent == 'an "agent"'
        assert server.pages() == {"/"}
        server.forget()
        get(server.url + "/plain.txt")
        assert [each.uri for each in server.requests()] == ["/plain.txt"]


def test_connections_are_kept_and_pages_compressed_on_request(site: Path):
    with serve(site, gzip=True) as server:
        connection = HTTPConnection(urlsplit(server.url).netloc, timeout=60)
        for _ in range(3):
            connection.request("GET", "/", headers={"Accept-Encoding": "gzip"})
            answer = connection.getresponse()
            assert answer.getheader("Content-Encoding") == "gzip"
            answer.read()
        connection.close()
        assert len({each.connection for each in server.requests()}) == 1


def test_no_process_and_no_file_is_left(site: Path):
    with serve(site) as server:
        get(server.url + "/")
    assert server.process.poll() is not None
    assert not server.home.exists()


def test_a_port_in_use_is_an_error(site: Path):
    with (
        serve(site) as server,
        pytest.raises(NginxFailed, match="Address already in use"),
        serve(site, port=urlsplit(server.url).port or 0),
    ):
        pass


def test_nginx_dies_with_its_parent(site: Path):
    need("setpriv (util-linux)", Path("/usr/bin/setpriv").exists())
    program = f"""
import os, pathlib, signal
from tests.servers.nginx import serve
with serve(pathlib.Path({str(site)!r})) as server:
    print(server.process.pid, server.home, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    pid, home = done.stdout.split(maxsplit=1)
    wait_for_exit(int(pid), 60.0)
    shutil.rmtree(home.strip())


def wait_for_exit(pid: int, seconds: float) -> None:
    """Wait for the end of the process by its pidfd."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([pidfd], [], [], seconds)[0], f"nginx {pid} outlived its parent"
    finally:
        os.close(pidfd)
