"""Registers msgspec structs and `lycosa.Item` with itemadapter, for every `ItemAdapter`.

Import this module only when needed: itemadapter imports Scrapy if it is installed, which is slow.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView
from functools import lru_cache
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

import msgspec
from itemadapter import ItemAdapter
from itemadapter.adapter import AdapterInterface

from lycosa.crawl.items.items import Item

__all__ = ["ItemAdapter"]


class LycosaItemAdapter(AdapterInterface):
    """Adapts `lycosa.Item`, which is a mapping already."""

    @classmethod
    def is_item_class(cls, item_class: type) -> bool:
        return issubclass(item_class, Item)

    @classmethod
    def get_field_meta_from_class(cls, item_class: type[Item], field_name: str) -> MappingProxyType[str, Any]:
        if field_name not in item_class.fields:
            raise KeyError(f"{item_class.__name__} has no field {field_name!r}")
        return MappingProxyType(item_class.fields[field_name])

    @classmethod
    def get_field_names_from_class(cls, item_class: type[Item]) -> list[str]:
        return list(item_class.fields)

    def field_names(self) -> KeysView[str]:
        return KeysView(self.item.fields)

    def __getitem__(self, name: str) -> Any:
        return self.item[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.item[name] = value

    def __delitem__(self, name: str) -> None:
        del self.item[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.item)

    def __len__(self) -> int:
        return len(self.item)


class StructAdapter(AdapterInterface):
    """Adapts msgspec structs. A field that is `UNSET` is absent, as in JSON.

    The metadata of a field is the `extra` of its annotation: `title: Annotated[str, Meta(extra={...})]`.
    """

    @classmethod
    def is_item_class(cls, item_class: type) -> bool:
        return issubclass(item_class, msgspec.Struct)

    @classmethod
    def get_field_meta_from_class(cls, item_class: type[msgspec.Struct], field_name: str) -> MappingProxyType[str, Any]:
        if field_name not in item_class.__struct_fields__:
            raise KeyError(f"{item_class.__name__} has no field {field_name!r}")
        return MappingProxyType(_extras(item_class).get(field_name, {}))

    @classmethod
    def get_field_names_from_class(cls, item_class: type[msgspec.Struct]) -> list[str]:
        return list(item_class.__struct_fields__)

    def field_names(self) -> KeysView[str]:
        return KeysView(dict.fromkeys(self.item.__struct_fields__))

    def __getitem__(self, name: str) -> Any:
        value = getattr(self.item, name) if name in self.item.__struct_fields__ else msgspec.UNSET
        if value is msgspec.UNSET:
            raise KeyError(name)
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        kind = type(self.item)
        if name not in kind.__struct_fields__:
            raise KeyError(f"{kind.__name__} has no field {name!r}")
        if kind.__struct_config__.frozen:
            raise TypeError(f"{kind.__name__} is frozen: {name!r} cannot be set")
        setattr(self.item, name, value)

    def __delitem__(self, name: str) -> None:
        self[name]
        self[name] = msgspec.UNSET

    def __iter__(self) -> Iterator[str]:
        item = self.item
        return (name for name in item.__struct_fields__ if getattr(item, name) is not msgspec.UNSET)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@lru_cache(1024)
def _extras(item_class: type[msgspec.Struct]) -> dict[str, dict[str, Any]]:
    hints = get_type_hints(item_class, include_extras=True)
    return {
        name: meta.extra
        for name, hint in hints.items()
        for meta in get_args(hint)
        if isinstance(meta, msgspec.Meta) and meta.extra
    }


ItemAdapter.ADAPTER_CLASSES = [LycosaItemAdapter, StructAdapter, *ItemAdapter.ADAPTER_CLASSES]
