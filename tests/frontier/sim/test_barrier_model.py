"""The models of a shared crawl, checked by Spin (C7): what is right within bounds, and what is broken is refuted.

The bounds of a proof, what takes minutes, behind `prove`. The numbers of states are in docs/models/README.md.
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
"""Weak fairness, for up to as many processes as the model has (the number is a size, in bits of a counter)."""

pytestmark = pytest.mark.spin

TINY = "-DCRASHES=0 -DPAUSES=0"
KILL = "-DCRASHES=1 -DPAUSES=0"
PAUSE = "-DCRASHES=0 -DPAUSES=1"
CHAIN = "-DCHAIN -DURLS=4"
THREE = "-DPARTITIONS=3"

TOO_EARLY = "assertion violated .*state"
NOT_ONCE = "assertion violated .*arrived"
FOR_EVER = "acceptance cycle"
ITEM_LOST = r"assertion violated +kept"
ITEM_TWICE = r"assertion violated +!\(kept"


def check(folder, bounds: str, how: list[str], model: Path = FINISH) -> str:
    """Search all histories within the bounds; return what Spin found wrong, "" for nothing."""

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=CHECK_S_MAX, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    run("spin", "-a", *bounds.split(), str(model))
    run("gcc", "-O1", "-w", "-DCOLLAPSE", "-DMEMLIM=8000", *how, "-o", "pan", "pan.c")
    said = run("./pan", "-m100000", *([] if how is SAFETY else ["-a", "-f"]))
    wrong = re.findall(r"^pan:1: (.*)", said, re.MULTILINE)
    assert "errors: 0" in said or wrong, said
    assert not re.search(r"max search depth too small|out of memory|memory limit", said), said
    return " ".join(wrong)


def proved(*values):
    """Return parameters that only `make prove` takes: each costs a run of the compiler."""
    return pytest.param(*values, marks=pytest.mark.prove)


@pytest.mark.parametrize(
    "bounds", [KILL, proved(PAUSE), f"{TINY} {CHAIN} -DWORKERS=3", proved(f"{TINY} {THREE} -DURLS=4")]
)
def test_nobody_finishes_too_early(tmp_path, bounds):
    assert check(tmp_path, bounds, SAFETY) == ""


@pytest.mark.parametrize(
    "bounds", [f"{KILL} -DURLS=2", proved(f"{PAUSE} -DURLS=2"), f"{TINY} {CHAIN}", proved(f"{TINY} {THREE}")]
)
def test_everybody_finishes(tmp_path, bounds):
    assert check(tmp_path, bounds, LIVENESS) == ""


@pytest.mark.parametrize(
    ("variant", "how", "found"),
    [
        ("ONE_ROUND", SAFETY, TOO_EARLY),
        proved("ARRIVED_NOT_COMPARED", SAFETY, TOO_EARLY),
        proved("OUTBOX_NOT_COUNTED", SAFETY, TOO_EARLY),
        ("UNCOMMITTED_NOT_COUNTED", SAFETY, TOO_EARLY),
        proved("TRIMS_BEFORE_IT_PUSHES", SAFETY, TOO_EARLY),
        proved("NUMBERS_NOT_COMPARED", SAFETY, NOT_ONCE),
        proved("READS_FROM_THE_MIDDLE", SAFETY, NOT_ONCE),
        proved("NUMBERS_START_AGAIN", SAFETY, TOO_EARLY),
        proved("THE_DEAD_ARE_NOT_BURIED", LIVENESS, FOR_EVER),
        ("GOES_ON_AFTER_A_LOST_REPLY", LIVENESS, FOR_EVER),
    ],
)
def test_a_broken_barrier_is_refuted(tmp_path, variant, how, found):
    assert f"#ifdef {variant}\n" in FINISH.read_text(encoding="utf-8")
    assert re.search(found, check(tmp_path, f"{KILL} {CHAIN} -D{variant}", how))


@pytest.mark.parametrize("kills", [0, pytest.param(1, marks=pytest.mark.prove)])
def test_what_was_buried_while_it_joined_holds_nothing_up(tmp_path, kills):
    assert check(tmp_path, f"-DKILLS={kills}", LIVENESS, JOINING) == ""
    assert FOR_EVER in check(tmp_path, f"-DKILLS={kills} -DFORGETS_THE_BURIED", LIVENESS, JOINING)


TWO = "-DURLS=2 -DTWINS=0"


@pytest.mark.parametrize(
    "bounds",
    [
        "-DURLS=2 -DPAUSES=0",
        f"-DTWINS=0 -DKILLS=0 -DPAUSES=0 {THREE}",
        proved(f"{TWO} -DKILLS=1 -DPAUSES=1"),
        proved("-DKILLS=0"),
        proved("-DPAUSES=0"),
        proved(f"-DTWINS=0 -DPAUSES=0 {THREE}"),
        proved(f"-DTWINS=0 -DKILLS=0 {THREE}"),
    ],
)
def test_a_commit_holds_everywhere_or_nowhere(tmp_path, bounds):
    assert check(tmp_path, bounds, SAFETY, COMMIT) == ""


@pytest.mark.parametrize("bounds", [f"{TWO} -DPAUSES=0", proved(f"{TWO} -DKILLS=0"), proved(TWO)])
def test_nothing_stays_prepared_for_ever(tmp_path, bounds):
    assert check(tmp_path, bounds, LIVENESS, COMMIT) == ""


@pytest.mark.parametrize(
    ("variant", "how", "found"),
    [
        ("THE_PREPARED_COUNT", SAFETY, ITEM_LOST),
        proved("THE_PREPARED_DO_NOT_COUNT", SAFETY, ITEM_TWICE),
        proved("DECIDES_BEFORE_IT_PREPARES", SAFETY, ITEM_TWICE),
        ("A_LEAVE_COUNTS_TWICE", SAFETY, ITEM_TWICE),
        proved("REPEATS_ARE_HEARD", SAFETY, ITEM_LOST),
        ("THE_LATE_ARE_BURIED", SAFETY, ITEM_TWICE),
        proved("KNOWN_BEFORE_IT_IS_TOLD", LIVENESS, FOR_EVER),
    ],
)
def test_a_broken_commit_is_refuted(tmp_path, variant, how, found):
    assert re.search(rf"^#(ifdef |elif defined\(){variant}\b", COMMIT.read_text(encoding="utf-8"), re.MULTILINE)
    bounds = f"{TWO} -DPAUSES=1" if how is LIVENESS else "-DPAUSES=0"
    assert re.search(found, check(tmp_path, f"{bounds} -D{variant}", how, COMMIT))


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
def test_nobody_finishes_too_early_in_larger_bounds(tmp_path, bounds):
    assert check(tmp_path, bounds, SAFETY) == ""


@pytest.mark.prove
@pytest.mark.parametrize("bounds", [KILL, PAUSE, f"{PAUSE} {THREE}", f"{TINY} -DWORKERS=3"])
def test_everybody_finishes_in_larger_bounds(tmp_path, bounds):
    assert check(tmp_path, bounds, LIVENESS) == ""
