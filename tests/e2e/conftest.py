"""What tests of whole commands share."""

from __future__ import annotations

import os
import random

import pytest


@pytest.fixture
def chance() -> random.Random:
    """Seeded by LYCOSA_TEST_SEED, or anew; the seed is printed when a test fails."""
    seed = int(os.environ.get("LYCOSA_TEST_SEED") or random.randrange(2**32))
    print(f"LYCOSA_TEST_SEED={seed}")
    return random.Random(seed)
