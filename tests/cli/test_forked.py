"""A forked command behaves like one in a new process: folder, environment, streams, exit code, end."""

from __future__ import annotations

import subprocess

import pytest

from tests.cli import forked
from tests.cli.command import LYCOSA, environment
from tests.servers.tree import grow


def run_in_new_process(words, cwd, environment, timeout_s):
    return subprocess.run(
        [*LYCOSA, *words],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [(["version"], 0), (["list"], 2), (["settings"], 0), (["crawl"], 2), (["search", "x", "--index", "no"], 3)],
)
def test_a_forked_command_behaves_like_a_new_process(tmp_path, words, code):
    (tmp_path / "lycosa.toml").write_text("delay = 7.5\n")
    variables = {**environment(), "LYCOSA_RETRIES": "9"}
    done, new = [run(words, tmp_path, variables, 60.0) for run in (forked.run, run_in_new_process)]
    assert (done.returncode, done.stdout, done.stderr) == (new.returncode, new.stdout, new.stderr)
    assert done.returncode == code
    assert words != ["settings"] or ("7.5" in done.stdout and "LYCOSA_RETRIES" in done.stdout)


def test_a_command_that_takes_too_long_is_killed(tmp_path):
    with grow(3, delay_s=60.0) as tree:
        words = ["crawl", tree.url, "--no-robots", "--state", "state", "-o", "items.jsonl"]
        with pytest.raises(subprocess.TimeoutExpired):
            forked.run(words, tmp_path, environment(), 3.0)
    # The killed process holds neither state nor file any more.
    with grow(3) as tree:
        again = ["crawl", tree.url, "--no-robots", "--state", "state", "-o", "items.jsonl", "--max-pages", "1"]
        assert "is open in process" not in forked.run(again, tmp_path, environment(), 60.0).stderr


@pytest.mark.parametrize("variables", [{"PYTHONHASHSEED": "7"}, {"LC_ALL": "C"}])
def test_variables_that_python_reads_at_start_need_a_new_process(tmp_path, variables):
    assert forked.run(["version"], tmp_path, environment(), 60.0).returncode == 0
    assert forked.run(["version"], tmp_path, {**environment(), **variables}, 60.0) is None
