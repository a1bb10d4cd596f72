"""Words and phrases that gave way to the field's terms stay out of the tree (docs/glossary.md has the terms)."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
QUOTING = ("CHANGELOG.md", "lycosa/config/renamed.py", "tests/config/test_renamed.py", "tests/test_words.py")
"""They list old names, so that users find the new ones."""
TEXT = {".py", ".md", ".lua", ".toml", ".html", ".js", ".css", ".sh", ".pml", ""}

WORDS = {  # each matches from the start of a word
    # Names.
    r"Hands\b|FarFrontier\b|AllCookies\b": "worker process, RemoteFrontier, CookieBroadcast",
    r"Crew\b|Cast\b|troupe\b|taking_part\b": "CrawlSpec, SpiderRuntime, runtimes, run_worker",
    r"hurrying\b|Patience\b|straying\b": "fast_shutdown, ShutdownDeadline, scope_stats",
    r"HeardFetcher\b|Audience\b|hears_\w+|hush\b|until_stirred\b": "SignallingFetcher, EventDispatcher",
    r"Shelf\b|bury\b|buried\b|Workbench\b|Teller\b": "FrontierStore, dead, HostScheduler",
    r"refuse_twin\b|Unbroken\b|heeding\b": "reject_duplicate_worker, ShieldedCalls, preserve_cancellation",
    r"Lender\b|proxywish\b|Wish\b|wish(es)?\b|Wanted\b|Asker\b": "ProxyLeaser, ProxySelector, ProxyRequest",
    r"Drought\b|waterfall\b|Stickies\b": "Outage, cascading bans, StickySessions",
    r"build_desk\b|desk\b|class Looks\b|tamed\b": "build_app, SnapshotCache, limit_nesting",
    r"blocked_after\b|media_same_once\b|close_after_idle_items\b|(?<=--)state-of\b": "see the CHANGELOG's table",
    # Phrases.
    r"[Ww]hoever\b": "the caller, the user, the worker, anyone",
    r"(is|are|was|were|be|been|being) told\b(?! apart)": "gets, receives, is reported to",
    r"(he|his|him)\b(?![)\"])": "it, they, the user",
    r"unsaid\b|UNSAID\b": "not set",
    r"[Nn]othing comes of\b": "say what happens",
    r"[Ww]ays to ask\b|goes to the box\b": "Search tips, focuses the search box",
    r"gives the dead\b": "queues failed URLs again",
    r"since there was none of this name\b": "Started crawl ...; workers can join",
    r"parse is not written\b": "has no parse(); did you mean ...",
    r"Be a judge\b|goes on where it was\b|passed over\b|[Mm]ost seconds\b|[Ll]east seconds\b": "the field's terms",
    r"[Tt]hat many\b.*\bat the most\b|at the least\b": "at most, at least",
}
ANY = re.compile(rf"\b(?:{'|'.join(WORDS)})")


def texts() -> list[Path]:
    """Return the text files of the project."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("needs a git checkout")
    names = {*listed.stdout.split("\0")} - {"", *QUOTING}
    paths = [ROOT / name for name in sorted(names) if Path(name).suffix in TEXT]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()]


def found_in(path: Path) -> Iterator[str]:
    """Yield the place of each old word in a file, and what to write instead."""
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if match := ANY.search(line):
            better = next(better for pattern, better in WORDS.items() if re.search(rf"\b(?:{pattern})", line))
            yield f"{path.relative_to(ROOT)}:{number}: {match[0]!r}; write: {better}"


def test_old_words_do_not_come_back() -> None:
    assert len(texts()) > 1000
    found = [place for path in texts() for place in found_in(path)]
    if found:
        pytest.fail(f"{len(found)} old words:\n" + "\n".join(found[:50]))
