"""Give exported classes and functions the module `lycosa`, so that pickles stay readable when a class moves."""

from __future__ import annotations

from typing import TypeVar, get_type_hints

Named = TypeVar("Named")


def public(named: Named) -> Named:
    """Set the module to `lycosa`. Must be the top decorator, because other decorators need the real module."""
    if isinstance(named, type):
        own = vars(named).get("__annotations__")
        if own:  # string annotations can be resolved only in the module that imports the names
            read = type("", (), {"__annotations__": own, "__module__": named.__module__})
            named.__annotations__ = get_type_hints(read, include_extras=True)
    named.__module__ = "lycosa"
    return named
