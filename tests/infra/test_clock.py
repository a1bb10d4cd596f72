"""The clock of a crawl when the wall clock is set, and when the machine is suspended (F3)."""

from __future__ import annotations

import random

import pytest

from lycosa.infra.clock import CHECK_S, SLOWEST, Clock

MIDNIGHT = 1_795_305_600.0
HOUR_S = 3600.0


class Machine:
    """A wall clock that can be set, and a monotonic one that stops while the machine is suspended."""

    def __init__(self) -> None:
        self.wall, self.monotonic = MIDNIGHT, 5000.0

    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.monotonic)

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


def test_the_clock_agrees_with_the_wall_clock():
    machine = Machine()
    clock = machine.clock()
    for _ in range(1000):
        machine.advance(0.7)
        assert clock.now() == pytest.approx(machine.wall, abs=1e-6)


@pytest.mark.parametrize("jump_s", [0.2, 8 * HOUR_S])
def test_a_forward_jump_is_followed_at_the_next_check(jump_s):
    machine = Machine()
    clock = machine.clock()
    machine.advance(1.0)
    machine.wall += jump_s
    machine.advance(CHECK_S)
    assert clock.now() == pytest.approx(machine.wall, abs=1e-6)


def test_after_a_backward_jump_the_clock_runs_more_slowly_until_it_agrees():
    machine = Machine()
    clock = machine.clock()
    machine.wall -= HOUR_S
    previous, seconds = clock.now(), 0
    while clock.now() - machine.wall > 0.001:
        machine.advance(1.0)
        seconds += 1
        assert SLOWEST * 0.99 <= clock.now() - previous <= 1.001, "it must not go back, stop, or run too fast"
        previous = clock.now()
        assert seconds < 3 * HOUR_S
    assert seconds == pytest.approx(HOUR_S / (1 - SLOWEST), abs=3 * CHECK_S)


def test_the_clock_never_goes_back():
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng, machine = random.Random(seed), Machine()
    clock = machine.clock()
    previous = clock.now()
    for _ in range(20_000):
        machine.advance(rng.choice([0.0, 0.001, 0.5, 3.0, 60.0]))
        if rng.random() < 0.01:
            machine.wall += rng.choice([-HOUR_S, -1.0, -0.001, 0.001, 1.0, HOUR_S])
        assert clock.now() >= previous
        previous = clock.now()
    machine.advance(0.0)
    for _ in range(int(1000 * HOUR_S / 60)):
        machine.advance(60.0)
        clock.now()
    assert clock.now() == pytest.approx(machine.wall, abs=0.01), "it must agree in the end"
