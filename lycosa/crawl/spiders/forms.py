"""FormRequest: sends what a browser sends when a form is submitted (HTML standard, "Form submission").

    FormRequest(url, formdata={"q": "wolf spider"})    # POST; with method="GET" the fields go into the query
    FormRequest.from_response(response, formid="login", formdata={"name": "ada"}, clickdata={"name": "go"})

`from_response` submits a form of a page: the controls keep their initial values unless `formdata` replaces them (None
removes a field), and one button is clicked. The frontier stores a plain Request. Compared with Scrapy: docs/scrapy.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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

Element = Any  # an element of lxml, which is imported only when the first selector is made
SHOWN_MAX = 5

LINE_MAX = 200

CONTROLS = {"input", "button", "select", "textarea"}
WITHOUT_INNER_CONTROLS = {"select", "textarea", "datalist"}
SUBMIT_BUTTONS = {"submit", "image"}
OTHER_BUTTONS = {"button", "reset"}


@public
class FormRequest(Request):
    """A request that sends `formdata`: a dict or pairs. A list is several values of one field, a `FormFile` is a file.

    With `formdata` the default method is POST; with GET the fields replace the query. Raises `BadForm`.
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
            self._set_fields(fields)

    def replace(self, **changes: Any) -> Self:
        """`formdata` replaces the body or the query."""
        formdata = changes.pop("formdata", None)
        request = super().replace(**changes)
        if formdata is not None:
            request._set_fields(fields_of(formdata))  # noqa: SLF001  our own class
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
        """Return the request that submits a form of the page. Raises `BadForm`, which lists the forms of the
        page, or the buttons of the form.

        The form is selected by `formname` or `formid`, else by `formxpath` or `formcss` (the form or an element
        inside), else by `formnumber`. `clickdata` are attributes of the button to click, or `nr`, its number among the
        form's controls; the default is the first button. `options` are arguments of Request, which override those of
        the form.
        """
        page = _FormPage(response)
        form = page.form(formname, formid, formnumber, formxpath, formcss)
        button = None if dont_click else page.button(form, clickdata)
        encoding = options.pop("encoding", None) or _encoding(form, response)
        url, method, kind = _target(form, button, response, options.pop("url", None), options.pop("method", None))
        fields = _override(page.fields(form, button, encoding), [] if formdata is None else fields_of(formdata))
        request = cls(url, method=method, encoding=encoding, **options)
        if not request.body:
            request._set_fields([(_crlf(name), _crlf(value)) for name, value in fields], kind)
        return request

    def _set_fields(self, fields: list[Field], kind: str = "") -> None:
        """Put the fields into the body, encoded as `kind`, or with GET into the URL."""
        if self.method == "GET":
            self.url = urlunsplit(urlsplit(self.url)._replace(query=encode_query(fields, self.encoding)))
            return
        kind = kind or (MULTIPART if has_files(fields) else URLENCODED)
        self.body, content_type = encode_form(fields, kind, self.encoding)
        if kind == MULTIPART:
            self.headers["Content-Type"] = content_type  # contains the boundary of this body
        else:
            self.headers.setdefault("Content-Type", content_type)


class _Control(NamedTuple):
    """`outer_form` is the form around the control. `is_disabled`: the control or its fieldset is disabled."""

    element: Element
    outer_form: Element | None
    is_disabled: bool


class _FormPage:
    def __init__(self, response: Response) -> None:
        self.response = response
        root: Element = response.selector.root.getroottree().getroot()
        self.roots = [root, *root.itersiblings("html")]  # the parser puts what follows an early </html> into a sibling
        self.forms = [form for each in self.roots for form in each.iter("form")]
        self.by_id = {form.get("id"): form for form in reversed(self.forms)}
        self.controls = [control for each in self.roots for control in _controls(each)]

    def form(self, name: str | None, id_: str | None, number: int, xpath: str | None, css: str | None) -> Element:
        """Raises `BadForm`."""
        for attribute, value in (("name", name), ("id", id_)):
            for form in self.forms:
                if value is not None and form.get(attribute) == value:
                    return form
        if xpath is not None or css is not None:
            return self._form_around(xpath, css)
        criteria = " or ".join(f"{key} {value!r}" for key, value in (("name", name), ("id", id_)) if value is not None)
        if criteria or not -len(self.forms) <= number < len(self.forms):
            criteria = criteria or f"number {number}"
            raise BadForm(f"no form with {criteria} on {self.response.url}: {self._list_forms()}")
        return self.forms[number]

    def _form_around(self, xpath: str | None, css: str | None) -> Element:
        selected = self.response.xpath(xpath) if xpath is not None else self._by_css(css or "")
        node = selected[0].root if selected else None
        if node is not None and not isinstance(node, str):
            form = node if node.tag == "form" else self._owner(node, next(node.iterancestors("form"), None))
            if form is not None:
                return form
        query = f"xpath {xpath!r}" if xpath is not None else f"css {css!r}"
        problem = "selects nothing inside a form" if selected else "selects nothing"
        raise BadForm(f"{query} {problem} on {self.response.url}: {self._list_forms()}")

    def _by_css(self, css: str) -> Sequence[Any]:
        page = self.response.selector
        found = (type(page)(root=root, type=page.type).css(css) for root in self.roots)  # CSS searches one root
        return next(filter(None, found), [])

    def _list_forms(self) -> str:
        shown = [f"{number}: {self._describe(form)}" for number, form in enumerate(self.forms[:SHOWN_MAX])]
        more = len(self.forms) - len(shown)
        return "; ".join([*shown, *([f"and {more} more"] if more else [])]) or "there is none"

    def _describe(self, form: Element) -> str:
        attributes = "".join(f" {name}={form.get(name)!r}" for name in ("id", "name", "action") if form.get(name))
        fields = dict.fromkeys(name for control in self._controls_of(form) if (name := control.element.get("name")))
        text = f"<form{attributes}> with {', '.join(list(fields)[:SHOWN_MAX]) or 'no fields'}"
        return " ".join(text.split())[:LINE_MAX]

    def _owner(self, element: Element, outer_form: Element | None) -> Element | None:
        """Return the form named by the element's `form` attribute, else the form around the element."""
        form_id = element.get("form")
        return outer_form if form_id is None else self.by_id.get(form_id)

    def _controls_of(self, form: Element) -> Iterator[_Control]:
        return (control for control in self.controls if self._owner(control.element, control.outer_form) is form)

    def button(self, form: Element, clickdata: Mapping[str, Any] | None) -> Element | None:
        """Raises `BadForm`."""
        controls = enumerate(self._controls_of(form))
        buttons = {nr: control for nr, control in controls if _type(control.element) in SUBMIT_BUTTONS}
        if not clickdata:
            return next((button.element for button in buttons.values() if not button.is_disabled), None)
        if "nr" in clickdata:
            found = [button.element for nr, button in buttons.items() if nr == clickdata["nr"]]
        else:
            attributes = {name: str(value) for name, value in clickdata.items()}
            elements = (button.element for button in buttons.values())
            found = [element for element in elements if attributes.items() <= dict(element.attrib).items()]
        if len(found) == 1:
            return found[0]
        shown = "; ".join(f"{nr}: {_start_tag(button.element)}" for nr, button in list(buttons.items())[:SHOWN_MAX])
        problem = f"{len(found)} buttons match" if found else "no button matches"
        listed = f"the buttons of the form: {shown or 'none'}"
        raise BadForm(f"{problem} clickdata {dict(clickdata)!r} on {self.response.url}; {listed}")

    def fields(self, form: Element, button: Element | None, encoding: str) -> Iterator[Field]:
        """Yield the form's entry list, as the HTML standard defines it."""
        controls = list(self._controls_of(form))
        radios = (each.element for each in controls if _type(each.element) == "radio" and _is_checked(each.element))
        # Checking a radio button unchecks the others with the same name, so only the last checked one is sent.
        checked = set({radio.get("name"): radio for radio in radios}.values())
        for control in controls:
            if control.element is button:
                yield from _click(control.element)
            elif not control.is_disabled and (_type(control.element) != "radio" or control.element in checked):
                yield from _entries(control.element, encoding)


def _controls(root: Element) -> Iterator[_Control]:
    # No recursion: a hostile page may be nested deeper than Python's stack.
    stack: list[tuple[Element, Element | None, bool, bool]] = [(root, None, False, False)]
    while stack:
        element, outer_form, is_disabled, skips_controls = stack.pop()
        tag, legend = element.tag, None
        if tag in CONTROLS and not skips_controls:
            yield _Control(element, outer_form, is_disabled or element.get("disabled") is not None)
        disables_children = is_disabled
        if tag == "form":
            outer_form = element
        elif tag == "fieldset" and element.get("disabled") is not None:
            # A disabled fieldset does not disable the controls in its first legend.
            disables_children, legend = True, element.find("legend")
        skips_controls = skips_controls or tag in WITHOUT_INNER_CONTROLS
        stack += [
            (child, outer_form, is_disabled if child is legend else disables_children, skips_controls)
            for child in reversed(element)
        ]


def _type(control: Element) -> str:
    """Return the lower-case type of an input or a button, "" for other controls. A button is "submit" by default."""
    if control.tag not in {"input", "button"}:
        return ""
    kind = control.get("type", "").strip().lower()
    return (kind if kind in OTHER_BUTTONS else "submit") if control.tag == "button" else kind


def _is_checked(control: Element) -> bool:
    return control.get("checked") is not None


def _click(button: Element) -> Iterator[Field]:
    name = button.get("name", "")
    if _type(button) == "image":
        prefix = f"{name}." if name else ""
        yield from ((f"{prefix}x", "0"), (f"{prefix}y", "0"))  # the coordinates of the click
    elif name:
        yield name, button.get("value", "")


def _entries(control: Element, encoding: str) -> Iterator[Field]:
    name, kind = control.get("name", ""), _type(control)
    if not name or kind in SUBMIT_BUTTONS or kind in OTHER_BUTTONS:
        return
    if control.tag == "select":
        yield from ((name, value) for value in _selected_values(control))
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


def _selected_values(select: Element) -> list[str]:
    options = list(select.iter("option"))
    selected = [option for option in options if option.get("selected") is not None]
    if select.get("multiple") is None:
        if not selected and select.get("size", "1") in {"0", "1"}:  # a drop-down list shows its first option
            selected = [option for option in options if not _is_disabled(option)][:1]
        selected = selected[-1:]
    return [_value(option) for option in selected if not _is_disabled(option)]


def _is_disabled(option: Element) -> bool:
    group = option.getparent()
    return option.get("disabled") is not None or (
        group is not None and group.tag == "optgroup" and group.get("disabled") is not None
    )


def _value(option: Element) -> str:
    value: str | None = option.get("value")
    return " ".join("".join(option.itertext()).split()) if value is None else value


def _override(fields: Iterator[Field], formdata: list[Field]) -> list[Field]:
    """Replace fields by those of `formdata` with the same name, and append the other fields of `formdata`."""
    values: dict[str | bytes, list[Field]] = {}
    for name, value in formdata:
        key = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
        values.setdefault(key, []).append((name, value))
    result: list[Field] = []
    replaced: set[str | bytes] = set()
    for name, value in fields:
        if name not in values:
            result.append((name, value))
        elif name not in replaced:
            replaced.add(name)
            result += values[name]
    return result + [field for name, group in values.items() if name not in replaced for field in group]


def _target(
    form: Element, button: Element | None, response: Response, url: str | None, method: str | None
) -> tuple[str, str, str]:
    """Return URL, method and body encoding. The caller's values override the button's, which override the form's."""

    def attribute(name: str) -> str:
        value: str | None = None if button is None else button.get(f"form{name}")
        return str(form.get(name, "") if value is None else value).strip()

    action = attribute("action") if url is None else url
    kind = attribute("enctype").lower()
    return (
        response.urljoin(action) if action else response.url,
        method or ("POST" if attribute("method").lower() == "post" else "GET"),
        kind if kind in {MULTIPART, PLAIN} else URLENCODED,
    )


def _encoding(form: Element, response: Response) -> str:
    """Return the first known encoding of `accept-charset`, else that of the page. UTF-8 replaces UTF-16 and ASCII."""
    codecs = filter(None, map(codec_of, form.get("accept-charset", "").split()))
    encoding: str = next(codecs, response.encoding)
    return "utf-8" if encoding.startswith("utf") or encoding == "ascii" else encoding


def _crlf(value: Any) -> Any:
    """Forms send text with CRLF line endings."""
    return re.sub(r"\r\n?|\n", "\r\n", value) if isinstance(value, str) else value


def _start_tag(element: Element) -> str:
    attributes = "".join(f" {name}={value!r}" for name, value in list(element.attrib.items())[:SHOWN_MAX])
    return f"<{element.tag}{attributes}>"[:LINE_MAX]
