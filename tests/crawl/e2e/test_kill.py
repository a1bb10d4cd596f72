"""kill -9 and Ctrl-C at any moment: every page is written and indexed exactly once, and a restart is quick (C1, F4).

The bound on pages fetched again, "K x (concurrency + acks of one commit window)", is computed in `refetches_max`. The
server answers after `DELAY_S`, and a commit window (0.1 s) is shorter than this, so each of the crawler's transfers
ends at most once in a commit window. So a kill costs at most the transfers under way, and as many pages again that were
settled but not yet committed. The number of these settled pages is never more than the window's own limit of acks.
"""

from __future__ import annotations

import math
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from lycosa.app.search import open_index
from lycosa.config import Settings
from tests.cli.command import (
    AT_ONCE_S,
    END_MAX_S,
    PATIENT,
    Running,
    assert_exactly_once,
    assert_indexed_once,
    assert_one_line,
    interrupt,
    items,
    lycosa,
    start_command,
)
from tests.conftest import PROVE
from tests.servers.tree import Tree, grow, links

DELAY_S = 0.2
PAGES = 3000 if PROVE else 800
LIFETIMES_S = (0.5, 1.5) if PROVE else (0.2, 0.6)
"""Bounds of the time from the first fetch of a run to its kill; short times need fewer pages for 20 kills."""
MEGABYTES = 1_000_000
"""More than this number of bytes is written without a commit before the kill."""
KILLS = 20
CONCURRENCY = 16
RESUME_MAX_S = 5.0
"""From the start of the process to its first fetch, in CPU time: the machine may have other load, or be slow."""
FAST = ("--concurrency", CONCURRENCY, "--concurrency-per-host", CONCURRENCY)


def command(tree: Tree, *more: object) -> list[object]:
    return ["crawl", tree.url, "--state", "state", "-o", "items.jsonl", "--index", "index", *FAST, *more]


def refetches_max(kills: int) -> int:
    ends_in_a_window = CONCURRENCY * (int(Settings().commit_every / DELAY_S) + 1)
    return kills * (CONCURRENCY + min(Settings().commit_acks, ends_in_a_window))


def first_fetch(run: Running, tree: Tree, hits_before: int) -> float | None:
    """Wait for the first fetch of this run, including robots.txt. Return its time, or None if the run ended before."""
    size = tree.hit_bytes()
    if len(tree.hits()) == hits_before and not run.until(lambda: tree.hit_bytes() > size):
        return None
    return tree.hits()[hits_before].at


def fetches(tree: Tree) -> Counter[str]:
    counts = Counter(hit.path for hit in tree.hits())
    counts.pop("/robots.txt", None)
    return counts


def assert_complete(tree: Tree, cwd: Path) -> None:
    assert_exactly_once([item["url"] for item in items(cwd / "items.jsonl")], tree.urls())
    assert_indexed_once(cwd / "index", tree)


def finish(tree: Tree, cwd: Path, *more: object) -> None:
    """Run the command to its end, then once more: the second run has nothing to do."""
    at_most_s = END_MAX_S + tree.pages * DELAY_S / CONCURRENCY
    done = lycosa(*command(tree, *more), cwd=cwd, timeout_s=at_most_s)
    assert done.returncode == 0, done.stderr
    assert_nothing_to_do(tree, cwd, *more)


def assert_nothing_to_do(tree: Tree, cwd: Path, *more: object) -> None:
    hits = len(tree.hits())
    again = lycosa(*command(tree, *more), cwd=cwd)
    assert (again.returncode, again.stdout) == (0, "")
    assert "nothing to do" in again.stderr
    assert len(tree.hits()) == hits


def test_after_twenty_kills_everything_is_written_and_indexed_once(tmp_path, rng):
    kills, resumed_s = 0, []
    with grow(PAGES, delay_s=DELAY_S) as tree:
        killed = True
        while killed and kills < KILLS:
            hits = len(tree.hits())
            with start_command(*command(tree, "-q"), cwd=tmp_path) as run:
                first = first_fetch(run, tree, hits)
                if run.process.returncode is None:
                    resumed_s.append(run.cpu_s())
                killed = first is not None and run.kill_at(first + rng.uniform(*LIFETIMES_S))
                assert killed or run.process.returncode == 0, run.stderr
                assert run.stderr == ""
                kills += killed
        assert kills >= KILLS // 2, "some kills may come late, when the crawl has ended"
        finish(tree, tmp_path)
        assert_complete(tree, tmp_path)
        counts = fetches(tree)
        refetched = counts.total() - tree.pages
        print(f"{refetched} pages fetched again, first fetch after {median(resumed_s):.2f} s of processor time")
        assert set(counts) == {f"/{n}" for n in range(tree.pages)}
        assert refetched <= refetches_max(kills)
        assert median(resumed_s) <= RESUME_MAX_S


class StartupKiller:
    """Kills runs while they start, until enough of them were killed before their first fetch.

    The times of the kills are shares of the shortest start so far: the first start has cold caches and may take longer.
    """

    LAST_SHARE = 1.1
    TRIES_MAX = 40

    def __init__(self, tree: Tree, rng: random.Random) -> None:
        self.tree = tree
        self.rng = rng
        self.start_s = math.inf
        self.early = 0
        """How many runs were killed before their first fetch."""

    def measure_start(self, run: Running) -> None:
        """Wait for the first fetch of the first run."""
        first = first_fetch(run, self.tree, 0)
        assert first is not None, run.stderr
        self.start_s = min(self.start_s, first - run.started_at)

    def shares(self, lowest: float, *, count: int, early_min: int) -> Iterator[float]:
        """Yield the times at which to kill the next runs, as shares of the duration of a start, spread evenly."""
        for part in range(self.TRIES_MAX):
            if part >= count and self.early >= early_min:
                print(f"{self.early} of {part} kills before the first fetch, which comes after {self.start_s:.2f} s")
                return
            yield lowest + (self.LAST_SHARE - lowest) * (part % count + self.rng.random()) / count
        raise AssertionError(f"{self.early} kills before the first fetch, which came after {self.start_s:.2f} s")

    def kill(self, run: Running, share: float) -> None:
        before = len(self.tree.hits())
        run.kill_at(run.started_at + self.start_s * share)
        delays_s = [hit.at - run.started_at for hit in self.tree.hits()[before:]]
        # A shorter delay is that of a request of the run before, which the server noticed late.
        delays_s = [delay_s for delay_s in delays_s if delay_s > self.start_s / 2]
        self.early += not delays_s
        self.start_s = min([self.start_s, *delays_s])


def test_kills_before_the_first_fetch_lose_nothing(tmp_path, rng):
    """Kills while the process imports, opens the state, the output and the index, and pushes the seeds."""
    with grow(60) as tree:
        killer = StartupKiller(tree, rng)
        with start_command(*command(tree, "--max-pages", 20), cwd=tmp_path) as run:
            killer.measure_start(run)
            assert run.end() == 0
        for share in killer.shares(0.25, count=12 if PROVE else 8, early_min=6):
            with start_command(*command(tree, "--delay", 1), cwd=tmp_path) as run:
                killer.kill(run, share)
        finish(tree, tmp_path)
        assert_complete(tree, tmp_path)


def test_kills_while_starting_afresh_leave_a_usable_state(tmp_path, rng):
    """After the kill, -o either refuses the state and recommends -O, or finds a complete new crawl."""
    with grow(40) as tree:
        killer = StartupKiller(tree, rng)
        fresh = ["-O" if part == "-o" else part for part in command(tree)]
        with start_command(*fresh, cwd=tmp_path) as run:
            killer.measure_start(run)
            assert run.end() == 0
        for share in killer.shares(0.4, count=6 if PROVE else 4, early_min=3):
            with start_command(*fresh, cwd=tmp_path) as run:
                killer.kill(run, share)
            again = lycosa(*command(tree), cwd=tmp_path)
            if again.returncode:
                assert re.search(r"start (the crawl )?afresh with -O", assert_one_line(again.stderr))
                assert lycosa(*fresh, cwd=tmp_path).returncode == 0
            assert_complete(tree, tmp_path)
            assert_nothing_to_do(tree, tmp_path)


def test_kills_during_the_first_start_lose_nothing(tmp_path, rng):
    with grow(20) as tree:
        killer = StartupKiller(tree, rng)
        with start_command(*command(tree), cwd=tmp_path) as run:
            killer.measure_start(run)
        for part, share in enumerate(killer.shares(0.5, count=6 if PROVE else 4, early_min=2)):
            folder = tmp_path / str(part)
            folder.mkdir()
            with start_command(*command(tree), cwd=folder) as run:
                killer.kill(run, share)
            finish(tree, folder)
            assert_complete(tree, folder)


def test_items_written_but_not_committed_are_cut_off(tmp_path):
    """With a long commit window and large pages, the output has megabytes that are not committed."""
    slow = ("--commit-every", 60, "--commit-acks", 100_000, "--delay", 0.5)  # it must not end before the kill
    output = tmp_path / "items.jsonl"
    with grow(60 if PROVE else 40, text_bytes=400_000) as tree:
        for _ in range(2 if PROVE else 1):
            size = output.stat().st_size if output.exists() else 0
            with start_command(*command(tree, *slow), cwd=tmp_path) as run:
                assert run.until(lambda size=size: output.exists() and output.stat().st_size > size + MEGABYTES), (
                    run.stderr
                )
                assert run.kill(), run.stderr
            assert output.stat().st_size > MEGABYTES
            os.truncate(output, output.stat().st_size - 100)  # as if killed in the middle of a write
        finish(tree, tmp_path)
        assert_complete(tree, tmp_path)


STEPS = ("a new segment", "tantivy's commit", "the positions' draft")


def commit_markers(folder: Path) -> dict[str, object]:
    """Return the files that show which step of its commit an index has reached."""
    meta, draft = folder / "tantivy/meta.json", folder / "positions.json.new"
    return {
        STEPS[0]: frozenset(path.stem for path in folder.glob("tantivy/*.term")),
        STEPS[1]: meta.stat().st_mtime_ns if meta.exists() else 0,
        STEPS[2]: draft.exists(),
    }


def test_robots_txt_applies_after_kills_too(tmp_path, rng):
    """robots.txt is part of the stored state."""
    with grow(200, delay_s=DELAY_S, robots="User-agent: *\nDisallow: /2\nAllow: /20\n") as tree:
        site = tree.url.removesuffix("/0")
        forbidden = {f"{site}/{n}" for n in range(200) if str(n)[0] == "2" and str(n)[:2] != "20"}
        for _ in range(3 if PROVE else 2):
            hits = len(tree.hits())
            # The delay keeps the crawl from ending before the kill.
            with start_command(*command(tree, "-q", "--delay", 0.03), cwd=tmp_path) as run:
                assert run.until(lambda hits=hits: len(tree.hits()) > hits + 20), run.stderr
                assert run.kill_at(time.monotonic() + rng.uniform(0, 0.2)), run.stderr
        finish(tree, tmp_path)
        requests = Counter(hit.path for hit in tree.hits())
        fetched = {f"{site}{path}" for path in requests if path != "/robots.txt"}
        assert fetched == reachable(tree, forbidden)
        assert requests["/robots.txt"] <= 2  # the first kill may precede the first commit
        assert_exactly_once([item["url"] for item in items(tmp_path / "items.jsonl")], fetched)


def reachable(tree: Tree, forbidden: set[str]) -> set[str]:
    """Return the pages that links from the root reach without a forbidden page on the way."""
    base, found, pending = tree.url.removesuffix("0"), set(), [0]
    while pending:
        number = pending.pop()
        if f"{base}{number}" not in found | forbidden:
            found.add(f"{base}{number}")
            pending += links(number, tree.pages)
    return found


def test_kills_during_index_commits_lose_nothing(tmp_path, rng):
    """Kill at three steps of a commit: the stored position of the index is never ahead of its content."""
    kills = 6 if PROVE else 3
    with grow(2000 if PROVE else 900, delay_s=DELAY_S / 2 if PROVE else DELAY_S) as tree:
        for number in range(kills):
            step = STEPS[number % len(STEPS)]
            with start_command(*command(tree, "-q"), cwd=tmp_path) as run:
                hits = tree.hit_bytes()
                assert run.until(lambda hits=hits: tree.hit_bytes() > hits + 500), run.stderr
                before = commit_markers(tmp_path / "index")[step]
                # A draft may exist for less time than a poll takes: then kill at the next draft, or after the deadline.
                deadline = time.monotonic() + 2.5
                while commit_markers(tmp_path / "index")[step] == before and time.monotonic() < deadline:
                    pass
                time.sleep(rng.choice((0.0, 0.0, 0.002, 0.01)))
                assert run.kill(), run.stderr
            index = open_index(tmp_path / "index")
            read = next(iter(index.positions().values()), 0)
            written = (tmp_path / "items.jsonl").read_bytes()[:read]
            assert index.count() >= written.count(b"\n")
            assert written.endswith(b"\n") or not written
            index.close()
        finish(tree, tmp_path)
        assert_complete(tree, tmp_path)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_the_crawl_cleanly_and_nothing_is_fetched_twice(tmp_path, name):
    with grow(300, delay_s=0.1) as tree:
        for _ in range(3 if PROVE else 2):
            hits = len(tree.hits())
            # The delay keeps the crawl from ending before the signal.
            with start_command(*command(tree, "--delay", 0.03), cwd=tmp_path) as run:
                assert run.until(lambda hits=hits: len(tree.hits()) > hits + 20), run.stderr
                run.process.send_signal(signal.Signals[name])
                assert run.end() == 130, run.stderr
                assert "Traceback" not in run.stderr
                assert run.stderr.endswith("the state is saved: the same command resumes the crawl\n")
                assert run.stdout == b""
            assert len(items(tmp_path / "items.jsonl")) == len(fetches(tree))
        finish(tree, tmp_path)
        assert_complete(tree, tmp_path)
        assert fetches(tree).most_common(1)[0][1] == 1


def test_two_quick_interrupts_end_the_crawl_cleanly(tmp_path):
    """The second interrupt comes while the crawl is stopping: a page takes longer than any of the pauses."""
    with grow(90, delay_s=0.5) as tree:
        for between_s in (0.0, 0.01, 0.2):
            hits = len(tree.hits())
            # The delay keeps the crawl from ending before the signals.
            with start_command(*command(tree, "--delay", 0.1), cwd=tmp_path) as run:
                assert run.until(lambda hits=hits: len(tree.hits()) > hits + 5), run.stderr
                run.process.send_signal(signal.SIGINT)
                time.sleep(between_s)
                run.process.send_signal(signal.SIGINT)
                assert run.end() == 130, run.stderr
                assert "Traceback" not in run.stderr
        finish(tree, tmp_path)
        assert_complete(tree, tmp_path)


def test_after_the_second_interrupt_the_crawl_does_not_wait_for_servers(tmp_path):
    with grow(10, delay_s=90) as tree, start_command(*command(tree), cwd=tmp_path, program=PATIENT) as run:
        assert run.until(lambda: tree.hit_bytes() > 0), run.stderr
        run.process.send_signal(signal.SIGINT)
        assert run.until(lambda: "stopping: " in run.stderr)
        at = time.monotonic()
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130, run.stderr
        assert time.monotonic() - at < AT_ONCE_S
        assert "Traceback" not in run.stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_the_second_interrupt_ends_a_blocked_loop(tmp_path, name):
    blocks = "import lycosa, time\nclass B(lycosa.Spider):\n    name = 'b'\n    def parse(self, r): time.sleep(1000)\n"
    with grow(1) as tree:
        (tmp_path / "b.py").write_text(f"{blocks}    start_urls = ['{tree.url}']\n")
        with start_command("runspider", "b.py", "--no-robots", "-s", "slow_callback_after=0.5", cwd=tmp_path) as run:
            assert run.until(lambda: "has blocked the crawl" in run.stderr), run.stderr
            interrupt(run.process, getattr(signal, name))
            time.sleep(1.5)  # more than `DEAF_S`: a signal may be handled late
            run.process.send_signal(getattr(signal, name))
            assert run.end() == 130, run.stderr
            assert "Traceback" not in run.stderr


LOST_INTERRUPT = re.compile("Exception ignored in.*?^KeyboardInterrupt.*?\n", re.DOTALL | re.MULTILINE)


def end_after_lost_interrupts(run: Running) -> tuple[int, str]:
    """Return the exit code and standard error, without the reports of interrupts that Python ignored before any code of
    the command ran. Repeats each ignored interrupt.
    """
    repeated = 0
    while run.until(lambda repeated=repeated: len(LOST_INTERRUPT.findall(run.stderr)) > repeated):
        run.process.send_signal(signal.SIGINT)
        repeated += 1
    return run.end(), LOST_INTERRUPT.sub("", run.stderr)


def test_interrupts_during_the_start_exit_with_130(tmp_path):
    """Before the command runs, Python handles the signal; once the command runs, the exit code is 130, without a
    traceback.
    """
    with grow(100) as tree:
        with start_command(*command(tree, "--max-pages", 1), cwd=tmp_path) as run:
            first = first_fetch(run, tree, 0)
            assert first is not None, run.stderr
            start_s = first - run.started_at
            run.end()
        codes = []
        # Go on until enough interrupts came late enough: the command may start more slowly now.
        for part in range(3, 40, 1 if PROVE else 2):
            if part > 10 and codes.count(130) >= 4:
                break
            with start_command(*command(tree, "--delay", 1), cwd=tmp_path) as run:
                time.sleep(start_s * part / 10)
                run.process.send_signal(signal.SIGINT)
                code, stderr = end_after_lost_interrupts(run)
                codes.append(-signal.SIGINT if code == 1 and "Fatal Python error: init" in stderr else code)
                assert codes[-1] != 130 or "Traceback" not in stderr, stderr
        assert set(codes) <= {130, -signal.SIGINT}
        assert codes.count(130) >= 4
        finish(tree, tmp_path)
        assert_complete(tree, tmp_path)


def test_kills_lose_no_items_on_standard_output(tmp_path, rng):
    """Every page is written at least once; a reader that drops an incomplete last line has all pages."""
    options = ["crawl", None, "--state", "state", "--index", "index", *FAST]
    written: Counter[str] = Counter()
    with grow(400, delay_s=0.1) as tree:
        options[1] = tree.url
        kills = 4
        for number in range(kills + 1):
            hits = len(tree.hits())
            with start_command(*options, cwd=tmp_path) as run:
                if number < kills:
                    first = first_fetch(run, tree, hits)
                    killed = first is not None and run.kill_at(first + rng.uniform(0.1, 0.5))
                    assert killed or run.process.returncode == 0, run.stderr  # 0 if the kill came late
                else:
                    assert run.end() == 0
                (tmp_path / "complete").write_bytes(run.stdout[: run.stdout.rfind(b"\n") + 1])
            written.update(item["url"] for item in items(tmp_path / "complete"))
        assert set(written) == tree.urls()
        assert_indexed_once(tmp_path / "index", tree)
        assert written.total() - tree.pages <= kills * 2 * CONCURRENCY


@pytest.mark.prove
@pytest.mark.skipif(not PROVE, reason="make prove")
def test_a_hundred_kills_at_any_moment(tmp_path, rng):
    kills, ended = 0, False
    with grow(7000, delay_s=DELAY_S) as tree:
        while kills < 100 and not ended:
            with start_command(*command(tree, "-q"), cwd=tmp_path) as run:
                ended = not run.kill_at(run.started_at + rng.uniform(0.0, 2.0))
                kills += not ended
                assert run.stderr == ""
        finish(tree, tmp_path)
        assert_complete(tree, tmp_path)
        assert kills == 100
        assert fetches(tree).total() - tree.pages <= refetches_max(kills)
