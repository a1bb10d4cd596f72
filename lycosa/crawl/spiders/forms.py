"""FormRequest: what a browser sends when a form is submitted, as the HTML standard says ("Form submission").

    FormRequest(url, formdata={"q": "wolf spider"})                     # POST; with method="GET" the query
    FormRequest.from_response(response, formid="login", formdata={"name": "ada"}, clickdata={"name": "go"})

The latter fills in a form of a page: its controls have the values they have when the page is opened, those named in
`formdata` the given ones (None removes a field), and one button is clicked. Once made it is a Request like any other:
only its fields are stored. Differences from Scrapy: docs/scrapy.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit, urlunsplit

from lycosa.core.public import public
from lycosa.crawl.spiders.response import Response
from lycosa.html.charset import codec_of
from lycosa.html.forms import (
    MULTIPART,
    PLAIN,
    URLENCODED,
    BadForm,
    Field,
    FormData,
    FormFile,
    encode_form,
    encode_query,
    fields_of,
    has_files,
)
from lycosa.http.core.request import Callback, Request

Element = Any  # of lxml, which is loaded by the first selector
SHOWN_MAX = 5
"""Forms or buttons that an error message lists."""

LINE_MAX = 200
"""Characters that an error message spends on one of them."""

CONTROLS = {"input", "button", "select", "textarea"}
SEALED = {"select", "textarea", "datalist"}
BUTTONS = {"submit", "image"}
NEVER_SENT = {"button", "reset"}


@public
class FormRequest(Request):
    """A request that sends `formdata`: a dict or pairs, with lists for several values and `FormFile` for uploads.

    The method is POST when there is `formdata`; with GET the fields take the place of the query. Raises `BadForm`.
    """

    __slots__ = ()

    def __init__(
        self,
        url: str,
        callback: Callback = None,
        method: str | None = None,
        *,
        formdata: FormData | None = None,
        **options: Any,
    ) -> None:
        fields = [] if formdata is None else fields_of(formdata)
        super().__init__(url, callback, method or ("POST" if fields else "GET"), **options)
        if fields:
            self._send(fields, MULTIPART if has_files(fields) else URLENCODED)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with these arguments changed; `formdata` makes another body or query."""
        formdata = changes.pop("formdata", None)
        request = super().replace(**changes)
        if formdata is not None:
            fields = fields_of(formdata)
            request._send(fields, MULTIPART if has_files(fields) else URLENCODED)  # noqa: SLF001  our own kind
        return request

    @classmethod
    def from_response(
        cls,
        response: Response,
        formname: str | None = None,
        formid: str | None = None,
        formnumber: int = 0,
        formdata: FormData | None = None,
        clickdata: Mapping[str, Any] | None = None,
        dont_click: bool = False,
        formxpath: str | None = None,
        formcss: str | None = None,
        **options: Any,
    ) -> Self:
        """Return the request that submits a form of the page. Raises `BadForm`, which says what there is instead.

        The form is the one with this name or id, the one that holds what `formxpath` or `formcss` select, or the one
        with this number. `clickdata` are attributes of the button to click, or `nr`, its number among the controls of
        the form; without it the first one is clicked. `options` are arguments of Request, and go before what the form
        says.
        """
        page = _Page(response)
        form = page.form(formname, formid, formnumber, formxpath, formcss)
        button = None if dont_click else page.button(form, clickdata)
        wanted = options.pop("encoding", None) or _encoding(form, response)
        url, method, kind = _target(form, button, response, options.pop("url", None), options.pop("method", None))
        fields = _overridden(page.fields(form, button, wanted), [] if formdata is None else fields_of(formdata))
        request = cls(url, method=method, encoding=wanted, **options)
        if not request.body:
            request._send([(_lines(name), _lines(value)) for name, value in fields], kind)
        return request

    def _send(self, fields: list[Field], kind: str) -> None:
        """Put the fields into the body, or with GET into the URL."""
        if self.method == "GET":
            self.url = urlunsplit(urlsplit(self.url)._replace(query=encode_query(fields, self.encoding)))
            return
        self.body, content_type = encode_form(fields, kind, self.encoding)
        if kind == MULTIPART:
            self.headers["Content-Type"] = content_type  # the boundary must be this one
        else:
            self.headers.setdefault("Content-Type", content_type)


class _Control(NamedTuple):
    """A control, the form around it, and whether it or its fieldset is disabled."""

    element: Element
    around: Element | None
    is_off: bool


class _Page:
    """The forms of a page, and which controls each of them owns."""

    def __init__(self, response: Response) -> None:
        self.response = response
        root: Element = response.selector.root.getroottree().getroot()
        self.forms = list(root.iter("form"))
        self.named = {form.get("id"): form for form in reversed(self.forms)}
        self.controls = list(_controls(root))

    def form(self, name: str | None, id_: str | None, number: int, xpath: str | None, css: str | None) -> Element:
        """Return the form that is meant. Raises `BadForm`."""
        for attribute, wanted in (("name", name), ("id", id_)):
            found = [form for form in self.forms if wanted is not None and form.get(attribute) == wanted]
            if found:
                return found[0]
        if xpath is not None or css is not None:
            return self._around(xpath, css)
        asked = " or ".join(f"{kind} {value!r}" for kind, value in (("name", name), ("id", id_)) if value is not None)
        if asked or not -len(self.forms) <= number < len(self.forms):
            raise BadForm(f"no form with {asked or f'number {number}'} on {self.response.url}: {self._there_are()}")
        return self.forms[number]

    def _around(self, xpath: str | None, css: str | None) -> Element:
        found = self.response.xpath(xpath) if xpath is not None else self.response.css(css or "")
        for selected in found[:1]:
            node = selected.root
            owner = None if isinstance(node, str) else node if node.tag == "form" else self._form_of(node)
            if owner is not None:
                return owner
        asked = f"xpath {xpath!r}" if xpath is not None else f"css {css!r}"
        what = "selects nothing inside a form" if found else "selects nothing"
        raise BadForm(f"{asked} {what} on {self.response.url}: {self._there_are()}")

    def _there_are(self) -> str:
        shown = [f"{number}: {self._described(form)}" for number, form in enumerate(self.forms[:SHOWN_MAX])]
        more = len(self.forms) - len(shown)
        return "; ".join([*shown, *([f"and {more} more"] if more else [])]) or "there is none"

    def _described(self, form: Element) -> str:
        said = " ".join(f"{name}={form.get(name)!r}" for name in ("id", "name", "action") if form.get(name))
        fields = dict.fromkeys(name for each in self._of(form) if (name := each.element.get("name")))
        text = f"<form{' ' * bool(said)}{said}> with {', '.join(list(fields)[:SHOWN_MAX]) or 'no fields'}"
        return " ".join(text.split())[:LINE_MAX]

    def _form_of(self, element: Element) -> Element | None:
        return self._owner(element, next(element.iterancestors("form"), None))

    def _owner(self, element: Element, around: Element | None) -> Element | None:
        """The form of an element: the one its `form` attribute names, else the one around it."""
        named = element.get("form")
        return around if named is None else self.named.get(named)

    def _of(self, form: Element) -> Iterator[_Control]:
        return (each for each in self.controls if self._owner(each.element, each.around) is form)

    def button(self, form: Element, clickdata: Mapping[str, Any] | None) -> Element | None:
        """Return the button to click: the one with these attributes, else the first one. Raises `BadForm`."""
        buttons = {nr: each for nr, each in enumerate(self._of(form)) if _type(each.element) in BUTTONS}
        if not clickdata:
            return next((each.element for each in buttons.values() if not each.is_off), None)
        attributes = {name: str(value) for name, value in clickdata.items() if name != "nr"}
        found = [each.element for each in buttons.values() if attributes.items() <= dict(each.element.attrib).items()]
        if "nr" in clickdata:
            found = [each.element for nr, each in buttons.items() if nr == clickdata["nr"]]
        if len(found) == 1:
            return found[0]
        shown = "; ".join(f"{nr}: {_attributes(each.element)}" for nr, each in list(buttons.items())[:SHOWN_MAX])
        count = f"{len(found)} buttons match" if found else "no button matches"
        there = f"the buttons of the form: {shown or 'none'}"
        raise BadForm(f"{count} clickdata {dict(clickdata)!r} on {self.response.url}; {there}")

    def fields(self, form: Element, button: Element | None, encoding: str) -> Iterator[Field]:
        """Yield what the form sends: the entry list of the HTML standard."""
        controls = list(self._of(form))
        radios = _last_checked(each.element for each in controls)
        for control in controls:
            if control.element is button:
                yield from _clicked(control.element)
            elif not control.is_off and (_type(control.element) != "radio" or control.element in radios):
                yield from _entries(control.element, encoding)


def _controls(root: Element) -> Iterator[_Control]:
    """Yield all controls in one walk, since a hostile page nests deeply; none inside those of SEALED."""
    todo: list[tuple[Element, Element | None, bool, bool]] = [(root, None, False, False)]
    while todo:
        element, around, is_off, sealed = todo.pop()
        tag, free = element.tag, None
        if tag in CONTROLS and not sealed:
            yield _Control(element, around, is_off or element.get("disabled") is not None)
        inner_off = is_off
        if tag == "form":
            around = element
        elif tag == "fieldset" and element.get("disabled") is not None:
            inner_off, free = True, element.find("legend")  # the first legend is as free as what is around the fieldset
        sealed = sealed or tag in SEALED
        todo += [(each, around, is_off if each is free else inner_off, sealed) for each in reversed(element)]


def _type(control: Element) -> str:
    """The type of an input or button, in lower case; a button without one is a submit button."""
    if control.tag not in {"input", "button"}:
        return ""
    kind = control.get("type", "").strip().lower()
    return (kind if kind in NEVER_SENT else "submit") if control.tag == "button" else kind


def _last_checked(controls: Iterable[Element]) -> set[Element]:
    """The radio buttons that are on: checking one unchecks the others of its name."""
    checked = (each for each in controls if _type(each) == "radio" and _is_checked(each))
    return set({each.get("name"): each for each in checked}.values())


def _is_checked(control: Element) -> bool:
    return control.get("checked") is not None


def _clicked(button: Element) -> Iterator[Field]:
    name = button.get("name", "")
    if _type(button) == "image":
        prefix = f"{name}." if name else ""
        yield from ((f"{prefix}x", "0"), (f"{prefix}y", "0"))  # where it was clicked
    elif name:
        yield name, button.get("value", "")


def _entries(control: Element, encoding: str) -> Iterator[Field]:
    name, kind = control.get("name", ""), _type(control)
    if not name or kind in BUTTONS or kind in NEVER_SENT:
        return
    if control.tag == "select":
        yield from ((name, value) for value in _chosen(control))
    elif control.tag == "textarea":
        text = "".join(control.itertext()).replace("\r\n", "\n")
        yield name, text.removeprefix("\n")
    elif kind in {"checkbox", "radio"}:
        if _is_checked(control):
            yield name, control.get("value", "on")
    elif kind == "file":
        yield name, FormFile("", b"")
    elif kind == "hidden" and name == "_charset_":
        yield name, "UTF-8" if encoding == "utf-8" else encoding
    else:
        yield name, control.get("value", "")


def _chosen(select: Element) -> list[str]:
    """Values of the options that are selected when the page is opened."""
    options = list(select.iter("option"))
    chosen = [each for each in options if each.get("selected") is not None]
    if select.get("multiple") is None:
        if not chosen and select.get("size", "1") in {"0", "1"}:
            chosen = [each for each in options if not _is_off(each)][:1]
        chosen = chosen[-1:]
    return [_value(each) for each in chosen if not _is_off(each)]


def _is_off(option: Element) -> bool:
    group = option.getparent()
    return option.get("disabled") is not None or (
        group is not None and group.tag == "optgroup" and group.get("disabled") is not None
    )


def _value(option: Element) -> str:
    value: str | None = option.get("value")
    return " ".join("".join(option.itertext()).split()) if value is None else value


def _overridden(fields: Iterator[Field], given: list[Field]) -> list[Field]:
    """Return the fields with the given ones in the place of those of the same name, the others at the end."""
    values: dict[str | bytes, list[Field]] = {}
    for name, value in given:
        key = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
        values.setdefault(key, []).append((name, value))
    found: list[Field] = []
    placed: set[str | bytes] = set()
    for name, value in fields:
        if name not in values:
            found.append((name, value))
        elif name not in placed:
            placed.add(name)
            found += values[name]
    found += [field for name, each in values.items() if name not in placed for field in each]
    return found


def _target(
    form: Element, button: Element | None, response: Response, url: str | None, method: str | None
) -> tuple[str, str, str]:
    """Return URL, method and kind of encoding: what the caller says, else the button, else the form."""

    def said(name: str) -> str:
        own: str | None = None if button is None else button.get(f"form{name}")
        return str(form.get(name, "") if own is None else own).strip()

    action = said("action") if url is None else url
    verb = method or ("POST" if said("method").lower() == "post" else "GET")
    kind = said("enctype").lower()
    return (
        response.urljoin(action) if action else response.url,
        verb,
        kind if kind in {MULTIPART, PLAIN} else URLENCODED,
    )


def _encoding(form: Element, response: Response) -> str:
    """The first encoding of `accept-charset` that is known, else that of the page; UTF-8 instead of UTF-16."""
    named = [codec for label in form.get("accept-charset", "").split() if (codec := codec_of(label))]
    chosen: str = next(iter(named), response.encoding)
    return "utf-8" if chosen.startswith("utf") or chosen == "ascii" else chosen


def _lines(value: Any) -> Any:
    """Line ends as forms send them."""
    if not isinstance(value, str):
        return value
    text: str = value
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")


def _attributes(element: Element) -> str:
    said = "".join(f" {name}={value!r}" for name, value in list(element.attrib.items())[:SHOWN_MAX])
    return f"<{element.tag}{said}>"[:LINE_MAX]
