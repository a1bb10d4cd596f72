"""Random histories of a pool of proxies, step by step: what a failure needs to be played again is printed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import redis as driver

STEPS = 150


class Beside(Protocol):
    """Two of the same, one of which is on a server."""

    def step(self) -> None:
        """Let something happen to both."""

    def compare(self) -> None:
        """Assert that they are alike."""


@contextmanager
def told(*about: object) -> Iterator[None]:
    """Print this when the block fails."""
    try:
        yield
    except BaseException:
        print(*about)
        raise


def run_beside(both: Beside, about: object = "") -> None:
    """Play one history on both."""
    for number in range(STEPS):
        with told("step", number, about):
            both.step()
            both.compare()


def run_histories(url: str, made: Callable[[Any, int], Any], count: int) -> None:
    """Run so many histories on the server."""
    with driver.Redis.from_url(url) as client:
        for _ in range(count):
            seed = random.randrange(1 << 32)
            print(f"history {seed}")
            made(client, seed).run()
