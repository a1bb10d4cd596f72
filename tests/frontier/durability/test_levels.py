"""Levels of fingerprints (F2, F6): compaction from L0 to L1, and look-ups that return the latest write."""

from __future__ import annotations

import random

import pytest

from lycosa.frontier.lsm import levels
from lycosa.frontier.lsm.levels import Levels
from lycosa.frontier.lsm.lmdb import KINDS, SEEN_L0A, SEEN_L0B, SEEN_L1, Database, table_number

SEGMENTS = [table_number(SEEN_L1, segment) for segment in range(3)]
STEPS, STEPS_MAX = 800, 8000


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(levels, "L0_MAX", 20)
    monkeypatch.setattr(levels, "SCAN_ROWS", 7)


class History:
    """Random checkpoints, compaction steps, commits and kills. `rows` were committed and must be found."""

    def __init__(self, path, rng):
        self.path, self.rng = path, rng
        self.rows = {seen: {} for seen in SEGMENTS}
        self.pending = {seen: {} for seen in SEGMENTS}
        self.arrivals = self.rotations = self.compactions = 0
        self.open()

    def open(self):
        self.database = Database(self.path, sync=False)
        self.levels = Levels(self.database)

    def commit(self):
        self.database.commit()
        for seen, rows in self.pending.items():
            self.rows[seen] |= rows
            rows.clear()

    def checkpoint(self):
        """Write some new and some known fingerprints, in one or several segments."""
        written = self.rng.sample(SEGMENTS, self.rng.randint(1, 3))
        for seen in written:
            chosen = sorted(self.rng.sample(range(500), 8))
            for fingerprint in chosen:
                self.arrivals += 1
                self.pending[seen][fingerprint] = self.arrivals.to_bytes(6, "big")
            self.levels.write(seen, [(each, self.pending[seen][each]) for each in chosen])
        before = self.levels.compacting
        self.levels.rotate_if_full(written)
        self.rotations += self.levels.compacting and not before

    def compact(self):
        self.compactions += self.levels.compacting
        self.levels.compact(self.rng.randint(1, 15))

    def kill(self):
        """Lose the uncommitted changes."""
        self.database.close()
        for rows in self.pending.values():
            rows.clear()
        self.open()

    def step(self):
        action = self.rng.choices([self.checkpoint, self.compact, self.commit, self.kill], [30, 30, 30, 5])
        action[0]()

    def check(self):
        for seen in SEGMENTS:
            expected = self.rows[seen] | self.pending[seen]
            for fingerprint in range(500):
                assert self.levels.find(seen, fingerprint) == expected.get(fingerprint)
                assert self.levels.has(seen, fingerprint) == (fingerprint in expected)
            assert {int.from_bytes(key) for key in self.levels.keys(seen, bytes(7))} == {n for n in expected if n < 256}
            assert sorted(self.levels.fingerprints(seen)) == sorted(expected)


def test_a_look_up_returns_the_latest_write(tmp_path, small):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    history = History(tmp_path, random.Random(seed))
    for step in range(STEPS_MAX):
        history.step()
        if step % 20 == 0:
            history.check()
        if step >= STEPS and history.rotations > 2 and history.compactions > 20:
            break
    history.check()
    assert history.rotations > 2
    assert history.compactions > 20
    while history.levels.compacting:
        history.levels.compact(100)
    history.check()
    l0 = [table for table in history.database.tables() if table % KINDS in (SEEN_L0A, SEEN_L0B)]
    assert min(map(history.database.count, l0)) == 0, "one of the L0 tables is empty"
    history.database.close()


def test_a_segment_that_is_dropped_during_its_compaction_is_removed(tmp_path, small):
    history = History(tmp_path, random.Random(1))
    first, second, _ = SEGMENTS
    for seen in (first, second):
        history.levels.write(seen, [(each, b"mark") for each in range(30)])
    history.levels.rotate_if_full([first, second])
    history.levels.compact(5)
    tables = [seen - SEEN_L1 + kind for seen in (first, second) for kind in (SEEN_L1, SEEN_L0A, SEEN_L0B)]
    assert sorted(map(history.database.count, tables)) == [0, 0, 0, 5, 25, 30], "a row is in one table only"
    for kind in (SEEN_L1, SEEN_L0A, SEEN_L0B):
        history.database.drop(second - SEEN_L1 + kind)
    history.levels.forget(second)
    history.database.commit()
    assert not history.levels.has(second, 3)
    while history.levels.compacting:
        history.levels.compact(10)
    assert sorted(history.levels.fingerprints(first)) == [*range(30)]
    assert [*history.levels.fingerprints(second)] == []
    history.database.close()
