"""`bench/running.py`: the options of the benchmarks of torrents, and the folders in which they work."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.bench.conftest import programs


@pytest.fixture(autouse=True, scope="module")
def running():
    with programs("running") as imported:
        yield imported.running


def chosen(running, monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["bench", *arguments])
    return running.read_torrent_options(running.torrent_options("A benchmark."))


def test_a_quick_run_has_few_torrents_and_is_not_written(running, monkeypatch, capsys):
    assert chosen(running, monkeypatch, "--torrents", "3_000").torrents == 3_000
    assert chosen(running, monkeypatch, "--quick").torrents == 20_000
    with pytest.raises(SystemExit):
        chosen(running, monkeypatch, "--quick", "--write")
    assert "leave out --quick" in capsys.readouterr().err


def test_a_folder_is_kept_if_it_is_named(running, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with running.kept(tmp_path / "mine" / "too") as folder:
        (folder / "file").write_bytes(b"12345")
    with running.kept() as made:
        assert made.parent == tmp_path
        (made / "file").touch()
    assert not made.exists()
    assert running.bytes_in(tmp_path) == 5


def test_the_memory_of_child_processes_counts(running):
    code = "data = bytearray(b'x') * 60_000_000; print(flush=True); input()"
    with running.MemoryWatch() as memory:
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            while memory.peak_mb < 60 and not child.poll():
                time.sleep(0.01)
            child.communicate(b"\n")
    assert memory.peak_mb > 60
