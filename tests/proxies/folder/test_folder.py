"""The folder of a proxy pool (P3): killed processes, damage, a full disk, bounded files.

The histories are those of the pool in memory. A kill is a copy of the folder at that moment: it has all that was
written, and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import stat
from pathlib import Path

import pytest

from lycosa.core.errors import ForeignState, LycosaError, NewerState, StateLocked, StorageError, StorageFull
from lycosa.infra.frames import HEAD
from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.target import Wait
from lycosa.proxies.folder import folder as embedded_folder
from lycosa.proxies.folder.folder import IMAGE_HEAD
from lycosa.proxies.folder.pool import PoolStore
from lycosa.proxies.memory.pool import LocalPool
from tests.conftest import PROVE
from tests.proxies.sim.test_journal import seen
from tests.proxies.sim.test_pool_history import History, one, proxies

HISTORIES = 100 if PROVE else 6
STEPS = 300


def open_store(path: Path, policy: TargetPolicy | None = None) -> PoolStore:
    return PoolStore(path, lambda _: policy or TargetPolicy(), lambda: 1_000_000.0)


def journal(path: Path) -> Path:
    (found,) = path.glob("journal.*")
    return found


def frames(data: bytes) -> list[int]:
    """The offsets at which a frame ends."""
    ends, at = [], 0
    while at < len(data):
        at += HEAD.size + HEAD.unpack_from(data, at)[0]
        ends.append(at)
    return ends


class KilledHistory(History):
    """A history of a pool whose process is killed again and again."""

    def __init__(self, seed: int, path: Path) -> None:
        super().__init__(seed)
        known = list(self.pool.proxies.values())
        self.path = path
        self.kills = self.images = 0
        self.store = open_store(path / "0", self.policy)
        self.pool = self.store.pool
        self.pool.add(known, self.now)

    def step(self) -> None:
        super().step()
        self.images = max(self.images, self.store.folder.generation)
        if self.random.random() < 0.04:
            self.kill()

    def kill(self) -> None:
        self.kills += 1
        copy = self.path / str(self.kills)
        shutil.copytree(self.store.folder.path, copy, ignore=shutil.ignore_patterns("lock"))
        if self.random.random() < 0.5:  # it was killed within the next record
            with journal(copy).open("ab") as stream:
                stream.write(self.random.randbytes(self.random.randrange(1, 60)))
        after = open_store(copy, self.policy)
        assert seen(after.pool, self.now) == seen(self.pool, self.now)
        self.store.folder.close()
        self.store, self.pool = after, after.pool


@pytest.mark.parametrize("part", range(2))
def test_every_change_that_was_answered_survives_a_kill(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(embedded_folder, "JOURNAL_MIN", 3_000)
    kills = images = number = 0
    while number < HISTORIES // 2 or (images <= kills and number < 10 * HISTORIES):
        number += 1
        seed = random.randrange(1 << 32)
        history = KilledHistory(seed, quick_path / f"{part}-{number}")
        for step in range(STEPS):
            try:
                history.step()
            except BaseException:
                print(f"history {seed}, step {step}: {history.policy}")
                raise
        kills, images = kills + history.kills, images + history.images
        history.store.close()
    assert kills > HISTORIES
    assert images > kills, "a new image at each start that has something to play, and others for long journals"


def filled(path: Path, uses: int = 20) -> PoolStore:
    kept = open_store(path)
    kept.pool.add(proxies(5), 1.0)
    for number in range(uses):
        grant = one(kept.pool, "a.example", 2.0 + number)
        kept.pool.release("a.example", grant.token, [Outcome()], 2.5 + number, 0.5)
    return kept


def killed(kept: PoolStore) -> Path:
    kept.folder.close()
    return kept.folder.path


def test_a_record_that_is_cut_off_anywhere_was_never_answered(tmp_path: Path) -> None:
    path = killed(filled(tmp_path / "pool", 3))
    whole, name = journal(path).read_bytes(), journal(path).name
    ends = frames(whole)
    for cut in range(len(whole) + 1):
        copy = tmp_path / str(cut)
        copy.mkdir()
        shutil.copy(path / "pool", copy)
        (copy / name).write_bytes(whole[:cut])
        folder = embedded_folder.PoolFolder(copy)
        _, records = folder.read()
        folder.close()
        assert len(records) == sum(end <= cut for end in ends)


@pytest.mark.parametrize("seed", range(30))
def test_damage_is_an_error_of_one_line(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = killed(filled(tmp_path / "pool"))
    file = rng.choice([path / "pool", journal(path)])
    data = bytearray(file.read_bytes())
    at = rng.randrange(len(data) if file.name == "pool" else frames(bytes(data))[-2])
    data[at] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    with pytest.raises((StorageError, ForeignState, NewerState)) as caught:
        open_store(path)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    free = embedded_folder.PoolFolder(path)
    assert free.generation == 0
    free.close()


def test_valid_records_of_another_pool_are_an_error(tmp_path: Path) -> None:
    path = killed(filled(tmp_path / "pool"))
    file = journal(path)
    data = file.read_bytes()
    ends = frames(data)
    file.write_bytes(data[: ends[0]] + data[ends[1] :])
    with pytest.raises(StorageError, match=r"journal\.1 cannot be read \(KeyError\('a\.example'\)\): put back a copy"):
        open_store(path)


def test_a_folder_that_is_no_pool_of_this_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ForeignState, match="is a file: a pool of proxies is kept in a folder"):
        open_store(tmp_path / "file")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ForeignState, match="holds something else than a pool of proxies"):
        open_store(tmp_path)
    (tmp_path / "pool").write_text("my pool")
    with pytest.raises(ForeignState, match="is not that of a pool of proxies"):
        open_store(tmp_path)
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "pool").write_bytes(IMAGE_HEAD.pack(b"LyPP", 99, 1, 0))
    with pytest.raises(NewerState, match="version 99, this Lycosa reads up to 3: upgrade"):
        open_store(newer)
    for version in (1, 2):
        older = tmp_path / f"older{version}"
        older.mkdir()
        (older / "pool").write_bytes(IMAGE_HEAD.pack(b"LyPP", version, 1, 0))
        with pytest.raises(ForeignState, match=f"version {version}, this Lycosa reads 3: export the proxies"):
            open_store(older)
    below = tmp_path / "file" / "pool"
    with pytest.raises(StorageError, match="cannot be kept: not a directory"):
        open_store(below)


def test_there_is_one_owner_and_only_our_own_user_can_read_the_logins(tmp_path: Path) -> None:
    kept = filled(tmp_path / "pool")
    with pytest.raises(StateLocked, match="is open in process "):
        open_store(tmp_path / "pool")
    kept.close()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "pool").iterdir()}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "pool").stat().st_mode) == 0o700
    open_store(tmp_path / "pool").close()


def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_folder, "JOURNAL_MIN", 10_000)
    kept = filled(tmp_path / "pool", 3_000)
    assert kept.folder.generation > 20
    assert sum(path.stat().st_size for path in (tmp_path / "pool").iterdir()) < 20_000
    before = seen(kept.pool, 1e6)
    kept.close()
    assert journal(tmp_path / "pool").stat().st_size == 0, "a start after a clean end plays nothing again"
    assert seen(open_store(tmp_path / "pool").pool, 1e6) == before


def test_opening_a_pool_without_a_change_writes_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "pool").close()
    before = {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in (tmp_path / "pool").iterdir()}
    looking = open_store(tmp_path / "pool")
    assert len(looking.pool.proxies) == 5
    looking.close()
    after = {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in (tmp_path / "pool").iterdir()}
    del before["lock"], after["lock"]
    assert after == before


def test_a_changed_policy_applies_from_the_next_start(tmp_path: Path) -> None:
    filled(tmp_path / "pool").close()
    for concurrency in (2, 1, 2):
        kept = open_store(tmp_path / "pool", TargetPolicy(concurrency=concurrency))
        assert kept.pool.targets["a.example"].policy.concurrency == concurrency
        grants = kept.pool.acquire("a.example", 100.0, [0.0] * 5)
        assert not isinstance(grants, Wait)
        more = kept.pool.acquire("a.example", 100.0, [0.0])
        assert isinstance(more, Wait) == (concurrency == 1)
        for grant in [*grants, *([] if isinstance(more, Wait) else more)]:
            kept.pool.release("a.example", grant.token, [], 100.0, 0.0)
        killed(kept)


def test_a_target_that_may_have_more_members_gets_them_from_the_next_start(tmp_path: Path) -> None:
    for now, members in ((100.0, 2), (200.0, 4)):
        kept = open_store(tmp_path / "pool", TargetPolicy(members=members, lease_s=1.0))
        kept.pool.add(proxies(5), now)
        assert all(one(kept.pool, "a.example", now) for _ in range(members))
        assert isinstance(kept.pool.acquire("a.example", now, [0.0]), Wait)
        killed(kept)


def test_a_full_disk_loses_no_lease_and_is_over_when_there_is_room(tmp_path: Path) -> None:
    kept = filled(tmp_path / "pool")
    (tmp_path / "pool" / "journal.2").symlink_to("/dev/full")
    kept.folder.replace_image(kept._image())
    with pytest.raises(StorageFull, match="no space left on the device for the pool of proxies"):
        one(kept.pool, "a.example", 100.0)
    grants = [one(kept.pool, "a.example", 100.0) for _ in range(4)]
    assert kept.folder.generation == 3, "a new image has what could not be written"
    copy = tmp_path / "killed"
    shutil.copytree(tmp_path / "pool", copy, ignore=shutil.ignore_patterns("lock"))
    after = open_store(copy)
    assert isinstance(after.pool.acquire("a.example", 101.0, [0.0]), Wait), (
        "the lease whose answer was lost is held, too"
    )
    assert [after.pool.release("a.example", grant.token, [], 101.0, 0.0) for grant in grants] == [
        grant.key for grant in grants
    ]


def test_a_waiting_call_fails_with_a_full_disk(tmp_path: Path) -> None:
    kept = filled(tmp_path / "pool")
    clock = [1_000.0]
    full = os.open("/dev/full", os.O_WRONLY)

    async def story() -> None:
        pool = LocalPool(now=lambda: clock[0], pool=kept.pool)
        await pool.acquire("a.example", 5)
        waiter = asyncio.create_task(pool.acquire("a.example", wait_s=20.0))
        await asyncio.sleep(0)
        os.dup2(full, kept.folder._journal)
        clock[0] += 100.0  # the leases are over
        pool._queues["a.example"].serve()
        with pytest.raises(StorageFull):
            await waiter
        assert len(await pool.acquire("a.example", 4)) == 4, "the fifth was leased to a caller without an answer"

    asyncio.run(story())
    os.close(full)


def test_a_journal_that_cannot_be_shortened_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(embedded_folder, "JOURNAL_MIN", 10_000)
    kept = filled(tmp_path / "pool", 5)
    (tmp_path / "pool" / "pool.new").mkdir()  # no image can be written
    for number in range(200):
        grant = one(kept.pool, "a.example", 100.0 + number)
        kept.pool.release("a.example", grant.token, [Outcome()], 100.5 + number, 0.5)
    assert "the journal of the pool grows" in caplog.text
    before = seen(kept.pool, 1e6)
    (tmp_path / "pool" / "pool.new").rmdir()
    assert seen(open_store(killed(kept)).pool, 1e6) == before


def test_a_record_that_is_too_long_for_the_journal_is_in_a_new_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_folder, "RECORD_MAX", 1_000)
    kept = filled(tmp_path / "pool", 1)
    grant = one(kept.pool, "a.example", 100.0)
    kept.pool.release("a.example", grant.token, [Outcome()] * 500, 101.0, 0.5)
    before = seen(kept.pool, 1e6)
    assert seen(open_store(killed(kept)).pool, 1e6) == before


@pytest.mark.parametrize("is_killed", [True, False])
def test_leases_do_not_last_longer_when_the_clock_is_set_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_killed: bool
) -> None:
    kept = PoolStore(tmp_path / "pool", lambda _: TargetPolicy(), lambda: 5_000.0)
    kept.pool.add(proxies(1), kept.now())
    grant = one(kept.pool, "a.example", kept.now())
    killed(kept) if is_killed else kept.close()
    clock = [1_000.0]
    after = PoolStore(tmp_path / "pool", lambda _: TargetPolicy(), lambda: clock[0])
    assert "the clock was set back by 4000 s" in caplog.text
    clock[0] += 59.0
    assert isinstance(after.pool.acquire("a.example", after.now(), [0.0]), Wait)
    clock[0] += 2.0
    assert one(after.pool, "a.example", after.now()).token > grant.token
    after.close()


def test_an_error_while_reading_releases_the_folder(tmp_path: Path) -> None:
    path = killed(filled(tmp_path / "pool"))
    whole = (path / "pool").read_bytes()
    (path / "pool").write_bytes(whole[:-1])
    with pytest.raises(LycosaError):
        open_store(path)
    (path / "pool").write_bytes(whole)
    assert open_store(path).pool.targets["a.example"].granted == 20
