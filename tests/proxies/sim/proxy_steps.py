"""Random histories of a pool, step by step. A failure prints its seed and step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import redis as driver

STEPS = 150


class Comparison(Protocol):
    """The same pool in memory and on a server."""

    def step(self) -> None:
        """Make a random change to both."""

    def compare(self) -> None:
        """Assert that both are equal."""


@contextmanager
def failure_context(*context: object) -> Iterator[None]:
    """Print the context when the block fails."""
    try:
        yield
    except BaseException:
        print(*context)
        raise


def run_comparison(both: Comparison, context: object = "") -> None:
    """Run one history on both."""
    for number in range(STEPS):
        with failure_context("step", number, context):
            both.step()
            both.compare()


def run_histories(url: str, make_history: Callable[[Any, int], Any], count: int) -> None:
    """Run this many histories on the server."""
    with driver.Redis.from_url(url) as client:
        for _ in range(count):
            seed = random.randrange(1 << 32)
            print(f"history {seed}")
            make_history(client, seed).run()
