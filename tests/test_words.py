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

WORDS = {
    # Names.
    r"\bHands\b|\bFarFrontier\b|\bAllCookies\b": "worker process, RemoteFrontier, CookieBroadcast",
    r"\bCrew\b|\bCast\b|\btroupe\b|\btaking_part\b": "CrawlSpec, SpiderRuntime, runtimes, run_worker",
    r"\bhurrying\b|\bPatience\b|\bstraying\b": "fast_shutdown, ShutdownDeadline, scope_stats",
    r"\bHeardFetcher\b|\bAudience\b|\bhears_\w+|\bhush\b|\buntil_stirred\b": "SignallingFetcher, EventDispatcher",
    r"\bShelf\b|\bdef bury\b|\.bury\b|\bburied\b|\bWorkbench\b|\bTeller\b": "FrontierStore, dead, HostScheduler",
    r"\brefuse_twin\b|\bUnbroken\b|\bheeding\b": "reject_duplicate_worker, ShieldedCalls, preserve_cancellation",
    r"\bLender\b|\bproxywish\b|\bWish\b|\bwish(es)?\b|\bWanted\b|\bAsker\b": "ProxyLeaser, ProxySelector, ProxyRequest",
    r"\bDrought\b|\bwaterfall\b|\bStickies\b": "Outage, cascading bans, StickySessions",
    r"\bbuild_desk\b|\bdesk\b|\bclass Looks\b|\btamed\b": "build_app, SnapshotCache, limit_nesting",
    r"\bblocked_after\b|\bmedia_same_once\b|\bclose_after_idle_items\b|--state-of\b": "see the CHANGELOG's table",
    # Phrases.
    r"\b[Ww]hoever\b": "the caller, the user, the worker, anyone",
    r"\b(is|are|was|were|be|been|being) told\b(?! apart)": "gets, receives, is reported to",
    r"\b(he|his|him)\b(?![)\"])": "it, they, the user",
    r"\bunsaid\b|\bUNSAID\b": "not set",
    r"[Nn]othing comes of\b": "say what happens",
    r"[Ww]ays to ask\b|goes to the box\b": "Search tips, focuses the search box",
    r"gives the dead\b": "queues failed URLs again",
    r"since there was none of this name\b": "Started crawl ...; workers can join",
    r"\.parse is not written\b": "has no parse(); did you mean ...",
    r"Be a judge\b|goes on where it was\b|passed over\b|[Mm]ost seconds\b|[Ll]east seconds\b": "the field's terms",
    r"\b[Tt]hat many\b.*\bat the most\b|\bat the least\b": "at most, at least",
}
ANY = re.compile("|".join(WORDS))


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
            better = next(better for pattern, better in WORDS.items() if re.search(pattern, line))
            yield f"{path.relative_to(ROOT)}:{number}: {match[0]!r}; write: {better}"


def test_old_words_do_not_come_back() -> None:
    assert len(texts()) > 1000
    found = [place for path in texts() for place in found_in(path)]
    if found:
        pytest.fail(f"{len(found)} old words:\n" + "\n".join(found[:50]))
