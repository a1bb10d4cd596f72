"""A shared crawl is watched and seeded from outside: `lycosa top`, `lycosa seed`, metrics (C6, C7, F8).

The workers and the Redis are real; one of the workers is killed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lycosa.cli.main import main
from tests.cli.command import END_MAX_S, LYCOSA, Running, environment, lycosa, start_command, without_waits
from tests.frontier.e2e.test_shared_crawl import Crawl, crawl, running_items
from tests.servers.ports import closed_port
from tests.servers.redis import redis_server

pytestmark = [pytest.mark.nginx, pytest.mark.redis]

PAGES, HOSTS, DELAY_S = 300, 20, 0.25
UNREPORTED = 1.5 * HOSTS / DELAY_S
"""The pages that the killed worker may have fetched without reporting them."""


def wait_until(condition: Callable[[], bool], describe: Callable[[], object] = str) -> None:
    deadline = time.monotonic() + END_MAX_S
    while not condition():
        assert time.monotonic() < deadline, describe()
        time.sleep(0.02)


def top(running: Crawl) -> dict:
    done = lycosa("top", running.frontier, "--crawl-name", running.name, "--once", "--json", cwd=running.home)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def seed(
    running: Crawl, *arguments: str, lines: str | None = None, **settings: str
) -> subprocess.CompletedProcess[str]:
    command = [*LYCOSA, "seed", *arguments, "--frontier", running.frontier, "--crawl-name", running.name]
    streams = {"input": lines, "capture_output": True, "text": True}
    return subprocess.run(command, cwd=running.home, env=environment() | settings, timeout=60, check=False, **streams)


def line(running: Crawl, n: int) -> str:
    return json.dumps({"url": f"http://h{n % HOSTS}.localhost:{running.port}/page?n={n}", "cb_kwargs": {"n": n}})


def scraped(url: str) -> dict[str, dict[str, float]]:
    """Return metrics by name, then by the last label."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        sample.name: {list(each.labels.values())[-1]: each.value for each in family.samples}
        for family in families
        for sample in family.samples
    }


def test_crawl_is_watched_and_seeded_while_a_worker_is_killed(tmp_path: Path, redis) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    options = ("--keep-alive", "--delay", str(DELAY_S), "-s", "partitions=2")
    with crawl(tmp_path, redis.url, *options, pages=PAGES, hosts=HOSTS) as running:
        (tmp_path / "seeds.lines").write_text(line(running, 100_000) + "\nnonsense\n\n# no more\n")
        first = seed(running, "--file", "seeds.lines", LYCOSA_PARTITIONS="2")
        assert (first.returncode, first.stdout) == (1, "1 URL queued, 0 already known, 1 invalid line skipped\n")
        assert f"Started crawl '{running.name}' in {redis.url}; workers can join." in first.stderr
        assert "no worker is running; the next worker fetches the URLs" in first.stderr
        with start_command("top", running.frontier, "--json", "--crawl-name", running.name, cwd=watched) as watching:
            run(running, watching)
            check_views(watching)
        for number in running.alive():
            running.workers[number].send_signal(signal.SIGTERM)
        for number in running.alive():
            running.workers[number].wait(END_MAX_S)
        assert "by all workers so far" in (tmp_path / "2.log").read_text()
        ended = top(running)
        assert (ended["workers"], ended["rates"]) == ([], None)
        states = Counter(worker["state"] for worker in ended["former_workers"])
        # On a busy machine another worker may be lost for a while, and join again.
        assert (set(states), states["ended"]) == ({"lost", "ended"}, 2)
        assert ended["totals"]["pages"] >= PAGES + 51 - UNREPORTED


def run(running: Crawl, watching: Running) -> None:
    """Crawl all pages with three workers, one of which is killed, and seed more URLs to the waiting ones."""
    options = running.options
    with running.together(3):
        for number in range(3):
            port = closed_port()
            running.options = (*options, "--metrics", str(port))
            running.start(number)
    wait_until(lambda: running.workers[0].pid in reporting_pids(watching))
    running.kill(0)
    wait_until(lambda: pages_with_items(running) == {*range(PAGES), 100_000}, lambda: pages_with_items(running))

    more = [200_000 + n for n in range(50)]
    seeded = seed(running, "--file", "-", "--json", lines="\n".join(line(running, n) for n in [*more, 100_000]))
    assert (seeded.returncode, json.loads(seeded.stdout)) == (0, {"queued": 50, "known": 1, "left_out": 0, "bad": 0})
    assert seeded.stderr == ""
    wait_until(lambda: pages_with_items(running) >= {*more}, lambda: pages_with_items(running))

    view = complete_view(running)
    former = view["former_workers"]
    (killed,) = [worker for worker in former if worker["pid"] == running.workers[0].pid]
    assert (killed["state"], killed["machine"]) == ("lost", view["workers"][0]["machine"])
    assert {worker["pid"] for worker in view["workers"]} == {running.workers[n].pid for n in running.alive()}
    assert view["totals"]["pages"] == sum(worker["pages"] for worker in [*view["workers"], *former])
    assert view["stats"]["item_scraped_count"] >= view["totals"]["items"] >= PAGES + 51 - UNREPORTED
    assert (view["urls"]["done"], view["unfinished"]) == (PAGES + 51, 0)
    check_metrics(running, view, port)


def complete_view(running: Crawl) -> dict:
    """Return the view once the live workers have reported all their pages. What a worker that was lost and has joined
    again reports is not compared.
    """
    view: dict = {}
    pids = {running.workers[number].pid: number for number in running.alive()}

    def is_complete() -> bool:
        view.update(top(running))
        pages = {worker["pid"]: worker["pages"] for worker in view["workers"]}
        lost = {worker["pid"] for worker in view["former_workers"]}
        items = {pid: len(running_items(running.home, f"{number}.jsonl")) for pid, number in pids.items()}
        return set(pages) == set(items) and all(pages[pid] == items[pid] for pid in items if pid not in lost)

    wait_until(is_complete, lambda: view)
    return view


def pages_with_items(running: Crawl) -> set[int]:
    """Return the pages with an item, ignoring an incomplete line."""
    found = set()
    for text in running_items(running.home):
        try:
            found.add(json.loads(text)["n"])
        except ValueError:
            continue
    return found


def views_of(watching: Running) -> list[dict]:
    """Return the output of `top --json` so far."""
    *lines, _ = (watching.home / "stdout").read_text().split("\n")
    return [json.loads(text) for text in lines]


def reporting_pids(watching: Running) -> set[int]:
    """Return the process ids of the workers that reported pages."""
    workers = [worker for view in views_of(watching) for worker in view["workers"]]
    return {worker["pid"] for worker in workers if worker.get("pages")}


def check_views(watching: Running) -> None:
    """Check that there is about one view per second, and that it shows the crawl at work."""
    watching.process.send_signal(signal.SIGINT)
    assert watching.end() == 0
    views = views_of(watching)
    assert median(later["at"] - earlier["at"] for earlier, later in pairwise(views)) > 0.9
    assert max(view["rates"]["pages"] for view in views if view["rates"]) > 0
    hosts = next(view["hosts"] for view in views if len(view["hosts"]) > 1)
    assert hosts[0]["delay_s"] == DELAY_S
    assert hosts[0]["queued"] >= hosts[-1]["queued"]
    states = {worker["state"] for view in views for worker in view["workers"]}
    assert "crawling" in states
    assert states <= {"crawling", "waiting"}


def check_metrics(running: Crawl, view: dict, port: int) -> None:
    """Check that the metrics of the crawl and of one of its workers agree with the view."""
    with start_command(
        "top", running.frontier, "--crawl-name", running.name, "--metrics", "0", cwd=running.home
    ) as watching:
        wait_until(lambda: "metrics of" in watching.stderr)
        found = scraped(watching.stderr.split()[-1])
        assert found["lycosa_pages_total"] == {running.name: view["totals"]["pages"]}
        assert found["lycosa_worker_pages_total"] == {each["worker"]: each["pages"] for each in view["workers"]}
        assert found["lycosa_frontier_urls"]["done"] == view["urls"]["done"]
        assert found["lycosa_workers"]["lost"] == len(view["former_workers"])
        assert found["lycosa_stat_total"]["item_scraped_count"] == view["stats"]["item_scraped_count"]
    worker_metrics = scraped(f"http://127.0.0.1:{port}/metrics")
    (name,) = worker_metrics["lycosa_worker_pages_total"]
    assert name.endswith(f":{running.workers[2].pid}")
    assert "lycosa_pages_total" not in worker_metrics


def test_local_crawl_serves_metrics_and_accepts_seeds(tmp_path: Path) -> None:
    port = closed_port()
    done = lycosa("seed", "http://127.0.0.1:9/x", "--state", "state", "--priority", "3", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1 URL queued, 0 already known\n")
    command = ("crawl", "http://127.0.0.1:9/", "--state", "state", "--metrics", port, "--no-robots", "--retries", "9")
    with start_command(*command, cwd=tmp_path) as running:

        def answered() -> bool:
            try:
                found = scraped(f"http://127.0.0.1:{port}/metrics")
            except OSError:
                return False
            (pages,), (failed,) = found["lycosa_pages_total"].values(), found["lycosa_failures_total"].values()
            return pages == 0 and failed > 0

        wait_until(answered, lambda: running.stderr)
        top_once = lycosa("top", "--state", "state", "--once", "--json", cwd=tmp_path)
        assert (top_once.returncode, without_waits(top_once.stderr)) == (0, "")
        view = json.loads(top_once.stdout)
        assert view["workers"][0]["pid"] == running.process.pid
        assert view["unfinished"] == 2
        assert [host["host"] for host in view["hosts"]] in ([], ["http://127.0.0.1:9"])
        assert sum(host["queued"] + host["in_flight"] for host in view["hosts"]) <= 2
    stopped = lycosa("top", "--state", "state", "--once", cwd=tmp_path)
    assert stopped.returncode == 2
    assert "the crawl is not running: lycosa frontier status --state state" in stopped.stderr


def test_full_server_rejects_seeds(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["seed", "http://a.example/", "--crawl-name", "shop"]
    with redis_server() as server:
        assert main([*command, "--frontier", server.url]) == 0
        server.cli("CONFIG", "SET", "maxmemory", "100kb")
        capsys.readouterr()
        assert main([*command, "http://a.example/2", "--frontier", server.url]) == 3
        assert ": the server has reached its maxmemory; nothing is lost: raise maxmemory" in capsys.readouterr().err
        server.cli("CONFIG", "SET", "maxmemory", "0")
        assert main([*command, "http://a.example/2", "--frontier", server.url]) == 0
        assert capsys.readouterr().out == "1 URL queued, 1 already known\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("top", "which crawl? lycosa top redis://host:6379/0, or lycosa top --state DIR"),
        ("top {url}", "there is no crawl in {url}: lycosa crawl ... --frontier starts one"),
        ("top {url} --crawl-name x", "there is no crawl 'x' in {url}"),
        ("top {url} --state x", "--state is for a crawl on this machine"),
        ("top --state x", "x is not the state of a crawl"),
        ("top http://host/", "write redis://host:6379/0"),
        ("top {url} --metrics x --crawl-name shop --seeded", "--metrics x: write a port such as 9464"),
        ("top {url} --crawl-name x --seeded", "there is no crawl 'x' in {url}; the server has shop"),
        ("seed", "seed needs URLs, or --file FILE"),
        ("seed http://a.example/ --file x", "not both"),
        ("seed http://a.example/", "which crawl? There is no state in .lycosa/: give --state DIR"),
        ("seed seeds.txt --frontier {url}", "'seeds.txt' is not a URL: write https://..., or --file seeds.txt"),
        ("seed http://a.example/ --frontier {url}", "there is no crawl in {url}: give --crawl-name NAME to start one"),
        (
            "seed http://a.example/ --frontier {url} --crawl-name shop --spider x",
            "--spider x: this crawl does not have several spiders",
        ),
        ("seed --file nowhere --frontier {url}", "nowhere cannot be read: no such file"),
        ("seed http://a.example/ --state s --crawl-name x", "--crawl-name is the name of a crawl on a Redis server"),
    ],
)
def test_wrong_usage_prints_one_line(tmp_path: Path, monkeypatch, capsys, arguments: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with redis_server() as server:
        words = arguments.format(url=server.url).split()
        if "--seeded" in words:
            words.remove("--seeded")
            assert main(["seed", "http://a.example/", "--frontier", server.url, "--crawl-name", "shop"]) == 0
            capsys.readouterr()
        assert main(words) == 2
    stderr = capsys.readouterr().err
    stderr = "".join(line for line in stderr.splitlines(keepends=True) if "Started crawl " not in line)
    assert message.format(url=server.url) in stderr
    assert stderr.startswith("lycosa: ")
    assert stderr.count("\n") == 1
