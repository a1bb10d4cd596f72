"""ItemLoader (C2): works with our responses and all kinds of items, which are validated at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import attrs
import msgspec
import pydantic
import pytest
from parsel import Selector

from lycosa import Field, Item, ItemLoader
from lycosa.core.errors import BadItem
from lycosa.processors import Compose, Identity, Join, MapCompose, SelectJmes, TakeFirst

PAGE = """<html><body><h1> The  Book </h1><p class=price>12.50</p><ul><li>a</li><li>b</li></ul>
<div id=about><a href=/x>first</a><b>second</b></div></body></html>"""


class Page:
    """The parts of a response that a loader uses."""

    def __init__(self, text: str, content_type: str = "text/html") -> None:
        self.text = text
        self.content_type = content_type
        self.selector = Selector(text=text)


class Struct(msgspec.Struct):
    title: Annotated[str, msgspec.Meta(extra={"output_processor": TakeFirst()})]
    price: float
    tags: list[str] = []


class Model(pydantic.BaseModel):
    title: str
    price: float
    tags: list[str] = []


@attrs.define
class Attrs:
    title: str
    price: float = attrs.field(converter=float)
    tags: list[str] = attrs.field(factory=list, metadata={"output_processor": Identity()})


@dataclass
class Data:
    title: str
    price: Any
    tags: list[str] = field(default_factory=list)


class Own(Item):
    title = Field()
    price = Field()
    tags = Field()


class BookLoader(ItemLoader):
    title_in = MapCompose(str.split)
    title_out = Join()
    price_out = TakeFirst()


@pytest.mark.parametrize("kind", [dict, Own, Struct, Model, Attrs, Data])
def test_every_kind_of_item_is_loaded(kind: Any) -> None:
    class Loader(BookLoader):
        default_item_class = kind

    loader = Loader(response=Page(PAGE))
    loader.add_css("title", "h1::text")
    loader.add_xpath("price", "//p[@class='price']/text()")
    loader.nested_css("ul").add_css("tags", "li::text")
    item = loader.load_item()
    assert type(item) is kind
    get = item.get if isinstance(item, (dict, Item)) else lambda name: getattr(item, name)
    assert get("title") == "The Book"
    assert float(get("price")) == 12.5
    assert get("tags") == ["a", "b"]


def test_an_existing_item_is_filled() -> None:
    given = Own(title="old", tags=["x"])
    loader = ItemLoader(given, response=Page(PAGE))
    loader.add_css("tags", "li::text")
    assert loader.load_item() is given
    assert given == {"title": ["old"], "tags": ["x", "a", "b"]}


def test_an_existing_struct_is_filled() -> None:
    given = Struct("old", 1.0, ["x"])
    loader = BookLoader(given)
    loader.add_value("tags", ["y"])
    assert loader.load_item() is given
    assert given == Struct("old", 1.0, ["x", "y"])


@pytest.mark.parametrize("kind", [Struct, Model])
def test_wrong_values_are_reported(kind: Any) -> None:
    class Loader(BookLoader):
        default_item_class = kind

    loader = Loader(response=Page(PAGE))
    loader.add_css("title", "h1::text")
    with pytest.raises(BadItem, match=f"price: is missing \\({kind.__name__}\\)"):
        loader.load_item()
    loader.add_value("price", "n/a")
    with pytest.raises(BadItem, match=r'price: .*, got "n/a"'):
        loader.load_item()
    with pytest.raises(BadItem, match=f"isbn: is not a field \\({kind.__name__}\\)"):
        loader.add_value("isbn", 1)


def test_an_unknown_field_of_an_item_is_reported() -> None:
    class Loader(ItemLoader):
        default_item_class = Own

    with pytest.raises(KeyError, match="isbn"):
        Loader().add_value("isbn", 1)


def test_nested_loaders_share_the_item_at_any_depth() -> None:
    class Loader(BookLoader):
        default_item_class = Struct

    loader = Loader(response=Page(PAGE))
    about = loader.nested_xpath("//div[@id='about']")
    about.add_css("title", "b::text")
    about.nested_css("a").add_xpath("tags", "@href")
    loader.add_value("price", 1)
    assert about.load_item() == loader.load_item() == Struct("second", 1.0, ["/x"])


def test_values_of_json_responses_are_selected_by_jmespath() -> None:
    loader = BookLoader(response=Page('{"book": {"name": "A  B", "price": 3}}', "application/json"))
    loader.add_jmes("title", "book.name")
    loader.add_jmes("price", "book.price")
    assert loader.load_item() == {"title": "A B", "price": 3}


def test_values_can_be_selected_filtered_and_replaced() -> None:
    loader = ItemLoader(selector=Selector(text=PAGE))
    loader.add_css("price", "p::text", re=r"(\d+)\.")
    assert loader.get_collected_values("price") == ["12"]
    loader.replace_xpath("price", "//p/text()", re=r"\.(\d+)")
    assert loader.get_css("li::text", TakeFirst()) == "a"
    assert loader.load_item() == {"price": ["50"]}
    with pytest.raises(RuntimeError, match="selector"):
        ItemLoader().add_css("x", "p")


def test_the_context_of_processors_has_the_response_its_selector_and_given_values() -> None:
    seen: dict[str, Any] = {}

    def inspect_context(values: list[str], loader_context: dict[str, Any]) -> list[str]:
        seen.update(loader_context)
        return values

    class Loader(ItemLoader):
        a_out = Compose(inspect_context, TakeFirst())

    page = Page(PAGE)
    loader = Loader(response=page, unit="cm")
    loader.add_value("a", ["1"])
    assert loader.load_item() == {"a": "1"}
    assert (seen["response"], seen["unit"], seen["selector"]) == (page, "cm", page.selector)


def test_processors_are_exported() -> None:
    assert SelectJmes("a")({"a": 1}) == 1
    assert Identity()([1]) == [1]
