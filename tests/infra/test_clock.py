"""The clock of a crawl when the wall clock is set, and when the machine sleeps (F3)."""

from __future__ import annotations

import random

import pytest

from lycosa.infra.clock import CHECK_S, SLOWEST, Clock

MIDNIGHT = 1_795_305_600.0
HOUR_S = 3600.0


class Machine:
    """A wall clock that can be set, and a monotonic one that stops while the machine sleeps."""

    def __init__(self) -> None:
        self.wall, self.monotonic = MIDNIGHT, 5000.0

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.monotonic)

    def runs(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


def test_it_agrees_with_the_wall_clock():
    machine = Machine()
    clock = machine.clock()
    for _ in range(1000):
        machine.runs(0.7)
        assert clock.now() == pytest.approx(machine.wall, abs=1e-6)


@pytest.mark.parametrize("leap_s", [0.2, 8 * HOUR_S])
def test_after_a_jump_forward_it_agrees_again_at_the_next_check(leap_s):
    machine = Machine()
    clock = machine.clock()
    machine.runs(1.0)
    machine.wall += leap_s
    machine.runs(CHECK_S)
    assert clock.now() == pytest.approx(machine.wall, abs=1e-6)


def test_after_a_jump_back_it_runs_more_slowly_until_it_agrees_again():
    machine = Machine()
    clock = machine.clock()
    machine.wall -= HOUR_S
    before, seconds = clock.now(), 0
    while clock.now() - machine.wall > 0.001:
        machine.runs(1.0)
        seconds += 1
        assert SLOWEST * 0.99 <= clock.now() - before <= 1.001, "neither backwards nor stopped nor too fast"
        before = clock.now()
        assert seconds < 3 * HOUR_S
    assert seconds == pytest.approx(HOUR_S / (1 - SLOWEST), abs=3 * CHECK_S)


def test_it_never_goes_backwards():
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng, machine = random.Random(seed), Machine()
    clock = machine.clock()
    before = clock.now()
    for _ in range(20_000):
        machine.runs(rng.choice([0.0, 0.001, 0.5, 3.0, 60.0]))
        if rng.random() < 0.01:
            machine.wall += rng.choice([-HOUR_S, -1.0, -0.001, 0.001, 1.0, HOUR_S])
        assert clock.now() >= before
        before = clock.now()
    machine.runs(0.0)
    for _ in range(int(1000 * HOUR_S / 60)):
        machine.runs(60.0)
        clock.now()
    assert clock.now() == pytest.approx(machine.wall, abs=0.01), "it agrees in the end"
