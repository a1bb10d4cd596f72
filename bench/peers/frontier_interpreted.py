"""Our durable frontier, interpreted even if it is compiled: the difference to the compiled one is the gain."""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader

# A module that exists both as source and compiled is loaded by the loader that is named first here.
sys.path_hooks.insert(0, FileFinder.path_hook((SourceFileLoader, [".py"]), (ExtensionFileLoader, EXTENSION_SUFFIXES)))
sys.path_importer_cache.clear()

from frontier_lycosa import Peer  # noqa: E402

from lycosa.frontier.lsm import store  # noqa: E402

assert store.__file__.endswith(".py")

__all__ = ["Peer"]
