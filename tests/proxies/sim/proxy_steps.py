"""Random histories of a pool, step by step. A failure prints what is needed to repeat it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import redis as driver

STEPS = 150


class Comparison(Protocol):
    """The same object in memory and on a server."""

    def step(self) -> None:
        """Make a random change to both."""

    def compare(self) -> None:
        """Assert that both are equal."""


@contextmanager
def failure_context(*about: object) -> Iterator[None]:
    """Print the context when the block fails."""
    try:
        yield
    except BaseException:
        print(*about)
        raise


def run_comparison(both: Comparison, about: object = "") -> None:
    """Run one history on both."""
    for number in range(STEPS):
        with failure_context("step", number, about):
            both.step()
            both.compare()


def run_histories(url: str, made: Callable[[Any, int], Any], count: int) -> None:
    """Run so many histories on the server."""
    with driver.Redis.from_url(url) as client:
        for _ in range(count):
            seed = random.randrange(1 << 32)
            print(f"history {seed}")
            made(client, seed).run()
