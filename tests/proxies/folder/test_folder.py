"""The folder of a proxy pool (P3): killed processes, damage, a full disk, bounded files.

The histories are those of the pool in memory. A kill is simulated by a copy of the folder at that moment.
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
from tests.proxies.sim.test_journal import state_of
from tests.proxies.sim.test_pool_history import History, lease_one, proxies

HISTORIES = 100 if PROVE else 6
STEPS = 300


def open_store(path: Path, policy: TargetPolicy | None = None) -> PoolStore:
    return PoolStore(path, lambda _: policy or TargetPolicy(), lambda: 1_000_000.0)


def journal(path: Path) -> Path:
    (found,) = path.glob("journal.*")
    return found


def frames(data: bytes) -> list[int]:
    """Return the offsets at which frames end."""
    ends, at = [], 0
    while at < len(data):
        at += HEAD.size + HEAD.unpack_from(data, at)[0]
        ends.append(at)
    return ends


class KilledHistory(History):
    """A history of a pool whose process is killed repeatedly."""

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
        if self.random.random() < 0.5:  # killed while it wrote the next record
            with journal(copy).open("ab") as stream:
                stream.write(self.random.randbytes(self.random.randrange(1, 60)))
        restored = open_store(copy, self.policy)
        assert state_of(restored.pool, self.now) == state_of(self.pool, self.now)
        self.store.folder.close()
        self.store, self.pool = restored, restored.pool


@pytest.mark.parametrize("part", range(2))
def test_every_acknowledged_change_survives_a_kill(
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
    assert images > kills, "a new image at each start with a journal, and others for long journals"


def filled_store(path: Path, uses: int = 20) -> PoolStore:
    store = open_store(path)
    store.pool.add(proxies(5), 1.0)
    for number in range(uses):
        grant = lease_one(store.pool, "a.example", 2.0 + number)
        store.pool.release("a.example", grant.token, [Outcome()], 2.5 + number, 0.5)
    return store


def kill(store: PoolStore) -> Path:
    store.folder.close()
    return store.folder.path


def test_a_truncated_record_is_ignored(tmp_path: Path) -> None:
    path = kill(filled_store(tmp_path / "pool", 3))
    content, name = journal(path).read_bytes(), journal(path).name
    ends = frames(content)
    for cut in range(len(content) + 1):
        copy = tmp_path / str(cut)
        copy.mkdir()
        shutil.copy(path / "pool", copy)
        (copy / name).write_bytes(content[:cut])
        folder = embedded_folder.PoolFolder(copy)
        _, records = folder.read()
        folder.close()
        assert len(records) == sum(end <= cut for end in ends)


@pytest.mark.parametrize("seed", range(30))
def test_damage_is_reported_in_one_line(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = kill(filled_store(tmp_path / "pool"))
    file = rng.choice([path / "pool", journal(path)])
    data = bytearray(file.read_bytes())
    at = rng.randrange(len(data) if file.name == "pool" else frames(bytes(data))[-2])
    data[at] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    with pytest.raises((StorageError, ForeignState, NewerState)) as caught:
        open_store(path)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    folder = embedded_folder.PoolFolder(path)
    assert folder.generation == 0, "the folder is not locked"
    folder.close()


def test_valid_records_that_do_not_fit_the_pool_are_an_error(tmp_path: Path) -> None:
    path = kill(filled_store(tmp_path / "pool"))
    file = journal(path)
    data = file.read_bytes()
    ends = frames(data)
    file.write_bytes(data[: ends[0]] + data[ends[1] :])
    with pytest.raises(StorageError, match=r"journal\.1 cannot be read \(KeyError\('a\.example'\)\): restore the"):
        open_store(path)


def test_a_folder_that_is_no_pool_of_this_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ForeignState, match="is a file: a pool of proxies needs a folder"):
        open_store(tmp_path / "file")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ForeignState, match="contains files that are not part of a pool of proxies"):
        open_store(tmp_path)
    (tmp_path / "pool").write_text("my pool")
    with pytest.raises(ForeignState, match="is not the file of a pool of proxies"):
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
    with pytest.raises(StorageError, match="cannot be stored: not a directory"):
        open_store(below)


def test_a_folder_has_one_owner_and_only_its_user_can_read_it(tmp_path: Path) -> None:
    store = filled_store(tmp_path / "pool")
    with pytest.raises(StateLocked, match="is open in process "):
        open_store(tmp_path / "pool")
    store.close()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "pool").iterdir()}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "pool").stat().st_mode) == 0o700
    open_store(tmp_path / "pool").close()


def test_the_size_of_the_files_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_folder, "JOURNAL_MIN", 10_000)
    store = filled_store(tmp_path / "pool", 3_000)
    assert store.folder.generation > 20
    assert sum(path.stat().st_size for path in (tmp_path / "pool").iterdir()) < 20_000
    before = state_of(store.pool, 1e6)
    store.close()
    assert journal(tmp_path / "pool").stat().st_size == 0, "after a clean end the journal is empty"
    assert state_of(open_store(tmp_path / "pool").pool, 1e6) == before


def test_opening_a_pool_without_a_change_writes_nothing(tmp_path: Path) -> None:
    filled_store(tmp_path / "pool").close()
    before = {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in (tmp_path / "pool").iterdir()}
    store = open_store(tmp_path / "pool")
    assert len(store.pool.proxies) == 5
    store.close()
    after = {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in (tmp_path / "pool").iterdir()}
    del before["lock"], after["lock"]
    assert after == before


def test_a_changed_policy_applies_from_the_next_start(tmp_path: Path) -> None:
    filled_store(tmp_path / "pool").close()
    for concurrency in (2, 1, 2):
        store = open_store(tmp_path / "pool", TargetPolicy(concurrency=concurrency))
        assert store.pool.targets["a.example"].policy.concurrency == concurrency
        grants = store.pool.acquire("a.example", 100.0, [0.0] * 5)
        assert not isinstance(grants, Wait)
        extra = store.pool.acquire("a.example", 100.0, [0.0])
        assert isinstance(extra, Wait) == (concurrency == 1)
        for grant in [*grants, *([] if isinstance(extra, Wait) else extra)]:
            store.pool.release("a.example", grant.token, [], 100.0, 0.0)
        kill(store)


def test_after_a_restart_a_target_gets_the_members_of_a_larger_policy(tmp_path: Path) -> None:
    for now, members in ((100.0, 2), (200.0, 4)):
        store = open_store(tmp_path / "pool", TargetPolicy(members=members, lease_s=1.0))
        store.pool.add(proxies(5), now)
        assert all(lease_one(store.pool, "a.example", now) for _ in range(members))
        assert isinstance(store.pool.acquire("a.example", now, [0.0]), Wait)
        kill(store)


def test_a_full_disk_loses_no_lease_and_new_images_end_the_error(tmp_path: Path) -> None:
    store = filled_store(tmp_path / "pool")
    (tmp_path / "pool" / "journal.2").symlink_to("/dev/full")
    store.folder.replace_image(store._image())
    with pytest.raises(StorageFull, match="no space left on the device for the pool of proxies"):
        lease_one(store.pool, "a.example", 100.0)
    grants = [lease_one(store.pool, "a.example", 100.0) for _ in range(4)]
    assert store.folder.generation == 3, "the failed write is part of a new image"
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "pool", copy, ignore=shutil.ignore_patterns("lock"))
    restored = open_store(copy)
    assert isinstance(restored.pool.acquire("a.example", 101.0, [0.0]), Wait), (
        "the lease of the failed call counts, too"
    )
    assert [restored.pool.release("a.example", grant.token, [], 101.0, 0.0) for grant in grants] == [
        grant.key for grant in grants
    ]


def test_a_waiting_call_fails_when_the_disk_is_full(tmp_path: Path) -> None:
    store = filled_store(tmp_path / "pool")
    clock = [1_000.0]
    full = os.open("/dev/full", os.O_WRONLY)

    async def scenario() -> None:
        pool = LocalPool(now=lambda: clock[0], pool=store.pool)
        await pool.acquire("a.example", 5)
        waiter = asyncio.create_task(pool.acquire("a.example", wait_s=20.0))
        await asyncio.sleep(0)
        os.dup2(full, store.folder._journal)
        clock[0] += 100.0  # the leases expire
        pool._queues["a.example"].serve()
        with pytest.raises(StorageFull):
            await waiter
        assert len(await pool.acquire("a.example", 4)) == 4, "the fifth is leased by the failed call"

    asyncio.run(scenario())
    os.close(full)


def test_the_journal_grows_while_no_image_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(embedded_folder, "JOURNAL_MIN", 10_000)
    store = filled_store(tmp_path / "pool", 5)
    (tmp_path / "pool" / "pool.new").mkdir()  # no image can be written
    for number in range(200):
        grant = lease_one(store.pool, "a.example", 100.0 + number)
        store.pool.release("a.example", grant.token, [Outcome()], 100.5 + number, 0.5)
    assert "the journal of the pool cannot be replaced yet" in caplog.text
    before = state_of(store.pool, 1e6)
    (tmp_path / "pool" / "pool.new").rmdir()
    assert state_of(open_store(kill(store)).pool, 1e6) == before


def test_a_record_too_long_for_the_journal_is_written_as_a_new_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_folder, "RECORD_MAX", 1_000)
    store = filled_store(tmp_path / "pool", 1)
    grant = lease_one(store.pool, "a.example", 100.0)
    store.pool.release("a.example", grant.token, [Outcome()] * 500, 101.0, 0.5)
    before = state_of(store.pool, 1e6)
    assert state_of(open_store(kill(store)).pool, 1e6) == before


@pytest.mark.parametrize("is_killed", [True, False])
def test_leases_expire_in_time_after_the_clock_is_set_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, is_killed: bool
) -> None:
    store = PoolStore(tmp_path / "pool", lambda _: TargetPolicy(), lambda: 5_000.0)
    store.pool.add(proxies(1), store.now())
    grant = lease_one(store.pool, "a.example", store.now())
    kill(store) if is_killed else store.close()
    clock = [1_000.0]
    restored = PoolStore(tmp_path / "pool", lambda _: TargetPolicy(), lambda: clock[0])
    assert "the clock was set back by 4000 s" in caplog.text
    clock[0] += 59.0
    assert isinstance(restored.pool.acquire("a.example", restored.now(), [0.0]), Wait)
    clock[0] += 2.0
    assert lease_one(restored.pool, "a.example", restored.now()).token > grant.token
    restored.close()


def test_an_error_while_reading_releases_the_folder(tmp_path: Path) -> None:
    path = kill(filled_store(tmp_path / "pool"))
    content = (path / "pool").read_bytes()
    (path / "pool").write_bytes(content[:-1])
    with pytest.raises(LycosaError):
        open_store(path)
    (path / "pool").write_bytes(content)
    assert open_store(path).pool.targets["a.example"].granted == 20
