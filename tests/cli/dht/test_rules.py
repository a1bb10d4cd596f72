"""`lycosa dht rules`, `deny` and `allow` on the state of a crawl that does not run."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from lycosa.app.dht_state import RecordsLocation, open_records
from lycosa.storage.core.torrent_record import TorrentRecord
from tests.cli.command import assert_one_line, lycosa
from tests.storage.torrents import torrent

GOOD, BAD = torrent(1), replace(torrent(2, v2=True), name="Spam 12 and more")
RULES = """
    [[deny]]
    reason = "no spam"
    patterns = ['^spam [0-9]+']

    [[test]]
    name = "Spam 7"
    refused = true
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with rules, and with the state of a crawl that stored two torrents."""
    (tmp_path / "mine.toml").write_text(RULES)
    (tmp_path / "state").mkdir()
    store(tmp_path, GOOD, BAD)
    return tmp_path


def store(folder: Path, *records: TorrentRecord) -> None:
    async def put() -> None:
        async with open_records(RecordsLocation(str(folder / "state"), None), create=True) as opened:
            await opened.put(records, 1_790_000_000.0)

    asyncio.run(put())


def names(folder: Path) -> list[str]:
    done = lycosa("dht", "export", "--state", "state", cwd=folder)
    return [json.loads(line)["name"] for line in done.stdout.splitlines()]


def test_a_dry_run_lists_what_rules_refuse_and_changes_nothing(folder: Path) -> None:
    done = lycosa("dht", "rules", "apply", "mine.toml", "--state", "state", "--dry-run", cwd=folder)
    assert done.stdout == f"{BAD.keys[0].hex()}\tno spam\t{BAD.name}\n"
    assert "1 torrent of 2 would be removed" in done.stderr
    assert names(folder) == [GOOD.name, BAD.name]
    assert not (folder / "state/rules").exists()


def test_applied_rules_remove_stored_torrents_and_hold_for_imports(folder: Path) -> None:
    done = lycosa("dht", "rules", "apply", "mine.toml", "--state", "state", cwd=folder)
    assert "1 torrent of 2 removed" in done.stderr
    assert "the rules are installed in state/rules/mine" in done.stderr
    assert names(folder) == [GOOD.name]
    store(folder, BAD)
    assert names(folder) == [GOOD.name], "both infohashes are denied"
    other = {"infohash_v1": "ab" * 20, "name": "spam 99", "files": [{"path": "a.txt", "size_bytes": 1}]}
    (folder / "more.jsonl").write_text(json.dumps(other) + "\n")
    done = lycosa("dht", "import", "more.jsonl", "--state", "state", cwd=folder)
    assert "1 not stored (1 no spam)" in done.stdout


def test_denied_infohashes_are_removed_until_they_are_allowed(folder: Path) -> None:
    (folder / "list.txt").write_text(f"# a notice\n{BAD.keys[1].hex()}\n{GOOD.keys[0].hex()} # ours\n")
    done = lycosa("dht", "deny", "list.txt", "--state", "state", "--reason", "notice 7", cwd=folder)
    assert "2 infohashes denied, 2 torrents removed" in done.stderr
    store(folder, GOOD, BAD)
    assert names(folder) == []
    lycosa("dht", "allow", GOOD.keys[0].hex(), "--state", "state", cwd=folder)
    store(folder, GOOD, BAD)
    assert names(folder) == [GOOD.name]


def test_a_torrent_denied_by_a_magnet_link_is_allowed_by_one_infohash(folder: Path) -> None:
    new = torrent(3, v2=True)
    assert new.infohash_v2 is not None
    link = f"magnet:?xt=urn:btih:{new.keys[0].hex()}&xt=urn:btmh:1220{new.infohash_v2.hex()}"
    done = lycosa("dht", "deny", link, "--state", "state", cwd=folder)
    assert "2 infohashes denied, 0 torrents removed" in done.stderr
    lycosa("dht", "allow", new.keys[1].hex(), "--state", "state", cwd=folder)
    store(folder, new)
    assert names(folder) == [GOOD.name, BAD.name, new.name]


def test_a_denied_infohash_keeps_its_reason_and_counts_tell_what_has_changed(folder: Path) -> None:
    def run(verb: str, *words: str) -> str:
        return lycosa("dht", verb, *words, "--state", "state", cwd=folder).stderr

    infohash, other = GOOD.keys[0].hex(), torrent(7).keys[0].hex()
    run("deny", infohash, "--reason", "notice A")
    assert "1 infohash denied (1 denied before), 0 torrents removed" in run("deny", infohash, other)
    assert "0 infohashes denied (1 denied before)" in run("deny", infohash.upper(), infohash)
    assert "denied (notice A)" in lycosa("dht", "explain", infohash, "--state", "state", cwd=folder).stdout
    run("deny", infohash, "--reason", "notice B")
    assert "denied (notice B)" in lycosa("dht", "explain", infohash, "--state", "state", cwd=folder).stdout
    assert "0 infohashes allowed (1 allowed before)" in run("allow", "ff" * 20)
    assert "1 infohash allowed (1 allowed before)" in run("allow", "ff" * 20, infohash)


def test_a_hashed_list_denies_infohashes_without_naming_them(folder: Path) -> None:
    hashed = sha256(GOOD.keys[0]).hexdigest()
    done = lycosa("dht", "deny", hashed, "--hashed", "--state", "state", cwd=folder)
    assert "1 infohash denied, 1 torrent removed" in done.stderr
    assert names(folder) == [BAD.name]


def test_the_tests_in_a_file_of_rules_are_run(folder: Path) -> None:
    assert lycosa("dht", "rules", "test", "mine.toml", cwd=folder).returncode == 0
    (folder / "mine.toml").write_text(RULES.replace("true", "false"))
    done = lycosa("dht", "rules", "test", "mine.toml", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "mine.toml: 'Spam 7': refused: no spam\n")
    done = lycosa("dht", "rules", "apply", "mine.toml", "--state", "state", cwd=folder)
    assert done.returncode == 2
    assert assert_one_line(done.stderr) == "mine.toml: 1 test failed, the first: 'Spam 7': refused: no spam"
    assert names(folder) == [GOOD.name, BAD.name]


def test_check_shows_the_results_of_rules_for_names(folder: Path) -> None:
    done = lycosa("dht", "rules", "check", "mine.toml", "Spam 1", "Quiet.Town.S01E02.1080p.WEB-DL", cwd=folder)
    assert done.stdout.splitlines() == [
        "Spam 1: refused: no spam",
        "Quiet.Town.S01E02.1080p.WEB-DL: video, category 5040, 1080 lines, season 1, episode 2",
    ]


def test_changed_content_rules_classify_stored_torrents_again(folder: Path) -> None:
    (folder / "mine.toml").write_text('[[content]]\ntype = "application"\nweight = 99\nwords = ["spam"]\n')
    done = lycosa("dht", "rules", "apply", "mine.toml", "--state", "state", "--dry-run", cwd=folder)
    assert "0 torrents of 2 would be removed\n" in done.stderr
    done = lycosa("dht", "rules", "apply", "mine.toml", "--state", "state", cwd=folder)
    assert "0 torrents of 2 removed, 2 reclassified" in done.stderr  # their names had never been inspected
    exported = lycosa("dht", "export", "--state", "state", cwd=folder).stdout.splitlines()
    assert [json.loads(line)["content"]["type"] == "application" for line in exported] == [False, True]
    done = lycosa("dht", "rules", "apply", "--state", "state", cwd=folder)
    assert "0 torrents of 2 removed\n" in done.stderr


@pytest.mark.parametrize("arguments", [("deny", "ab" * 20), ("allow", "ab" * 20)])
def test_a_mistyped_state_is_not_created(folder: Path, arguments: tuple[str, ...]) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "file").touch()
    for state in ("stat", "other"):
        done = lycosa("dht", *arguments, "--state", state, cwd=folder)
        assert done.returncode == 2
        assert f"{state} is not the --state of a dht crawl" in assert_one_line(done.stderr)
    assert not (folder / "stat").exists()
    assert [each.name for each in (folder / "other").iterdir()] == ["file"]


def test_a_list_may_be_denied_before_the_first_crawl(folder: Path) -> None:
    (folder / "new").mkdir()
    assert lycosa("dht", "deny", "ab" * 20, "--state", "new", cwd=folder).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("deny", "nonsense", "--state", "state"), "nonsense: not an infohash"),
        (("deny", "bad.txt", "--state", "state"), "bad.txt, line 2: zz: not an infohash"),
        (("deny", "ab" * 20, "--hashed", "--state", "state"), "is not a hashed infohash"),
        (("deny", "ab" * 20), "--state DIR, or --store URL"),
        (("rules", "apply", "none.toml", "--state", "state"), "none.toml: cannot be read: no such file"),
        (("rules", "test", "bad.txt"), "bad.txt: not TOML"),
    ],
)
def test_a_mistake_is_one_line(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    (folder / "bad.txt").write_text(f"{'ab' * 20}\nzz\n")
    done = lycosa("dht", *arguments, cwd=folder)
    assert done.returncode == 2
    assert message in assert_one_line(done.stderr)


def test_rules_without_a_command_show_the_help(tmp_path: Path) -> None:
    done = lycosa("dht", "rules", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: lycosa dht rules" in done.stdout
