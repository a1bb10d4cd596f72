"""FormRequest (C1): it sends what a browser would send; the result is compared with a real browser, too."""

from __future__ import annotations

import random
import shutil
import time
from urllib.parse import parse_qsl, urlsplit

import pytest

from lycosa.core.errors import BadUrl, UsageError
from lycosa.crawl.spiders.forms import FormRequest
from lycosa.crawl.spiders.response import Response
from lycosa.html.forms import BadForm, FormFile
from lycosa.http.core.request import Request
from tests.servers.misbehaving import running
from tests.servers.ports import LOCALHOST, closed_port
from tests.servers.sins_engine import FORMS

URL = "http://a.example/dir/page"
FORM = "application/x-www-form-urlencoded"


def page(body, url=URL, kind="text/html; charset=utf-8"):
    return Response(url, 200, {"Content-Type": kind}, body.encode() if isinstance(body, str) else body)


def sent(body, **options):
    """Return the fields that the first form of the page sends."""
    request = FormRequest.from_response(page(body), **options)
    data = request.body.decode() if request.method == "POST" else urlsplit(request.url).query
    return parse_qsl(data, keep_blank_values=True)


def test_form_behind_an_early_end_of_the_page_is_found():
    body = "<html><body><p>a</p></body></html><form action=/x method=post><input name=a value=1></form><p>b"
    assert sent(body) == [("a", "1")]
    assert sent("<form id=f></form></body></html><input name=b value=2 form=f>") == [("b", "2")]


@pytest.mark.parametrize("ends", ["</html>", "</html><p>a</p></body></html>", "</html><p></html><p></html>"])
def test_a_form_behind_an_early_end_of_the_page_is_selected_by_css(ends):
    body = f"<html><body><form action=/0></form></body>{ends}<form id=f action=/1><b><input name=a></b></form>"
    for css in ("#f", "form#f input", "form[action='/1']"):
        assert urlsplit(FormRequest.from_response(page(body), formcss=css).url).path == "/1"
    with pytest.raises(BadForm, match="css '#g' selects nothing on"):
        FormRequest.from_response(page(body), formcss="#g")


# --- from fields


def test_fields_are_posted():
    request = FormRequest(URL, print, formdata={"a": ["1", "2"], "b": "é &", "c": None, "n": 5}, priority=2)
    assert (request.method, request.url, request.callback, request.priority) == ("POST", URL, print, 2)
    assert request.body == b"a=1&a=2&b=%C3%A9+%26&n=5"
    assert request.headers == {"Content-Type": FORM}


def test_with_get_the_fields_replace_the_query():
    request = FormRequest("http://a.example/?a=0&c=3#f", method="get", formdata=[("a", "1"), ("a", "2")])
    assert (request.method, request.url, request.body) == ("GET", "http://a.example/?a=1&a=2#f", b"")
    assert not request.headers


@pytest.mark.parametrize("formdata", [None, {}, []])
def test_without_fields_a_form_request_is_a_plain_request(formdata):
    assert FormRequest("http://a.example/?a=0", formdata=formdata) == Request("http://a.example/?a=0")


def test_the_caller_may_set_encoding_and_headers():
    request = FormRequest(URL, formdata={"p": "£"}, encoding="latin-1", headers={"content-type": FORM + "; charset=x"})
    assert request.body == b"p=%A3"
    assert request.headers == {"Content-Type": FORM + "; charset=x"}


def test_files_are_sent_as_multipart():
    request = FormRequest(URL, formdata={"a": "1", "f": FormFile("a.txt", b"content")})
    assert request.headers["Content-Type"].startswith("multipart/form-data; boundary=")
    assert b'filename="a.txt"' in request.body
    assert request == FormRequest(URL, formdata={"a": "1", "f": FormFile("a.txt", b"content")})


def test_replace_changes_the_fields():
    request = FormRequest(URL, formdata={"a": "1"}, meta={"k": 1})
    assert request.replace(formdata={"b": "2"}).body == b"b=2"
    assert request.replace(url="http://b.example/").body == request.body == b"a=1"
    assert type(request.copy()) is FormRequest
    assert Request(**request.to_arguments()) == request


# --- from a page: which form

THREE = """<form id=one action=/1><input name=a value=1></form><form name=two action=/2><input name=b value=2></form>
<form id=three name=drei action=/3><div><input name=c value=3></div></form><p id=out>x</p>
<input form=one name=d id=d>"""


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({}, "/1"),
        ({"formname": "two"}, "/2"),
        ({"formid": "three"}, "/3"),
        ({"formname": "zwei", "formid": "three"}, "/3"),
        ({"formnumber": 1}, "/2"),
        ({"formnumber": -1}, "/3"),
        ({"formxpath": "//form[@action='/2']"}, "/2"),
        ({"formxpath": "//input[@name='c']"}, "/3"),
        ({"formcss": "form[name=drei] div"}, "/3"),
        ({"formcss": "#d"}, "/1"),
        ({"formid": "three", "formcss": "#d"}, "/3"),
        ({"formid": "four", "formcss": "#d"}, "/1"),
    ],
)
def test_the_arguments_select_a_form(options, path):
    assert urlsplit(FormRequest.from_response(page(THREE), **options).url).path == path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"formname": "zwei"}, "no form with name 'zwei' on http://a.example/dir/page: 0: <form id='one' action='/1'>"),
        ({"formid": "x", "formname": "y"}, "no form with name 'y' or id 'x'"),
        ({"formnumber": 3}, "no form with number 3 .*<form id='three' name='drei' action='/3'> with c"),
        ({"formxpath": "//form[@id='x']"}, r"xpath \"//form\[@id='x'\]\" selects nothing on"),
        ({"formcss": "#out"}, "css '#out' selects nothing inside a form on"),
        ({"formxpath": "//form/@id"}, "selects nothing inside a form"),
        ({"formdata": 123}, "formdata must be .*, not int"),
    ],
)
def test_an_error_lists_the_forms_of_the_page(options, message):
    with pytest.raises(BadForm, match=message) as caught:
        FormRequest.from_response(page(THREE), **options)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, UsageError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("body", ["", "<p>none</p>", b"\0\xff"])
def test_a_page_without_forms_is_an_error(body):
    with pytest.raises(BadForm, match=r"number 0 .*: there is none"):
        FormRequest.from_response(page(body))


def test_error_messages_are_bounded():
    forms = f"<form action='{'x' * 9999}\n'><input name='a\nb'></form>" * 100
    with pytest.raises(BadForm, match="and 95 more") as caught:
        FormRequest.from_response(page(forms), formid="login")
    assert len(str(caught.value)) < 1500
    assert "\n" not in str(caught.value)


# --- which fields


@pytest.mark.parametrize(
    ("controls", "fields"),
    [
        ("<input name=a value=1><input name=b><input value=c><input name='' value=d><input>", [("a", "1"), ("b", "")]),
        ("<input type=hidden name=h value=1><input type=password name=p value=2>", [("h", "1"), ("p", "2")]),
        ("<input type=checkbox name=a value=1 checked><input type=checkbox name=a value=2>", [("a", "1")]),
        ("<input type=CHECKBOX name=a checked><input type=Radio name=b checked>", [("a", "on"), ("b", "on")]),
        ("<input type=reset name=r value=1><input type=button name=b value=1><button type=button name=c>", []),
        ("<input type=file name=f value=x>", [("f", "")]),
        ("<select name=s><option>one<option value=2>two</select>", [("s", "one")]),
        ("<select name=s><option disabled>one<option>  t w  o </select>", [("s", "t w o")]),
        ("<select name=s><option selected>1<option selected>2<option>3</select>", [("s", "2")]),
        ("<select name=s size=3><option>1</select><select name=t></select>", []),
        ("<select name=s multiple><option selected>1<option>2<option selected value>3", [("s", "1"), ("s", "")]),
        ("<input type=radio name=r value=1 checked><input type=radio name=r value=2 checked>", [("r", "2")]),
        ("<select name=s><optgroup disabled><option>1</optgroup><optgroup><option>2</optgroup></select>", [("s", "2")]),
        ("<select name=s><option selected disabled>1<option>2</select>", []),
        ("<textarea name=t>\na\nb\n</textarea><textarea name=u></textarea>", [("t", "a\r\nb\r\n"), ("u", "")]),
        ("<input name=a disabled value=1><fieldset disabled><input name=b></fieldset>", []),
        ("<fieldset disabled><legend><input name=a></legend><legend><input name=b></legend></fieldset>", [("a", "")]),
        ("<fieldset disabled><fieldset><legend><input name=c></legend></fieldset></fieldset>", []),
        ("<fieldset><legend><input name=a></legend><input name=b></fieldset>", [("a", ""), ("b", "")]),
        ("<datalist><input name=a></datalist><input name=b form=other>", []),
        ("<input name=_charset_ type=hidden>", [("_charset_", "UTF-8")]),
        ("<div><p><b><input name=deep value=1></b></p></div>", [("deep", "1")]),
        ("<input name=é value='€ £'>", [("é", "€ £")]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["get", "post"])
def test_controls_are_sent_as_the_standard_says(controls, fields, method):
    assert sent(f"<form method={method}>{controls}</form>") == fields


def test_controls_outside_of_the_form_belong_to_it_by_id():
    body = "<input form=f name=before><form id=f><input name=in></form><form id=g></form><input form=f name=after>"
    assert [name for name, _ in sent(body)] == ["before", "in", "after"]
    assert [name for name, _ in sent(body + "<form id=f></form>")] == ["before", "in", "after"]
    assert sent(body + "<form id=f></form>", formnumber=2) == []


@pytest.mark.parametrize(
    ("formdata", "fields"),
    [
        ({"b": "9"}, [("a", "1"), ("b", "9"), ("c", "3")]),
        ({"b": None}, [("a", "1"), ("c", "3")]),
        ({"b": []}, [("a", "1"), ("c", "3")]),
        ({"b": ["8", "9"], "new": "x"}, [("a", "1"), ("b", "8"), ("b", "9"), ("c", "3"), ("new", "x")]),
        ([(b"c", b"y"), ("c", 5)], [("a", "1"), ("b", "2"), ("b", "2"), ("c", "y"), ("c", "5")]),
        ({"a": None, "b": None, "d": "l\nl"}, [("c", "3"), ("d", "l\r\nl")]),
    ],
)  # fmt: skip
def test_formdata_overrides_fields(formdata, fields):
    form = "<form><input name=a value=1><input name=b value=2><input name=b value=2><input name=c value=3></form>"
    assert sent(form, formdata=formdata) == fields


BUTTONS = """<form method=post action=/form><input name=a value=1><input type=submit name=off disabled>
<input type=SUBMIT name=go value=Go><button name=do value=save formaction=/save formmethod=get>S</button>
<button name=do value=delete id=del>D</button><input type=image name=map value=x><input type=image id=bare>
<button type=submit name=off value=1 disabled>O</button></form>"""


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({}, [("a", "1"), ("go", "Go")]),
        ({"dont_click": True}, [("a", "1")]),
        ({"clickdata": {"value": "delete"}}, [("a", "1"), ("do", "delete")]),
        ({"clickdata": {"id": "del", "name": "do"}}, [("a", "1"), ("do", "delete")]),
        ({"clickdata": {"name": "map"}}, [("a", "1"), ("map.x", "0"), ("map.y", "0")]),
        ({"clickdata": {"id": "bare"}}, [("a", "1"), ("x", "0"), ("y", "0")]),
        ({"clickdata": {"nr": 4}}, [("a", "1"), ("do", "delete")]),
        ({"clickdata": {"name": "off", "value": 1}}, [("a", "1"), ("off", "1")]),
        ({"formdata": {"go": "two"}}, [("a", "1"), ("go", "two")]),
    ],
)
def test_one_button_is_clicked(options, fields):
    assert sent(BUTTONS, **options) == fields


@pytest.mark.parametrize(
    ("clickdata", "message"),
    [
        ({"name": "do"}, "2 buttons match clickdata {'name': 'do'}.*4: <button name='do' value='delete' id='del'>"),
        ({"name": "nope"}, "no button matches"),
        ({"nr": 9}, "no button matches"),
        ({"nr": 0}, "no button matches"),
    ],
)
def test_an_error_lists_the_buttons_of_the_form(clickdata, message):
    with pytest.raises(BadForm, match=message):
        FormRequest.from_response(page(BUTTONS), clickdata=clickdata)


# --- where and how


@pytest.mark.parametrize(
    ("form", "options", "url"),
    [
        ("<form>", {}, URL),
        ("<form action=''>", {}, URL),
        ("<form action=' x\n'>", {}, "http://a.example/dir/x"),
        ("<base href='http://b.example/'><form action=t>", {}, "http://b.example/t"),
        ("<form action='/s?lost=1#f'>", {}, "http://a.example/s"),
        ("<form action='/s?kept=1' method=post>", {}, "http://a.example/s?kept=1"),
        ("<form action=/s>", {"url": "http://c.example/"}, "http://c.example/"),
        ("<form action=/s>", {"url": "rel"}, "http://a.example/dir/rel"),
        ("<form action=/s><button formaction=/b>", {}, "http://a.example/b"),
    ],
)
def test_the_request_goes_to_the_action_of_the_form(form, options, url):
    assert FormRequest.from_response(page(form + "</form>"), **options).url.partition("#")[0] == url


def test_an_action_that_cannot_be_fetched_is_an_error():
    with pytest.raises(BadUrl, match="mailto"):
        FormRequest.from_response(page("<form action=mailto:a@b.example></form>"))


@pytest.mark.parametrize(
    ("form", "options", "method"),
    [
        ("<form>", {}, "GET"),
        ("<form method=PoSt>", {}, "POST"),
        ("<form method=dialog>", {}, "GET"),
        ("<form method=put>", {}, "GET"),
        ("<form method=get><button formmethod=post>", {}, "POST"),
        ("<form>", {"method": "POST"}, "POST"),
        ("<form method=post>", {"method": "GET"}, "GET"),
        ("<form method=post>", {"method": None}, "POST"),
        ("<form>", {"method": "put"}, "PUT"),
    ],
)
def test_the_method_comes_from_the_caller_the_button_or_the_form(form, options, method):
    request = FormRequest.from_response(page(form + "<input name=a value=1></form>"), **options)
    assert request.method == method
    assert (request.body == b"a=1") == (method != "GET")
    assert request.url.endswith("?a=1") == (method == "GET")


def test_enctype_selects_the_encoding_of_the_body():
    def request(form):
        return FormRequest.from_response(
            page(f"<form method=post {form}<input name=a value='1 2'><input name=f type=file>")
        )

    assert request(">").body == b"a=1+2&f="
    assert request("enctype=text/plain>").body == b"a=1 2\r\nf=\r\n"
    assert request("enctype=text/plain>").headers["Content-Type"] == "text/plain"
    assert request("enctype=x/y>").headers["Content-Type"] == FORM
    upload = request("enctype=Multipart/Form-Data>")
    assert b'name="f"; filename=""\r\nContent-Type: application/octet-stream\r\n\r\n\r\n--' in upload.body
    assert upload.headers["Content-Type"].encode().partition(b"boundary=")[2] in upload.body


@pytest.mark.parametrize(
    ("charset", "attributes", "body"),
    [
        ("latin-1", "", b"p=%A3+%26%23937%3B"),
        ("utf-8", "", b"p=%C2%A3+%CE%A9"),
        ("utf-8", "accept-charset='x-none iso-8859-7'", b"p=%A3+%D9"),
        ("utf-8", "accept-charset=utf-16", b"p=%C2%A3+%CE%A9"),
    ],
)
def test_accept_charset_selects_the_text_encoding(charset, attributes, body):
    form = f"<form method=post {attributes}><input name=p value='£ &#937;'></form>"
    answer = page(form.encode(charset), kind=f"text/html; charset={charset}")
    assert FormRequest.from_response(answer).body == body
    assert FormRequest.from_response(answer, encoding="utf-8").body == b"p=%C2%A3+%CE%A9"


def test_arguments_of_the_request_override_the_form():
    form = page("<form method=post><input name=a></form>")
    request = FormRequest.from_response(form, headers={"Content-Type": "x/y"}, meta={"k": 1}, callback="parse_it")
    assert (request.headers["Content-Type"], request.meta, request.callback) == ("x/y", {"k": 1}, "parse_it")
    assert FormRequest.from_response(form, body=b"mine").body == b"mine"


def test_a_hostile_page_takes_linear_time():
    forms = ("<fieldset disabled>" * 50 + "<form id=f><legend><select><textarea><input name=a form=f>") * 2_000
    started = time.thread_time()
    request = FormRequest.from_response(page(forms + "<input name=b form=f>" * 20_000), formid="f")
    assert request.url
    assert time.thread_time() - started < 5


# --- a real browser


def random_form(rng, number):
    """Return a form of random controls, sent to /echo."""

    def maybe(text):
        return text if rng.random() < 0.3 else ""

    def control(n):
        name, disabled = maybe(f"name=n{rng.randrange(4)}") or f"name=c{n}", maybe("disabled") and maybe("disabled")
        value = maybe("value='a &amp; é €'") or maybe("value='1'")
        return rng.choice(
            [
                f"<input type=radio name=r {value} {maybe('checked')}><input type=radio name=r {maybe('checked')}>",
                f"<input {name} {value} {disabled}>",
                f"<input type={rng.choice(['hidden', 'password', 'search', 'tel'])} {name} {value}>",
                f"<input type={rng.choice(['checkbox', 'radio'])} {name} {value} {maybe('checked')} {disabled}>",
                f"<select {name} {maybe('multiple')} {disabled}>"
                + "".join(f"<option {maybe('selected')} {maybe('disabled')} {maybe('value=v')}> o  1" for _ in range(3))
                + "</select>",
                f"<textarea {name} {disabled}>\n{maybe('two')}\nlines é</textarea>",
                f"<fieldset {maybe('disabled')}><legend><input {name}></legend><input name=f{n} value=2></fieldset>",
                f"<button type=button {name} {value}>no</button><input type=reset {name}>",
                f"<button {name} {value} {disabled}>b</button>",
                f"<input type=submit {name} value=s {disabled}>",
                f"<div><input {name} form=f{number} value=inside></div>",
                f"<input type=file {name}>",
            ]
        )  # fmt: skip

    kind = maybe("enctype=text/plain") or maybe("enctype=multipart/form-data")
    attributes = f"id=f{number} method=post {kind} {maybe('accept-charset=iso-8859-1')}"
    inside = "".join(control(n) for n in range(rng.randrange(1, 9)))
    return f"<form {attributes} action=/echo>{inside}</form><input form=f{number} name=after value=1>"


@pytest.fixture
def browser(tmp_path):
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", f"user-data-dir={tmp_path}"):
        options.add_argument(f"--{argument}")
    service = Service(shutil.which("chromedriver"), port=closed_port(*LOCALHOST))
    with webdriver.Chrome(options=options, service=service) as driver:
        yield driver


CLICK = """const form = document.forms[0]
const button = [...form.elements].find(each => each.type == "submit" && !each.matches(":disabled"))
button ? button.click() : form.submit()"""


def echoed(server):
    """Return the request for /echo, once it is there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for hit in server.hits:
            if hit.path == "/echo":
                return hit
        time.sleep(0.01)
    raise AssertionError("the browser sent nothing")


@pytest.mark.browser
def test_a_browser_sends_the_same_fields(browser):
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    with running() as server:
        for number in range(25):
            body = f"<!doctype html><meta charset=utf-8>{random_form(rng, number)}"
            browser.get(server.url("/good"))
            browser.execute_script("document.open(); document.write(arguments[0]); document.close()", body)
            server.hits.clear()
            browser.execute_script(CLICK)
            hit = echoed(server)
            request = FormRequest.from_response(page(body, server.url("/good")))
            ours, theirs = (
                each.partition("boundary=")[2]
                for each in (request.headers["Content-Type"], hit.headers["content-type"])
            )
            assert request.body.replace(ours.encode() or b"\0", theirs.encode()) == hit.body, body


def test_forms_of_a_server_are_submitted():
    answer = page(FORMS)
    assert FormRequest.from_response(answer).url == "http://a.example/echo?q=%C3%A9t%C3%A9&go=Go&outside=1"
    order = FormRequest.from_response(answer, formname="order", clickdata={"name": "do", "value": "save"})
    assert parse_qsl(order.body.decode(), keep_blank_values=True) == [
        ("title", "A & B"), ("secret", ""), ("extra", "a"), ("extra", "on"), ("size", "m"), ("country", "fr"),
        ("one", "first"), ("many", "x"), ("many", "z"), ("note", "two\r\nlines"), ("kept", "1"), ("upload", ""),
        ("do", "save"),
    ]  # fmt: skip
    delete = FormRequest.from_response(answer, formname="order", clickdata={"value": "delete"}, formdata={"note": None})
    assert delete.method == "GET"
    assert "note" not in delete.url
    assert FormRequest.from_response(answer, formid="upload").headers["Content-Type"].startswith("multipart/form-data")
