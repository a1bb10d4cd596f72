"""ItemLoader: collects the values of an item from a page by selectors, and passes them through processors.

    class BookLoader(ItemLoader):
        default_item_class = Book
        default_output_processor = TakeFirst()
        price_in = MapCompose(str.strip, float)

    loader = BookLoader(response=response)
    loader.add_css("title", "h1::text")
    return loader.load_item()

Unlike in itemloaders, an item class that validates (msgspec, pydantic, attrs, dataclass) gets all values at once, so
its fields need no defaults. A validation error becomes a `BadItem` that names the field.
"""

from __future__ import annotations

from typing import Any

import itemloaders
from parsel import Selector

from lycosa.core.errors import BadItem
from lycosa.core.public import public
from lycosa.crawl.items.adapters import ItemAdapter
from lycosa.crawl.items.item_errors import build_item
from lycosa.crawl.items.items import validates


@public
class ItemLoader(itemloaders.ItemLoader):
    """Loads one item from a response, a selector, or values. `item` is an existing item to fill.

    `item_class` is the class that `load_item` instantiates; None if the item was given, or was created empty before.
    """

    default_item_class: Any = dict

    def __init__(
        self,
        item: Any = None,
        selector: Selector | None = None,
        response: Any = None,
        parent: itemloaders.ItemLoader | None = None,
        **context: Any,
    ) -> None:
        self.item_class: Any = None
        if isinstance(parent, ItemLoader):
            self.item_class = parent.item_class
        elif item is None and validates(self.default_item_class):
            self.item_class, item = self.default_item_class, {}
        if selector is None and response is not None:
            selector = response.selector
        context.update(response=response)
        super().__init__(item, selector, parent, **context)

    def load_item(self) -> Any:
        """Return the item with all values collected so far. Raises `BadItem`."""
        if self.item_class is None:
            return super().load_item()
        outputs = {name: self.get_output_value(name) for name in tuple(self._values)}
        return build_item(self.item_class, {name: value for name, value in outputs.items() if value is not None})

    def _get_item_field_attr(self, field_name: str, key: Any, default: Any = None) -> Any:
        if self.item_class is None:
            return super()._get_item_field_attr(field_name, key, default)
        if field_name not in (ItemAdapter.get_field_names_from_class(self.item_class) or ()):
            raise BadItem(f"{field_name}: is not a field ({self.item_class.__name__})")
        return ItemAdapter.get_field_meta_from_class(self.item_class, field_name).get(key, default)
