"""Put the compiled modules into the wheel: when they are there and made from these sources, or LYCOSA_COMPILE=1 asks.

Otherwise the wheel is pure, and needs no compiler. What makes them: scripts/compile.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILE = os.environ.get("LYCOSA_COMPILE") == "1"


class CompiledModules(BuildHookInterface[Any]):
    """What hatchling calls, for the wheel only."""

    def dependencies(self) -> list[str]:
        """Return what compiling needs: mypyc, and for the types in our modules what they import."""
        project = self.metadata.core
        compilers = [each for each in project.optional_dependencies["dev"] if each.startswith(("mypy", "setuptools"))]
        return [*project.dependencies, *compilers] if COMPILE else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files, and the tag of this Python and machine."""
        if version == "editable":
            return
        root = Path(self.root)
        if COMPILE:
            subprocess.run([sys.executable, root / "scripts" / "compile", "--must"], check=True)  # noqa: S603
        made = sorted((root / "lycosa").rglob(f"*{EXTENSION_SUFFIXES[0]}"))
        check = [sys.executable, root / "scripts" / "compile", "--check"]
        if made and not subprocess.run(check, stdout=subprocess.DEVNULL, check=False).returncode:  # noqa: S603
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"] |= {str(path): path.relative_to(root).as_posix() for path in made}
