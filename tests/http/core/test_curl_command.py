"""Conversion of curl commands, as copied from browsers and as written by hand, to requests and back (C1)."""

from __future__ import annotations

import json
import shutil
import subprocess
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import UsageError
from lycosa.http.core.curl_command import BadCurl, from_curl, to_curl
from tests.conftest import need
from tests.servers.misbehaving import running

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def request_of(
    url="http://127.0.0.1/", method="GET", headers=None, body=b"", cookies=None, timeout=None, proxy=None, params=None
):
    meta = {"download_timeout": timeout, "proxy": proxy}
    return SimpleNamespace(
        url=url, method=method, headers=headers or {}, body=body, cookies=cookies, params=params, meta=meta
    )


CHROME_BASH = r"""curl 'https://shop.example/api?q=a&b=%20c' \
  -X 'PUT' \
  -H 'accept: */*' \
  -H 'accept-language: en-US,en;q=0.9' \
  -b 'sid=abc; theme="dark mode"' \
  -H 'content-type: application/json' \
  -H $'x-note: it\'s \u0021' \
  --data-raw $'{"text":"line\\nbreak","wow":"\u0021","smile":"\ud83d\ude00"}' ;
"""
CHROME_CMD = """curl ^"https://shop.example/api?q=a^&b=^%^20c^" ^
  -H ^"accept: */*^" ^
  -b ^"sid=abc; theme=dark^" ^
  -H ^"content-type: application/json^" ^
  --data-raw ^"^{^\\^"text^\\^":^\\^"100^% sure^\\^"^}^
\n ^" """
FIREFOX_BASH = (
    "curl 'https://shop.example/' --compressed -X POST -H 'User-Agent: Mozilla/5.0' -H 'Cookie: a=1; b=2==' "
    "-H 'Priority: u=0, i' --data-raw 'name=J%C3%BCrgen&x='"
)


def test_command_of_chrome_for_bash():
    command = CHROME_BASH.rstrip(" ;\n")  # "Copy all as cURL" separates commands by semicolons
    assert from_curl(command) == {
        "url": "https://shop.example/api?q=a&b=%20c",
        "method": "PUT",
        "headers": {
            "accept": "*/*",
            "accept-language": "en-US,en;q=0.9",
            "content-type": "application/json",
            "x-note": "it's !",
        },
        "cookies": {"sid": "abc", "theme": '"dark mode"'},
        "body": '{"text":"line\\nbreak","wow":"!","smile":"😀"}'.encode(),
    }


def test_command_of_chrome_for_cmd_exe():
    assert from_curl(CHROME_CMD) == {
        "url": "https://shop.example/api?q=a&b=%20c",
        "method": "POST",
        "headers": {"accept": "*/*", "content-type": "application/json"},
        "cookies": {"sid": "abc", "theme": "dark"},
        "body": b'{"text":"100% sure"}\n ',
    }


def test_command_of_firefox():
    assert from_curl(FIREFOX_BASH) == {
        "url": "https://shop.example/",
        "method": "POST",
        "headers": {"User-Agent": "Mozilla/5.0", "Priority": "u=0, i", **FORM},
        "cookies": {"a": "1", "b": "2=="},
        "body": b"name=J%C3%BCrgen&x=",
    }


GET = {"url": "http://h/", "method": "GET"}
JSON = {"url": "http://h", "method": "POST", "body": b"1"}
POST = {"url": "http://h/", "method": "POST", "headers": FORM}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("curl h/", GET),
        ("curl.exe http://h/", GET),
        ("  curl \t http://h/ \n", GET),
        ("curl -sSL -k --compressed --http2 -o out.html http://h/", GET),
        ("curl -XDELETE http://h/", {**GET, "method": "DELETE"}),
        ("curl -sXDELETE --url http://h/", {**GET, "method": "DELETE"}),
        ("curl -I http://h/", {**GET, "method": "HEAD"}),
        ("curl -X GET -d asdf http://h/", {**POST, "method": "GET", "body": b"asdf"}),
        ("curl -d a=1 --data-raw b=2 -dc=3 http://h/", {**POST, "body": b"a=1&b=2&c=3"}),
        ("curl -d '' http://h/", {**POST, "body": b""}),
        ("curl --data-raw @x http://h/", {**POST, "body": b"@x"}),
        ("curl --data-urlencode 'a=b c&d' --data-urlencode =é http://h/", {**POST, "body": b"a=b+c%26d&%C3%A9"}),
        ("curl --data-urlencode 'x y' http://h/", {**POST, "body": b"x+y"}),
        ("curl -G -d a=1 --data-urlencode 'b=2 3' 'http://h/?c=4#f'", {**GET, "url": "http://h/?c=4&a=1&b=2+3#f"}),
        ("curl -G -d a=1 http://h", {**GET, "url": "http://h?a=1"}),
        (
            """curl --json '{"a":' --json 1} http://h/""",
            {**POST, "body": b'{"a":1}', "headers": {"Content-Type": "application/json", "Accept": "application/json"}},
        ),
        ("curl -H 'content-type: a/b' -d x http://h/", {**POST, "headers": {"content-type": "a/b"}, "body": b"x"}),
        ("curl -H Content-Type: -d x http://h/", {"url": "http://h/", "method": "POST", "body": b"x"}),
        ("curl -H 'X-Empty;' http://h/", {**GET, "headers": {"X-Empty": ""}}),
        ("curl -H 'A: 1' -H 'a:2' http://h/", {**GET, "headers": {"A": "1, 2"}}),
        ("curl -A me -e 'http://r/;auto' http://h/", {**GET, "headers": {"User-Agent": "me", "Referer": "http://r/"}}),
        ("curl -A a -H 'user-agent: b' -A c http://h/", {**GET, "headers": {"user-agent": "b"}}),
        ("curl -A a -A c http://h/", {**GET, "headers": {"User-Agent": "c"}}),
        ("curl -A a -H User-Agent: http://h/", GET),
        ("curl --json 1 -H 'Accept: a' h", {**JSON, "headers": {"Accept": "a", "Content-Type": "application/json"}}),
        ("curl -u a:b:c http://x:y@h/", {**GET, "headers": {"Authorization": "Basic YTpiOmM="}}),
        ("curl -u a:b:c http://h/", {**GET, "headers": {"Authorization": "Basic YTpiOmM="}}),
        ("curl http://a:b%3Ac@h/", {**GET, "headers": {"Authorization": "Basic YTpiOmM="}}),
        ("curl -b 'a=1;b=2' -b c=3 -H 'Cookie: d=4' h/", {**GET, "cookies": {"a": "1", "b": "2", "c": "3", "d": "4"}}),
        ("curl -m 2.5 -x proxy:3128 http://h/", {**GET, "timeout": 2.5, "proxy": "http://proxy:3128"}),
        ("curl -x socks5h://p:1 http://h/", {**GET, "proxy": "socks5h://p:1"}),
        ('curl "http://h/?a=\\"\\$x\\q\\\n"', {**GET, "url": 'http://h/?a="$x\\q'}),
        ("curl http://h/?a=\\ \\'b'c d'\"e\"$'\\x41\\101\\t'", {**GET, "url": "http://h/?a= 'bc deAA\t"}),
        ("curl -d $'\\xc3\\xa9\\xff\\n' http://h/", {**POST, "body": b"\xc3\xa9\xff\n"}),
        ('curl "http://h/" ^\n  -d "a ""b"" c" ^\r\n  -m 1', {**POST, "body": b'a "b" c', "timeout": 1.0}),
        ('curl --data-raw \'{"re": "^"}\' http://h/', {**POST, "body": b'{"re": "^"}'}),
    ],
)  # fmt: skip
def test_meaning_of_options(command, expected):
    assert from_curl(command) == expected


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("", "begins with curl"),
        ("carl http://h/", "begins with curl, not with 'carl'"),
        ("curl", "no URL"),
        ("curl -X", "-X|--request needs a value"),
        ("curl --heder 'A: 1' http://h/", "unknown curl option '--heder': did you mean --header"),
        ("curl --bar http://h/", "ignore_unknown_options=True"),
        ("curl http://a/ http://b/", "write one URL"),
        ("curl 'http://h/", "not closed"),
        ('curl ^"http://h/', "not closed"),
        ("curl -d @secret.txt http://h/", "files are not read"),
        ("curl --data-urlencode n@secret.txt http://h/", "files are not read"),
        ("curl --json @secret.txt http://h/", "files are not read"),
        ("curl -H @headers http://h/", "not read"),
        ("curl -b cookies.txt http://h/", "cookie files are not read"),
        ("curl -H $'A: 1\\r\\nEvil: 2' http://h/", "one line"),
        ("curl -H nonsense http://h/", "Name: value"),
        ("curl -u name http://h/", "user:password"),
        ("curl -m soon http://h/", "number of seconds"),
        ("curl -m nan http://h/", "number of seconds"),
        ("curl http://[::1/", "not a URL"),
    ],
)
def test_unreadable_commands_are_refused_in_one_line(command, complaint):
    with pytest.raises(BadCurl, match=complaint) as caught:
        from_curl(command)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, UsageError)
    assert "\n" not in str(caught.value)


def test_unknown_options_can_be_ignored():
    assert from_curl("curl --bar -Zs --baz http://h/", ignore_unknown_options=True) == GET


@given(st.text())
def test_no_text_raises_an_error_other_than_bad_curl(text):
    for command in (text, f"curl {text}", f'curl ^"{text}', f"curl $'{text}'"):
        try:
            found = from_curl(command, ignore_unknown_options=True)
        except BadCurl as complaint:
            assert "\n" not in str(complaint)
        else:
            assert found["url"]


names = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,8}", fullmatch=True).filter(lambda name: name.lower() != "cookie")
plain = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), max_size=20).map(str.strip)
queries = st.text("abc[]{}&=%$'\"\\^!é ;", max_size=10)
requests = st.builds(
    request_of,
    url=queries.map("http://h/?{}".format),
    method=st.sampled_from(["GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS"]),
    headers=st.dictionaries(names.map(str.title), plain, max_size=3),
    body=st.one_of(st.just(b""), st.binary(max_size=30), plain.map(str.encode)).map(lambda b: b.replace(b"\0", b"")),
    cookies=st.dictionaries(names, plain.map(lambda text: text.replace(";", "")).map(str.strip), max_size=2),
    timeout=st.one_of(st.none(), st.floats(0.001, 1e6)),
    proxy=st.sampled_from([None, "http://p:1", "socks5://[::1]:9"]),
)


@given(requests)
def test_written_command_is_read_back(request_):
    found = from_curl(to_curl(request_))
    assert found.pop("url") == request_.url
    assert found.pop("method") == request_.method
    assert found.pop("headers", {}) == request_.headers
    assert found.pop("body", b"") == request_.body
    assert found.pop("cookies", {}) == request_.cookies
    assert found.pop("timeout", None) == request_.meta["download_timeout"]
    assert found.pop("proxy", None) == request_.meta["proxy"]
    assert not found


def test_params_and_cookies_as_list_are_written():
    request = request_of(
        "http://h/?a=1#f", params={"b": ["2", "3"]}, cookies=[{"name": "c", "value": "4", "path": "/"}]
    )
    assert to_curl(request) == "curl 'http://h/?a=1&b=2&b=3#f' -b c=4"


def test_bytes_are_written_as_text():
    request = request_of(
        "http://h/", cookies=[{"name": b"c", "value": "4"}, {"name": "d", "value": b"5"}], proxy=b"http://p:1"
    )
    assert to_curl(request) == "curl http://h/ -b 'c=4; d=5' -x http://p:1"
    assert to_curl(request_of("http://h/", cookies={b"c": b"4"})) == "curl http://h/ -b c=4"


def test_body_with_nul_bytes_is_refused():
    with pytest.raises(BadCurl, match="NUL"):
        to_curl(request_of(method="POST", body=b"a\0b"))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"method": "DELETE"},
        {"method": "POST"},
        {"method": "GET", "body": b"got"},
        {"method": "POST", "body": b"plain"},
        {"method": "PUT", "body": b"@no-file 'quoted' \"twice\" $HOME `id` !\\n\r\n\xff\xc3\xa9"},
        {"method": "PATCH", "headers": {"X-A": "it's é $x"}},
        {"method": "POST", "body": b"{}", "headers": {"Content-Type": "application/json", "X-Empty": ""}},
        {"cookies": {"a": "1", "b": "x y"}, "headers": {"User-Agent": "me", "Accept": "text/html"}, "timeout": 5.0},
    ],
)  # fmt: skip
def test_curl_sends_the_same_request(given):
    need("curl and bash", bool(shutil.which("curl") and shutil.which("bash")))
    with running() as server:
        request = request_of(server.url("/echo?list[]=1&set={a,b}"), **given)
        command = to_curl(request)
        done = subprocess.run(
            ["bash", "-c", f"{command} --noproxy '*' -sS"], capture_output=True, timeout=20, check=True
        )
        echo = json.loads(done.stdout)
    assert (echo["method"], echo["target"]) == (request.method, "/echo?list[]=1&set={a,b}")
    assert bytes.fromhex(echo["body"]) == request.body
    sent = {name: value.encode("latin-1").decode() for name, value in echo["headers"].items()}
    assert {name: sent.get(name.lower()) for name in request.headers} == request.headers
    assert sent.get("cookie", "") == "; ".join(f"{name}={value}" for name, value in (request.cookies or {}).items())
    assert ("content-type" in sent) == ("Content-Type" in request.headers)
