"""Processors for the values of an ItemLoader: `lycosa.processors.TakeFirst()` and others."""

from __future__ import annotations

from itemloaders.processors import Compose, Identity, Join, MapCompose, SelectJmes, TakeFirst

__all__ = ["Compose", "Identity", "Join", "MapCompose", "SelectJmes", "TakeFirst"]
