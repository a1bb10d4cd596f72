"""`lycosa version`."""

from __future__ import annotations

import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version

import click

from lycosa import __version__


@click.command("version")
@click.option("-v", "--verbose", is_flag=True, help="Also show the libraries and the platform, for a bug report.")
def command(*, verbose: bool) -> None:
    """Show the version."""
    lines = {"lycosa": __version__}
    if verbose:
        lines |= {"python": platform.python_version(), "platform": platform.platform(), **_libraries()}
    width = max(map(len, lines)) if verbose else 0
    for name, text in lines.items():
        print(f"{name:<{width}} {text}")


def _libraries() -> dict[str, str]:
    versions = {}
    try:
        required = [line for line in requires("lycosa") or () if "extra ==" not in line]
    except PackageNotFoundError:
        return {}
    for name in sorted(re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in required):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "missing"
    return versions
