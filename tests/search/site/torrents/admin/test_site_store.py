"""The database of the site: who can read it, and how long it keeps decided requests."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from lycosa.search.site.torrents.admin.site_store import WAITING_SHOWN, SiteStore

DAY_S = 86_400


def modes(folder: Path) -> set[int]:
    return {file.stat().st_mode & 0o777 for file in folder.iterdir()}


def test_a_file_of_an_earlier_version_can_be_read_only_by_its_user(tmp_path):
    with closing(SiteStore(tmp_path / "site.sqlite")) as site:
        site.set_password("ada", "hash")
        for file in tmp_path.iterdir():  # with the log of SQLite, which has passwords too
            file.chmod(0o644)
        with closing(SiteStore(tmp_path / "site.sqlite")) as again:
            assert again.users() == ["ada"]
            assert modes(tmp_path) == {0o600}
            assert len(list(tmp_path.iterdir())) == 3


def test_decided_requests_are_deleted_after_the_period_and_undecided_ones_never(tmp_path):
    path = tmp_path / "site.sqlite"
    with closing(SiteStore(path)) as site:
        for number in range(4):
            site.add_takedown([f"{number:040x}"], f"reason {number}", "", "accepted" if number == 3 else "", 0)
        site.decide(1, "accepted", 5 * DAY_S)
        site.decide(2, "refused", 6 * DAY_S)
        site.forget_decided(6 * DAY_S)
        assert [(each.id, each.decision) for each in site.takedowns()] == [(3, ""), (2, "refused")]
        assert (site.takedown(3).reason, site.takedown(2), site.takedown(9)) == ("reason 2", None, None)
        for _ in range(WAITING_SHOWN):
            site.add_takedown(["ab" * 20], "later", "", "", 0)
        assert [each.decision for each in site.takedowns()] == [""] * WAITING_SHOWN + ["refused"]
        assert site.waiting() == WAITING_SHOWN + 1
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"reason 2" in stored
    assert b"reason 0" not in stored, "deleted from the file, too"
