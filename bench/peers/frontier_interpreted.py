"""Our durable frontier, interpreted even if it is compiled: the difference is the gain of compiling."""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader

# Where a module is there both ways, the first one is taken.
sys.path_hooks.insert(0, FileFinder.path_hook((SourceFileLoader, [".py"]), (ExtensionFileLoader, EXTENSION_SUFFIXES)))
sys.path_importer_cache.clear()

from frontier_lycosa import Peer  # noqa: E402

from lycosa.frontier.lsm import store  # noqa: E402

assert store.__file__.endswith(".py")

__all__ = ["Peer"]
