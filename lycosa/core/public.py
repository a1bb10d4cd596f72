"""What `lycosa` exports says that it comes from there, wherever it is defined.

A pickle names the module of each class. Queues of pickles are kept, and stay readable when a class moves.
"""

from __future__ import annotations

from typing import TypeVar, get_type_hints

Named = TypeVar("Named")


def public(named: Named) -> Named:
    """Make `lycosa` the module of a class or function. Above all other decorators: they look into its own module."""
    if isinstance(named, type):
        own = vars(named).get("__annotations__")
        if own:  # as text they can be read only in the module that imports what they name
            read = type("", (), {"__annotations__": own, "__module__": named.__module__})
            named.__annotations__ = get_type_hints(read, include_extras=True)
    named.__module__ = "lycosa"
    return named
