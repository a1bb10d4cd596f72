"""The kinds of items.

Items are dicts, `lycosa.Item`, msgspec structs, dataclasses, attrs classes, pydantic models and Scrapy's items.
`is_item` imports no library: if a library is not loaded, the object cannot be one of its items.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, MutableMapping
from difflib import get_close_matches
from typing import Any, ClassVar, Self

import msgspec

from lycosa.core.public import public

CLASS_MARKERS = ("__dataclass_fields__", "__attrs_attrs__")

MODELS = (("pydantic", "BaseModel"), ("pydantic.v1", "BaseModel"))
SCRAPY = ("scrapy.item", "Item")
"""Modules and names of base classes of items."""


@public
class Field(dict[str, Any]):
    """A field of an `Item`, with its metadata: `Field(output_processor=TakeFirst())`."""


@public
class Item(MutableMapping[str, Any]):
    """A dict with declared fields: `class Book(Item): title = Field()`. Raises `KeyError` for other fields."""

    fields: ClassVar[dict[str, Field]] = {}
    _own_fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = {name: value for name, value in vars(cls).items() if isinstance(value, Field)}
        for name in own:
            delattr(cls, name)  # makes item.title an error; item["title"] is right
        cls._own_fields = {**vars(cls).get("fields", {}), **own}
        declared = [vars(base).get("_own_fields", {}) for base in reversed(cls.__mro__)]
        cls.fields = {name: field for fields in declared for name, field in fields.items()}

    def __init__(self, *pairs: Any, **values: Any) -> None:
        self._values: dict[str, Any] = {}
        self.update(*pairs, **values)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self.fields:
            near = get_close_matches(str(name), self.fields, 1, 0.6)
            hint = f"did you mean {near[0]!r}?" if near else f"write {name} = Field() in the class"
            raise KeyError(f"{type(self).__name__} has no field {name!r}: {hint}")
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        if name in type(self).fields:
            raise AttributeError(f"read a field of an item as item[{name!r}]")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise AttributeError(f"set a field of an item as item[{name!r}] = ...")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values!r})"

    def __copy__(self) -> Self:
        return type(self)(self)

    def copy(self) -> Self:
        return copy.copy(self)

    def deepcopy(self) -> Self:
        return copy.deepcopy(self)


def is_item(value: object) -> bool:
    """Whether the value is an item."""
    if isinstance(value, (dict, msgspec.Struct, Item)):
        return True
    kind = type(value)
    if kind is type:
        return False
    if any(hasattr(kind, marker) for marker in CLASS_MARKERS):
        return True
    if any(isinstance(value, _loaded(module, name)) for module, name in (*MODELS, SCRAPY)):
        return True
    adapter = _loaded("itemadapter", "ItemAdapter")  # users may have registered further kinds with it
    return bool(adapter) and bool(adapter.is_item(value))


def validates(item_class: Any) -> bool:
    """Whether an item of this class needs all values when it is created. Other items are created empty."""
    if not isinstance(item_class, type):
        return False
    models = [base for module, name in MODELS if (base := _loaded(module, name))]
    return issubclass(item_class, (msgspec.Struct, *models)) or any(
        hasattr(item_class, marker) for marker in CLASS_MARKERS
    )


def _loaded(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, ())


def adapt(item: Any) -> MutableMapping[str, Any]:
    """Return a mapping that reads and changes the item. Raises `TypeError` if `item` is not an item."""
    if isinstance(item, (dict, Item)):
        return item
    from lycosa.crawl.items.adapters import ItemAdapter

    return ItemAdapter(item)
