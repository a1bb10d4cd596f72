"""From an empty folder to items: startproject, genspider, list, crawl, and crawl again (C2, C5, C9)."""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import assert_exactly_once, assert_one_line, items, lycosa
from tests.servers.tree import grow

PAGES = 12


def run(cwd: Path, *arguments: object) -> str:
    """Run a command that must succeed. Return its standard output and error."""
    done = lycosa(*arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_new_project_crawls_at_once(tmp_path):
    run(tmp_path, "startproject", "shop")
    project = tmp_path / "shop"
    with grow(PAGES) as tree:
        assert "lycosa crawl pages" in run(project, "genspider", "pages", tree.url)
        assert run(project, "list") == "pages  shop/spiders/pages.py\n"
        output = run(project / "shop", "crawl", "pages", "-o", "items.jsonl", "-s", "delay=0")
        assert f"finished: {PAGES} pages" in output
        found = [item["url"] for item in items(project / "shop" / "items.jsonl")]
        assert_exactly_once(found, tree.urls())
        assert "nothing to do" in run(project / "shop", "crawl", "pages", "-o", "items.jsonl", "-s", "delay=0")
        assert len(items(project / "shop" / "items.jsonl")) == PAGES
        assert run(project, "settings", "--get", "delay") == "1\n"


def test_fetch_and_shell_fetch_pages_as_a_crawl_would(tmp_path):
    with grow(3) as tree:
        done = lycosa("fetch", tree.url, cwd=tmp_path)
        assert (done.returncode, done.stdout.count("Heading 0")) == (0, 1)
        assert done.stderr.startswith(f"200 {tree.url}, ")
        assert run(tmp_path, "shell", tree.url, "-c", "sel.css('h1::text').get()") == "Heading 0\n"
        code = f"import asyncio\nawait asyncio.sleep(0)\nprint(fetch('{tree.url}').status)"
        assert run(tmp_path, "shell", "-c", code) == "200\n"
    assert list(tmp_path.iterdir()) == [], "nothing is kept"


def test_mistakes_in_a_project_are_one_line(tmp_path):
    run(tmp_path, "startproject", "shop")
    project = tmp_path / "shop"
    run(project, "genspider", "pages", "a.example")
    for arguments, line in (
        (("crawl", "pagse"), "no spider is called 'pagse': did you mean pages?"),
        (
            ("genspider", "pages", "a.example"),
            "shop/spiders/pages.py already has a spider 'pages': choose another name",
        ),
        (("startproject", "shop", "."), "lycosa.toml already exists: . is a project"),
    ):
        done = lycosa(*arguments, cwd=project)
        assert (done.returncode, assert_one_line(done.stderr)) == (2, line)
