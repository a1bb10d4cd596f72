"""How many examples hypothesis tries here, each time others."""

from __future__ import annotations

from hypothesis import settings

from tests.conftest import PROVE

# No deadline: how long one example takes says more of the machine than of what is tested.
settings.register_profile("core", max_examples=100 if PROVE else 30, deadline=None)
settings.load_profile("core")
