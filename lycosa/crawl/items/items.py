"""What an item may be, and one way to look into all kinds of them.

Items are dicts, our own `Item`, msgspec structs, dataclasses, attrs classes, pydantic models and Scrapy's items.
`is_item` tells them by their type, and loads no library to do so: what has made an item has been loaded by its maker.
`adapt` gives a mutable mapping of any of them, `lycosa.ItemAdapter` (itemadapter's, which knows all of them) more.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, MutableMapping
from difflib import get_close_matches
from typing import Any, ClassVar, Self

import msgspec

from lycosa.core.public import public

MARKS = ("__dataclass_fields__", "__attrs_attrs__")
"""Attributes of classes whose objects are items."""

MODELS = (("pydantic", "BaseModel"), ("pydantic.v1", "BaseModel"))
SCRAPY = ("scrapy.item", "Item")
"""Base classes of items, and the modules that have them if anybody has loaded them."""


@public
class Field(dict[str, Any]):
    """A field of an `Item`, with what is to be known about it: `Field(output_processor=TakeFirst())`."""


@public
class Item(MutableMapping[str, Any]):
    """A dict of declared fields: `class Book(Item): title = Field()`. Raises `KeyError` for any other field."""

    fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inherited = [base.__dict__.get("fields", {}) for base in reversed(cls.__mro__)]
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
        for name in own:
            delattr(cls, name)  # so that item.title is an error: the field is item["title"]
        cls.fields = {name: field for fields in [*inherited, own] for name, field in fields.items()}

    def __init__(self, *pairs: Any, **values: Any) -> None:
        self._values: dict[str, Any] = {}
        self.update(*pairs, **values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self.fields:
            raise KeyError(_unknown(type(self).__name__, name, self.fields))
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        if name in type(self).fields:
            raise AttributeError(f"a field of an item is read as item[{name!r}]")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise AttributeError(f"a field of an item is set as item[{name!r}] = ...")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values!r})"

    def __copy__(self) -> Self:
        return type(self)(self)

    def copy(self) -> Self:
        """Return a copy with the same values."""
        return copy.copy(self)

    def deepcopy(self) -> Self:
        """Return a copy with copied values."""
        return copy.deepcopy(self)


def _unknown(kind: str, name: str, fields: dict[str, Field]) -> str:
    near = get_close_matches(str(name), fields, 1, 0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"write {name} = Field() in the class"
    return f"{kind} has no field {name!r}: {hint}"


def is_item(value: object) -> bool:
    """Return whether the value is an item."""
    if isinstance(value, (dict, msgspec.Struct, Item)):
        return True
    kind = type(value)
    if kind is type:
        return False
    if any(hasattr(kind, mark) for mark in MARKS):
        return True
    if any(isinstance(value, _loaded(module, name)) for module, name in (*MODELS, SCRAPY)):
        return True
    adapter = _loaded("itemadapter", "ItemAdapter")  # somebody may have taught it more
    return bool(adapter) and bool(adapter.is_item(value))


def validates(item_class: Any) -> bool:
    """Return whether a class of items wants all values at once: others are made empty and filled."""
    if not isinstance(item_class, type):
        return False
    models = [base for module, name in MODELS if (base := _loaded(module, name))]
    return issubclass(item_class, (msgspec.Struct, *models)) or any(hasattr(item_class, mark) for mark in MARKS)


def _loaded(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, ())


def adapt(item: Any) -> MutableMapping[str, Any]:
    """Return the item as a mapping whose changes are changes of the item. Raises `TypeError` when it is none."""
    if isinstance(item, (dict, Item)):
        return item
    from lycosa.crawl.items.adapters import ItemAdapter

    return ItemAdapter(item)
