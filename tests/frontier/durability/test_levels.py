"""F2, F6: fingerprints gather in a small table and sink into the large one; who asks is told what was written last."""

from __future__ import annotations

import random

import pytest

from lycosa.frontier.lsm import levels
from lycosa.frontier.lsm.levels import Levels
from lycosa.frontier.lsm.lmdb import KINDS, LATE, LATER, SEEN, Database, number

SEGMENTS = [number(SEEN, segment) for segment in range(3)]
STEPS, STEPS_MAX = 800, 8000


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(levels, "LATE_MAX", 20)
    monkeypatch.setattr(levels, "SCAN_ROWS", 7)


class Story:
    """Random checkpoints, slices, kills and settlings; `rows` is what was committed and must be there."""

    def __init__(self, path, chance):
        self.path, self.chance = path, chance
        self.rows = {seen: {} for seen in SEGMENTS}
        self.pending = {seen: {} for seen in SEGMENTS}
        self.arrivals = self.turns = self.sunk = 0
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
        """Write some fingerprints, new ones and others, in one or several segments."""
        written = self.chance.sample(SEGMENTS, self.chance.randint(1, 3))
        for seen in written:
            chosen = sorted(self.chance.sample(range(500), 8))
            for fingerprint in chosen:
                self.arrivals += 1
                self.pending[seen][fingerprint] = self.arrivals.to_bytes(6, "big")
            self.levels.write(seen, [(each, self.pending[seen][each]) for each in chosen])
        before = self.levels.sinking
        self.levels.change_places(written)
        self.turns += self.levels.sinking and not before

    def slice(self):
        self.sunk += self.levels.sinking
        self.levels.sink(self.chance.randint(1, 15))

    def kill(self):
        """What was not committed is gone."""
        self.database.close()
        for rows in self.pending.values():
            rows.clear()
        self.open()

    def step(self):
        what = self.chance.choices([self.checkpoint, self.slice, self.commit, self.kill], [30, 30, 30, 5])
        what[0]()

    def check(self):
        for seen in SEGMENTS:
            now = self.rows[seen] | self.pending[seen]
            for fingerprint in range(500):
                assert self.levels.find(seen, fingerprint) == now.get(fingerprint)
                assert self.levels.has(seen, fingerprint) == (fingerprint in now)
            assert sorted(self.levels.fingerprints(seen)) == sorted(now)


def test_what_was_written_last_is_what_is_found(tmp_path, small):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    story = Story(tmp_path, random.Random(seed))
    for step in range(STEPS_MAX):
        story.step()
        if step % 20 == 0:
            story.check()
        if step >= STEPS and story.turns > 2 and story.sunk > 20:
            break
    story.check()
    assert story.turns > 2
    assert story.sunk > 20
    while story.levels.sinking:
        story.levels.sink(100)
    story.check()
    late = [table for table in story.database.tables() if table % KINDS in (LATE, LATER)]
    assert min(map(story.database.count, late)) == 0, "one is empty"
    story.database.close()


def test_a_segment_that_is_dropped_while_it_sinks_is_gone(tmp_path, small):
    story = Story(tmp_path, random.Random(1))
    first, second, _ = SEGMENTS
    for seen in (first, second):
        story.levels.write(seen, [(each, b"mark") for each in range(30)])
    story.levels.change_places([first, second])
    story.levels.sink(5)
    for kind in (SEEN, LATE, LATER):
        story.database.drop(second - SEEN + kind)
    story.levels.forget(second)
    story.database.commit()
    assert not story.levels.has(second, 3)
    while story.levels.sinking:
        story.levels.sink(10)
    assert sorted(story.levels.fingerprints(first)) == [*range(30)]
    assert [*story.levels.fingerprints(second)] == []
    story.database.close()
