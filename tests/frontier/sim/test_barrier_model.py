"""The models of a shared crawl, checked by Spin (C7): correct within bounds, and broken variants are refuted.

Larger bounds, which take minutes, run with `prove`. The numbers of states are in docs/models/README.md.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

MODELS = ROOT / "docs" / "models"
FINISH, JOINING, COMMIT = MODELS / "finish.pml", MODELS / "joining.pml", MODELS / "commit.pml"
CHECK_S_MAX = 900
SAFETY = ["-DSAFETY", "-DNOCLAIM"]
LIVENESS = ["-DNFAIR=3"]
"""Weak fairness for all processes of the model (the number is the size of a counter in bits)."""

pytestmark = pytest.mark.spin

QUIET = "-DCRASHES=0 -DPAUSES=0"
KILL = "-DCRASHES=1 -DPAUSES=0"
PAUSE = "-DCRASHES=0 -DPAUSES=1"
CHAIN = "-DCHAIN -DURLS=4"
THREE = "-DPARTITIONS=3"

TOO_EARLY = "assertion violated .*state"
WRONG_ARRIVALS = "assertion violated .*arrived"
NEVER_ENDS = "acceptance cycle"
ITEM_LOST = r"assertion violated +item_committed"
ITEM_TWICE = r"assertion violated +!\(item_committed"


def check(folder, bounds: str, mode: list[str], model: Path = FINISH) -> str:
    """Search all histories within the bounds; return the errors that Spin found, "" for none."""

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=CHECK_S_MAX, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    run("spin", "-a", *bounds.split(), str(model))
    run("gcc", "-O1", "-w", "-DCOLLAPSE", "-DMEMLIM=8000", *mode, "-o", "pan", "pan.c")
    output = run("./pan", "-m100000", *([] if mode is SAFETY else ["-a", "-f"]))
    errors = re.findall(r"^pan:1: (.*)", output, re.MULTILINE)
    assert "errors: 0" in output or errors, output
    assert not re.search(r"max search depth too small|out of memory|memory limit", output), output
    return " ".join(errors)


def prove_only(*values):
    """Return parameters that only run with `make prove`, since each compiles a model."""
    return pytest.param(*values, marks=pytest.mark.prove)


@pytest.mark.parametrize(
    "bounds", [KILL, prove_only(PAUSE), f"{QUIET} {CHAIN} -DWORKERS=3", prove_only(f"{QUIET} {THREE} -DURLS=4")]
)
def test_no_worker_finishes_too_early(tmp_path, bounds):
    assert check(tmp_path, bounds, SAFETY) == ""


@pytest.mark.parametrize(
    "bounds", [f"{KILL} -DURLS=2", prove_only(f"{PAUSE} -DURLS=2"), f"{QUIET} {CHAIN}", prove_only(f"{QUIET} {THREE}")]
)
def test_every_worker_finishes(tmp_path, bounds):
    assert check(tmp_path, bounds, LIVENESS) == ""


@pytest.mark.parametrize(
    ("variant", "mode", "expected"),
    [
        ("ONE_ROUND", SAFETY, TOO_EARLY),
        prove_only("ARRIVED_NOT_COMPARED", SAFETY, TOO_EARLY),
        prove_only("OUTBOX_NOT_COUNTED", SAFETY, TOO_EARLY),
        ("UNCOMMITTED_NOT_COUNTED", SAFETY, TOO_EARLY),
        prove_only("TRIMS_BEFORE_PUSHING", SAFETY, TOO_EARLY),
        prove_only("NUMBERS_NOT_COMPARED", SAFETY, WRONG_ARRIVALS),
        prove_only("READS_FROM_THE_MIDDLE", SAFETY, WRONG_ARRIVALS),
        prove_only("NUMBERS_RESTART", SAFETY, TOO_EARLY),
        prove_only("KILLED_WORKERS_NEVER_EXPIRE", LIVENESS, NEVER_ENDS),
        ("CONTINUES_AFTER_A_LOST_REPLY", LIVENESS, NEVER_ENDS),
    ],
)
def test_broken_termination_detection_is_refuted(tmp_path, variant, mode, expected):
    assert f"#ifdef {variant}\n" in FINISH.read_text(encoding="utf-8")
    assert re.search(expected, check(tmp_path, f"{KILL} {CHAIN} -D{variant}", mode))


@pytest.mark.parametrize("kills", [0, pytest.param(1, marks=pytest.mark.prove)])
def test_a_worker_that_expires_while_it_joins_keeps_no_url(tmp_path, kills):
    assert check(tmp_path, f"-DKILLS={kills}", LIVENESS, JOINING) == ""
    assert NEVER_ENDS in check(tmp_path, f"-DKILLS={kills} -DFORGETS_EXPIRED_NAMES", LIVENESS, JOINING)


TWO = "-DURLS=2 -DREPEATS=0"


@pytest.mark.parametrize(
    "bounds",
    [
        "-DURLS=2 -DPAUSES=0",
        f"-DREPEATS=0 -DKILLS=0 -DPAUSES=0 {THREE}",
        prove_only(f"{TWO} -DKILLS=1 -DPAUSES=1"),
        prove_only("-DKILLS=0"),
        prove_only("-DPAUSES=0"),
        prove_only(f"-DREPEATS=0 -DPAUSES=0 {THREE}"),
        prove_only(f"-DREPEATS=0 -DKILLS=0 {THREE}"),
    ],
)
def test_a_commit_applies_in_all_partitions_or_in_none(tmp_path, bounds):
    assert check(tmp_path, bounds, SAFETY, COMMIT) == ""


@pytest.mark.parametrize("bounds", [f"{TWO} -DPAUSES=0", prove_only(f"{TWO} -DKILLS=0"), prove_only(TWO)])
def test_every_prepared_commit_is_decided(tmp_path, bounds):
    assert check(tmp_path, bounds, LIVENESS, COMMIT) == ""


@pytest.mark.parametrize(
    ("variant", "mode", "expected"),
    [
        ("COMMITS_ALL_PREPARED", SAFETY, ITEM_LOST),
        prove_only("REVERTS_ALL_PREPARED", SAFETY, ITEM_TWICE),
        prove_only("DECIDES_BEFORE_PREPARING", SAFETY, ITEM_TWICE),
        ("LEAVE_APPLIES_TWICE", SAFETY, ITEM_TWICE),
        prove_only("REPEATS_ARE_APPLIED", SAFETY, ITEM_LOST),
        ("LATE_MESSAGES_EXPIRE_THEIR_SENDER", SAFETY, ITEM_TWICE),
        prove_only("FORGOTTEN_BEFORE_ANNOUNCED", LIVENESS, NEVER_ENDS),
    ],
)
def test_a_broken_commit_is_refuted(tmp_path, variant, mode, expected):
    assert re.search(rf"^#(ifdef |elif defined\(){variant}\b", COMMIT.read_text(encoding="utf-8"), re.MULTILINE)
    bounds = f"{TWO} -DPAUSES=1" if mode is LIVENESS else "-DPAUSES=0"
    assert re.search(expected, check(tmp_path, f"{bounds} -D{variant}", mode, COMMIT))


@pytest.mark.prove
@pytest.mark.parametrize(
    "bounds",
    [
        "-DCRASHES=1 -DPAUSES=1",
        "-DCRASHES=2 -DPAUSES=0",
        "-DCRASHES=0 -DPAUSES=2",
        f"{KILL} {CHAIN}",
        f"{KILL} {THREE}",
        f"{KILL} -DWORKERS=3",
    ],
)
def test_no_worker_finishes_too_early_within_larger_bounds(tmp_path, bounds):
    assert check(tmp_path, bounds, SAFETY) == ""


@pytest.mark.prove
@pytest.mark.parametrize("bounds", [KILL, PAUSE, f"{PAUSE} {THREE}", f"{QUIET} -DWORKERS=3"])
def test_every_worker_finishes_within_larger_bounds(tmp_path, bounds):
    assert check(tmp_path, bounds, LIVENESS) == ""
