"""Lycosa with its frontier in memory, which no option offers: `python bench/peers/lycosa_memory.py crawl URL...`.

Everything else is the command as it is: the difference to it is what the durable frontier costs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from lycosa.app import crawl
from lycosa.cli.main import main
from lycosa.core.frontier import Policy
from lycosa.frontiers.memory import memory_frontier


def frontier(_path: Path, policy: Policy, **_options: Any) -> Any:
    return memory_frontier(policy)


assert crawl.embedded_frontier, "what this replaces"
crawl.embedded_frontier = frontier

if __name__ == "__main__":
    sys.exit(main())
