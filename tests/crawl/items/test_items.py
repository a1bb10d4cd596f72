"""Items (C2): all kinds are recognised, used as mappings and written as JSON; errors about them are one line."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Annotated, Any

import attrs
import msgspec
import pydantic
import pytest

from lycosa.core.errors import BadItem
from lycosa.crawl.items.item_errors import build_item, explain
from lycosa.crawl.items.items import Field, Item, adapt, is_item
from lycosa.storage.sinks.json_lines import to_line

URL = "https://shop.example/1"


class Own(Item):
    title = Field(shown=True)
    price = Field()


class Struct(msgspec.Struct):
    title: Annotated[str, msgspec.Meta(extra={"shown": True})] = ""
    price: float | msgspec.UnsetType = msgspec.UNSET


class Frozen(msgspec.Struct, frozen=True):
    title: str


@dataclass
class Data:
    title: str = field(default="", metadata={"shown": True})
    price: float = 0.0


@attrs.define
class Attrs:
    title: str = attrs.field(default="", metadata={"shown": True})
    price: float = 0.0


class Model(pydantic.BaseModel):
    title: str = ""
    price: float = 0.0


KINDS = [dict, Own, Struct, Data, Attrs, Model]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_an_item_and_a_mutable_mapping(kind: Any) -> None:
    item = kind(title="A", price=1.5)
    assert is_item(item)
    assert not is_item(kind)
    view = adapt(item)
    assert dict(view) == {"title": "A", "price": 1.5}
    view["title"] = "B"
    assert (item["title"] if isinstance(item, (dict, Item)) else item.title) == "B"
    assert msgspec.json.decode(to_line(item)) == {"title": "B", "price": 1.5}
    assert msgspec.json.decode(to_line({"in": [item]})) == {"in": [{"title": "B", "price": 1.5}]}


@pytest.mark.parametrize("kind", KINDS[1:])
def test_undeclared_fields_are_errors(kind: Any) -> None:
    view = adapt(kind(title="A"))
    with pytest.raises(KeyError):
        view["titel"] = "x"
    with pytest.raises(KeyError):
        view["titel"]


@pytest.mark.parametrize("kind", [Own, Struct, Data, Attrs])
def test_metadata_of_fields_are_found(kind: Any) -> None:
    from lycosa import ItemAdapter

    assert ItemAdapter(kind(title="A")).get_field_meta("title") == {"shown": True}
    assert ItemAdapter.get_field_meta_from_class(kind, "price") == {}
    assert ItemAdapter.get_field_names_from_class(kind) == ["title", "price"]
    assert set(ItemAdapter(kind(title="A")).field_names()) == {"title", "price"}
    with pytest.raises(KeyError, match="titel"):
        ItemAdapter.get_field_meta_from_class(kind, "titel")


@pytest.mark.parametrize("value", [None, 5, "text", b"x", [], (), {1}, Own, object()])
def test_other_values_are_no_items(value: Any) -> None:
    assert not is_item(value)
    with pytest.raises(TypeError):
        adapt(value)


def test_the_item_adapter_of_itemadapter_knows_all_kinds() -> None:
    import itemadapter

    import lycosa

    assert itemadapter.ItemAdapter is lycosa.ItemAdapter
    nested = itemadapter.ItemAdapter(Own(title=Struct(title="in", price=1.0))).asdict()
    assert nested == {"title": {"title": "in", "price": 1.0}}
    assert itemadapter.is_item(Struct())


def test_is_item_imports_no_library() -> None:
    code = """
import sys, dataclasses
from lycosa.crawl.items.items import Field, Item, is_item
from lycosa.storage.sinks.json_lines import to_line
class Own(Item):
    a = Field()
assert is_item(Own(a=1)) and to_line(Own(a={1})) and is_item(dataclasses.make_dataclass('D', 'a')(1))
assert not is_item(5) and not is_item(object())
print([name for name in ('scrapy', 'itemadapter', 'pydantic', 'attr') if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_scrapy_items_and_kinds_registered_with_itemadapter_are_items() -> None:
    code = """
import scrapy
from lycosa.crawl.items.items import adapt, is_item
from lycosa.storage.sinks.json_lines import to_line
class Old(scrapy.Item):
    a = scrapy.Field()
assert is_item(Old(a=1)) and dict(adapt(Old(a=1))) == {'a': 1} and to_line(Old(a=1)) == b'{"a":1}'
from itemadapter.adapter import ItemAdapter, DictAdapter
class Pairs:
    def __init__(self): self.d = {'a': 1}
class PairsAdapter(DictAdapter):
    def __init__(self, item): self.item = item.d
    @classmethod
    def is_item(cls, item): return isinstance(item, Pairs)
assert not is_item(Pairs())
ItemAdapter.ADAPTER_CLASSES = [*ItemAdapter.ADAPTER_CLASSES, PairsAdapter]
assert is_item(Pairs()) and to_line(Pairs()) == b'{"a":1}'
print('good')
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "good", done.stderr


def test_an_unset_field_of_a_struct_is_absent() -> None:
    item = Struct(title="A", price=1.0)
    view = adapt(item)
    del view["price"]
    assert dict(view) == {"title": "A"}
    assert len(view) == 1
    assert to_line(item) == b'{"title":"A"}'
    with pytest.raises(KeyError):
        del view["price"]


def test_setting_a_field_of_a_frozen_struct_is_an_error() -> None:
    with pytest.raises(TypeError, match="Frozen is frozen: 'title' cannot be set"):
        adapt(Frozen("A"))["title"] = "B"


# --------------------------------------------------------------------------------------------------------- lycosa.Item


def test_an_error_about_an_unknown_field_suggests_the_nearest() -> None:
    with pytest.raises(KeyError, match=r"Own has no field 'titel': did you mean 'title'\?"):
        Own(titel="x")
    with pytest.raises(KeyError, match="Own has no field 'isbn': write isbn = Field"):
        Own()["isbn"] = 1
    item = Own()
    for change in ({"isbn": 1}, [("isbn", 1)]):
        with pytest.raises(KeyError):
            item.update(change)
    with pytest.raises(KeyError):
        item.setdefault("isbn", 1)


def test_fields_are_not_attributes() -> None:
    item = Own(title="A")
    with pytest.raises(AttributeError, match=r"read a field of an item as item\['title'\]"):
        item.title  # noqa: B018
    with pytest.raises(AttributeError, match=r"set a field of an item as item\['title'\]"):
        item.title = "B"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        item.nothing  # noqa: B018
    item._private = 1
    assert item._private == 1


def test_an_item_is_a_mapping_of_its_fields() -> None:
    item = Own({"title": "A"}, price=2)
    assert item == {"title": "A", "price": 2}
    assert repr(item) == "Own({'title': 'A', 'price': 2})"
    assert (len(item), list(item), "price" in item, item.get("isbn", 7)) == (2, ["title", "price"], True, 7)
    del item["price"]
    assert dict(item) == {"title": "A"}
    with pytest.raises(KeyError):
        item["price"]


def test_copies_are_independent() -> None:
    item = Own(title=["A"])
    for copied in (item.copy(), copy.copy(item)):
        copied["price"] = 1
        assert "price" not in item
        assert copied["title"] is item["title"]
    for copied in (item.deepcopy(), copy.deepcopy(item), pickle.loads(pickle.dumps(item))):
        assert copied == item
        assert type(copied) is Own
        assert copied["title"] is not item["title"]


class First(Item):
    a = Field(n=1)
    b = Field()


class Second(Item):
    a = Field(n=2)
    c = Field()


class Both(First, Second):
    keys = Field()
    d = Field(First.fields["a"], more=True)


class WithDict(First):
    fields = {"e": Field()}


class Base(Item):
    a = Field(by="base")
    b = Field(by="base")


class Left(Base):
    a = Field(by="left")


class Right(Base):
    b = Field(by="right")


class Diamond(Left, Right):
    pass


def test_fields_in_diamond_inheritance_are_resolved_like_attributes() -> None:
    assert Diamond.fields == {"a": {"by": "left"}, "b": {"by": "right"}}


def test_fields_are_inherited_and_overridden_in_the_order_of_the_classes() -> None:
    assert Both.fields == {"a": {"n": 1}, "c": {}, "b": {}, "keys": {}, "d": {"n": 1, "more": True}}
    assert list(First.fields) == ["a", "b"]
    assert list(WithDict.fields) == ["a", "b", "e"]
    assert Both(a=1, keys=2) == {"a": 1, "keys": 2}  # a field may have the name of a method


# ------------------------------------------------------------------------------------------------------------ failures


class Book(msgspec.Struct):
    title: str
    price: float = 0.0
    tags: list[int] = []


class BookModel(pydantic.BaseModel):
    title: str
    price: float = 0.0
    tags: list[int] = []


@attrs.define
class BookAttrs:
    title: str
    price: float = attrs.field(default=0.0, validator=attrs.validators.instance_of(float))
    size: int = attrs.field(default=0, validator=attrs.validators.ge(0))


@dataclass
class BookData:
    title: str
    price: float = 0.0


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (Book, {"title": "A", "price": "n/a"}, 'price: expected float, got "n/a" (Book)'),
        (Book, {"title": "A", "tags": [1, "x"]}, 'tags[1]: expected int, got "x" (Book)'),
        (Book, {"price": 1}, "title: is missing (Book)"),
        (Book, {"title": 5}, "title: expected str, got 5 (Book)"),
        (BookModel, {"price": 1}, "title: is missing (BookModel)"),
        (BookModel, {"title": "A", "tags": [1, "x"]}, "tags[1]: input should be a valid integer, unable"),
        (BookModel, {"title": "A", "price": "n/a"}, 'parse string as a number, got "n/a" (BookModel)'),
        (BookModel, {"price": "x" * 99, "tags": 5}, "title: is missing; price: input"),
        (BookModel, {"price": "x", "tags": ["a", "b", "c"]}, "; and 2 more (BookModel)"),
        (BookAttrs, {"title": "A", "price": "n/a"}, 'price: expected float, got "n/a" (BookAttrs)'),
        (BookAttrs, {"price": 1.0}, "title: is missing (BookAttrs)"),
        (BookAttrs, {"title": "A", "isbn": 1}, "isbn: is not a field (BookAttrs)"),
        (BookData, {"price": 1.0}, "title: is missing (BookData)"),
    ],
)
def test_an_error_about_wrong_values_names_field_and_class(kind: Any, values: dict[str, Any], message: str) -> None:
    with pytest.raises(BadItem) as caught:
        build_item(kind, values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_valid_values_make_an_item() -> None:
    assert build_item(Book, {"title": "A", "price": "1.5"}) == Book("A", 1.5)
    assert build_item(BookModel, {"title": "A", "price": "1.5"}) == BookModel(title="A", price=1.5)


def test_errors_about_an_item_are_explained_with_the_url() -> None:
    def line_of(act: Any) -> str | None:
        with pytest.raises(Exception) as caught:
            act()
        return explain(caught.value, URL)

    assert (
        line_of(lambda: build_item(Book, {"title": "A", "price": "n/a"}))
        == f'price: expected float, got "n/a" (Book on {URL})'
    )
    assert line_of(lambda: msgspec.convert({"title": 5}, Book)) == f"title: expected str, got int (on {URL})"
    assert line_of(lambda: BookModel(price="x", title="A")).endswith(f'got "x" (BookModel on {URL})')
    assert line_of(lambda: BookAttrs("A", "x")) == f'price: expected float, got "x" (on {URL})'
    assert line_of(lambda: BookAttrs("A", 1.0, -1)).startswith("size: must be >= 0: -1 (on ")
    assert line_of(lambda: to_line(Book("A", tags=[object()]))) == (
        "tags[0]: a 'object' cannot be written; only text, numbers, dates, bytes, lists, dicts and items can "
        f"(Book on {URL})"
    )
    assert explain(BadItem("no price (5)"), URL) == f"no price (5) (on {URL})"
    assert explain(BadItem("no price")) == "no price"
    assert explain(BadItem("price: is missing (Book)")) == "price: is missing (Book)"
    assert line_of(lambda: int("x")) is None
    assert line_of(lambda: {}["x"]) is None
