"""`lycosa dht node`, `lookup` and `announce` as processes on loopback."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.cli.command import assert_one_line, lycosa
from tests.dht.e2e.nodes import ON_LOOPBACK, announce, dht_node, listening
from tests.servers.proxies import new_address

INFOHASH = "0123456789abcdef0123456789abcdef01234567"


def test_a_peer_that_one_command_announces_is_found_by_another(tmp_path: Path) -> None:
    with (
        dht_node(tmp_path / "1") as (_, first),
        dht_node(tmp_path / "2", "--bootstrap", first, bind="127.0.0.2:0"),
        dht_node(tmp_path / "3", "--bootstrap", first, bind="127.0.0.3:0"),
    ):
        join = ("--bind", "127.0.0.4:0", "--bootstrap", first, *ON_LOOPBACK)
        assert announce(3, INFOHASH, "--peer-port", 999, *join, cwd=tmp_path).returncode == 0

        hybrid = f"magnet:?xt=urn:btmh:1220{INFOHASH}{'0' * 24}&xt=urn:btih:{'1' * 40}"  # announced as version 2 only
        found = lycosa("dht", "lookup", hybrid, *join, cwd=tmp_path)
        assert (found.returncode, found.stdout) == (0, "127.0.0.4:999\n"), found.stderr
        assert found.stderr.splitlines()[-1] == "1 peer; about 0 seeds and 1 leecher (estimate, BEP 33)"


def test_a_hybrid_torrent_is_announced_in_both_swarms(tmp_path: Path) -> None:
    version_1, version_2 = "1" * 40, "2" * 64
    hybrid = f"magnet:?xt=urn:btih:{version_1}&xt=urn:btmh:1220{version_2}"
    with dht_node(tmp_path / "1") as (_, first):
        join = ("--bind", "127.0.0.4:0", "--bootstrap", first, *ON_LOOPBACK)
        announced = lycosa("dht", "announce", hybrid, "--peer-port", 999, *join, cwd=tmp_path)
        assert announced.returncode == 0, announced.stderr
        assert announced.stderr.splitlines()[-2:] == [
            f"{infohash}: 1 of 1 nodes store the peer" for infohash in (version_1, version_2[:40])
        ]
        for infohash in (version_1, version_2):
            assert lycosa("dht", "lookup", infohash, *join, cwd=tmp_path).stdout == "127.0.0.4:999\n"


def test_a_node_that_was_killed_starts_again_with_its_id_and_its_contacts(tmp_path: Path) -> None:
    state = ("--state", "saved")
    with dht_node(tmp_path / "1") as (_, first):
        join = ("--bootstrap", first)
        with dht_node(tmp_path / "2", *state, *join, bind=f"{new_address()}:0") as (process, address):
            before = listening(process)
            saved = tmp_path / "2" / "saved" / "node.json"
            process.process.send_signal(signal.SIGTERM)
            assert process.end() == 0
        assert len(json.loads(saved.read_text())["nodes"][0]["contacts"]) == 1
        with dht_node(tmp_path / "2", *state, bind=address) as (process, _):
            assert listening(process) == before
            assert "it knows no other node" not in process.stderr
            assert process.kill()
        with dht_node(tmp_path / "2", *state, bind=address) as (process, _):
            assert listening(process) == before
            assert "it knows no other node" not in process.stderr


def test_neither_metrics_nor_logs_nor_the_state_have_the_address_of_a_peer(tmp_path: Path) -> None:
    saved = tmp_path / "1" / "saved" / "node.json"
    with (
        dht_node(tmp_path / "1", "--metrics", "0", "--state", "saved") as (process, first),
        dht_node(tmp_path / "2", "--bootstrap", first, bind="127.0.0.2:0"),
    ):
        # The node of `announce` is read-only, so the first node stores its address as a peer and not as a contact.
        join = ("--bind", "127.0.0.4:0", "--bootstrap", first, *ON_LOOPBACK)
        announce(2, INFOHASH, "--peer-port", 999, *join, cwd=tmp_path)
        url = re.search(r"metrics: (http://127\.0\.0\.1:\d+/metrics)", process.stderr)
        assert url is not None
        with build_opener(ProxyHandler({})).open(url[1], timeout=20) as answer:
            page = answer.read().decode()
        process.process.send_signal(signal.SIGTERM)
        assert process.end() == 0
    assert 'lycosa_dht_peers{family="ipv4"} 1\n' in page
    assert "127.0" not in page
    assert "7f000002" in saved.read_text(), "the contact"
    for file in (each for each in (tmp_path / "1").rglob("*") if each.is_file()):  # the output, too
        for address in (b"127.0.0.4", b"7f000004", b"\x7f\0\0\4"):
            assert address not in file.read_bytes(), file


def test_one_process_runs_a_node_on_each_address(tmp_path: Path) -> None:
    options = ("--bind", "127.0.0.2:0", "--bind", "[::1]:0", "--allow-private", "::1", "--state", "saved")
    with dht_node(tmp_path / "1", *options) as (process, _):
        nodes = listening(process)
        assert len({node_id for node_id, _ in nodes}) == 3
        for _, address in nodes:
            bind = "[::1]:0" if "[" in address else "127.0.0.4:0"
            join = ("--bind", bind, "--bootstrap", address, *ON_LOOPBACK, "--allow-private", "::1")
            done = lycosa("dht", "announce", INFOHASH, "--peer-port", 9, *join, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
        process.process.send_signal(signal.SIGINT)
        assert process.end() == 130
        saved = json.loads((tmp_path / "1" / "saved" / "node.json").read_text())["nodes"]
        assert [(each["family"], each["node_id"]) for each in saved] == [
            (4, nodes[0][0]),
            (4, nodes[1][0]),
            (6, nodes[2][0]),
        ]


def test_a_state_folder_belongs_to_one_process(tmp_path: Path) -> None:
    state = ("--state", tmp_path / "saved")
    with dht_node(tmp_path / "1", *state) as (process, _):
        done = lycosa("dht", "node", "--bind", "127.0.0.1:0", *state, cwd=tmp_path)
        assert done.returncode == 3
        assert f"in use by process {process.process.pid}" in assert_one_line(done.stderr)


LOOPBACK_NODE = ("--bootstrap", "127.0.0.1:9")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lookup", "abc"), "abc: not an infohash; write 40 hexadecimal digits, or a magnet link"),
        (("lookup", INFOHASH), "no node through which to join: add --bootstrap HOST:PORT"),
        (("lookup", INFOHASH, *LOOPBACK_NODE), "--bootstrap 127.0.0.1:9: 127.0.0.1:9 is not public: on a n"),
        (("lookup", INFOHASH, "--bootstrap", "localhost"), "--bootstrap localhost: write HOST:PORT such as 192.0.2.1"),
        (("lookup", INFOHASH, "--bootstrap", "a..b:1"), "--bootstrap a..b:1: no usable address"),
        (
            ("lookup", INFOHASH, "--bootstrap", "9.9.9.9:1"),
            "--bind 127.0.0.1 is loopback, and cannot reach --bootstrap 9",
        ),
        (
            ("lookup", INFOHASH, "--bootstrap", "default"),
            "--bind 127.0.0.1 is loopback, and cannot reach --bootstrap d",
        ),
        (("lookup", INFOHASH, "--bootstrap", "a.torrent"), "--bootstrap a.torrent: no such file or directory"),
        (("node", "--bind", "127.0.0.1"), "--bind 127.0.0.1: write ADDRESS:PORT, for example"),
        (("node", "--bind", "192.0.2.1:0"), "--bind 192.0.2.1:0: cannot listen there: cannot assign requested address"),
        (("node", "--state", "/dev/null"), "--state /dev/null: not a folder"),
        (("node", "--allow-private", "home"), "--allow-private home: not a network; write for example 10.0.0.0/8"),
        (("announce", INFOHASH), "announce needs --peer-port"),
        (("node", "--bind", "127.0.0.1:0", "--metrics", "x"), "--metrics x: write a port such as 9464"),
    ],
)
def test_a_mistake_is_reported_in_one_line(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = lycosa("dht", *arguments, cwd=tmp_path)
    assert assert_one_line(done.stderr).startswith(message), done.stderr
    assert done.returncode in {2, 3}


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with dht_node(tmp_path / "1") as (_, address):
        done = lycosa("dht", "node", "--bind", address, cwd=tmp_path)
        assert assert_one_line(done.stderr) == f"--bind {address}: cannot listen there: address already in use"
        assert done.returncode == 3


@pytest.mark.prove  # it waits ten seconds for the answer
def test_a_lookup_without_answers_fails(tmp_path: Path) -> None:
    done = lycosa("dht", "lookup", INFOHASH, *LOOPBACK_NODE, *ON_LOOPBACK, cwd=tmp_path)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("lycosa: no node answered: check --bootstrap")
