"""Convert curl commands (such as a browser's "Copy as cURL") to the arguments of a Request, and requests back to curl
commands.

`from_curl` reads commands for bash and for cmd.exe; `to_curl` writes them for bash. No file is read and no command is
run. Options about the transfer or the output (`--compressed`, `-L`, `-k`, `-s` ...) are ignored.

`argparse` and `getopt` cannot split curl's options: a value may begin with a dash (a multipart body does), short
options may be combined (`-sXPOST`), and unknown options are skipped or reported with a suggestion.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Protocol
from urllib.parse import quote_plus, unquote, urlsplit, urlunsplit

from lycosa.core.errors import UsageError
from lycosa.core.url import add_params
from lycosa.http.core.shell_words import bash_words, cmd_words

FORM = "application/x-www-form-urlencoded"
SHOWN_MAX = 60

LONG_NAMES = {
    "-A": "--user-agent", "-b": "--cookie", "-d": "--data", "-e": "--referer", "-G": "--get", "-H": "--header",
    "-I": "--head", "-m": "--max-time", "-u": "--user", "-x": "--proxy", "-X": "--request",
    "-f": "--fail", "-g": "--globoff", "-i": "--include", "-k": "--insecure", "-L": "--location", "-N": "--no-buffer",
    "-o": "--output", "-s": "--silent", "-S": "--show-error", "-v": "--verbose", "-#": "--progress-bar",
}  # fmt: skip
IGNORED = frozenset((
    "--basic", "--compressed", "--fail", "--globoff", "--http1.1", "--http2", "--http3", "--include", "--insecure",
    "--location", "--no-buffer", "--path-as-is", "--progress-bar", "--show-error", "--silent", "--verbose",
))  # fmt: skip
IGNORED_WITH_VALUE = frozenset(("--connect-timeout", "--max-redirs", "--output", "--retry"))


_CMD_EXE = re.compile(r"""[^"']*\^"|[^\n]*\^[ \t]*\r?\n""")


class BadCurl(UsageError, ValueError):
    """The command is not curl, or cannot be converted."""


class Curlable(Protocol):
    """The parts of a request that `to_curl` needs. It also uses the attributes `cookies` and `params`, if present."""

    url: str
    method: str
    body: bytes

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def meta(self) -> Mapping[str, Any]:
        """Only `download_timeout` and `proxy` are used."""


def from_curl(command: str, *, ignore_unknown_options: bool = False) -> dict[str, Any]:
    """Return the arguments of `Request` for a curl command. Raises `BadCurl`.

    Always present: `url` and `method`. Present if the command has them: `headers`, `cookies` (dicts), `body` (bytes),
    `timeout` (seconds) and `proxy`.
    """
    command = command.strip()
    try:
        words = cmd_words(command) if _CMD_EXE.match(command) else bash_words(command)
    except ValueError as error:
        raise BadCurl(f"{error}: {_shown(command)}") from None
    program, *arguments = words or [""]
    if program not in {"curl", "curl.exe"}:
        raise BadCurl(f"a curl command begins with curl, not with {_shown(program)}")
    draft = _RequestDraft()
    for option, value in _options(arguments, ignore_unknown=ignore_unknown_options):
        APPLIED[option](draft, value)
    return draft.arguments()


def to_curl(request: Curlable) -> str:
    """Return a command for bash. Raises `BadCurl` for a body with NUL bytes."""
    if b"\0" in request.body:
        raise BadCurl("a body with NUL bytes cannot be written on a command line")
    return " ".join(["curl", *(_quoted(each) for each in _arguments(request))])


# --- reading: options


@dataclass(slots=True)
class _RequestDraft:
    """The request as described by the options read so far.

    `headers` is keyed by lower-case name. `implied` holds headers from options other than -H; a -H overrides them.
    """

    url: str = ""
    method: str = ""
    headers: dict[str, tuple[str, str]] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    implied: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    to_query: bool = False
    head: bool = False
    more: dict[str, Any] = field(default_factory=dict)

    def set_url(self, url: str) -> None:
        if self.url:
            raise BadCurl(f"write one URL: this command has {_shown(self.url)} and {_shown(url)}")
        self.url = url

    def add_header(self, line: str) -> None:
        if line.startswith("@"):
            raise BadCurl(f"-H {_shown(line)}: header files are not read: write the headers into the command")
        if "\n" in line or "\r" in line:
            raise BadCurl(f"-H {_shown(line)}: a header is one line")
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon and name.endswith(";"):
            return self.put(name[:-1], "")
        if not colon or not name:
            raise BadCurl(f"-H {_shown(line)}: write a header as 'Name: value'")
        if name.lower() == "cookie":
            return self.add_cookies(value)
        return self.put(name, value) if value else self.removed.add(name.lower())

    def put(self, name: str, value: str) -> None:
        known = self.headers.get(name.lower())
        if known:
            value = f"{known[1]}, {value}"
        self.headers[name.lower()] = (known[0] if known else name, value)

    def add_cookies(self, text: str) -> None:
        for pair in text.split(";"):
            name, equals, value = pair.strip().partition("=")
            if equals and name:
                self.cookies[name] = value

    def add_data(self, data: str, joint: bytes = b"&") -> None:
        added = data.encode("utf-8", "surrogateescape")
        self.body = added if self.body is None else self.body + joint + added

    def arguments(self) -> dict[str, Any]:
        if not self.url:
            raise BadCurl("the curl command has no URL")
        self._split_url()
        if self.body is not None and not self.to_query:
            self.implied.setdefault("Content-Type", FORM)
        for name, value in self.implied.items():
            if name.lower() not in self.removed:
                self.headers.setdefault(name.lower(), (name, value))
        implied = "HEAD" if self.head else "GET" if self.body is None or self.to_query else "POST"
        found: dict[str, Any] = {"url": self.url, "method": self.method or implied}
        if self.headers:
            found["headers"] = dict(self.headers.values())
        if self.cookies:
            found["cookies"] = self.cookies
        if self.body is not None and not self.to_query:
            found["body"] = self.body
        return found | self.more

    def _split_url(self) -> None:
        """Complete the URL; move user and password into a header and, with -G, the data into the query."""
        if "://" not in self.url:
            self.url = "http://" + self.url
        try:
            parts = urlsplit(self.url)
        except ValueError as error:
            raise BadCurl(f"{_shown(self.url)} is not a URL: {error}") from None
        user, at, host = parts.netloc.rpartition("@")
        if at:
            name, _, password = user.partition(":")
            self.implied.setdefault("Authorization", _basic(f"{unquote(name)}:{unquote(password)}"))
            parts = parts._replace(netloc=host)
        if self.to_query and self.body:
            data = self.body.decode("utf-8", "surrogateescape")
            parts = parts._replace(query=f"{parts.query}&{data}" if parts.query else data)
        if at or self.to_query:
            self.url = urlunsplit(parts)


def _cookie(draft: _RequestDraft, value: str) -> None:
    if "=" not in value:
        raise BadCurl(f"-b {_shown(value)}: cookie files are not read: write the cookies as 'name=value; name=value'")
    draft.add_cookies(value)


def _data(draft: _RequestDraft, value: str) -> None:
    draft.add_data(_no_file("-d", value))


def _data_urlencode(draft: _RequestDraft, value: str) -> None:
    name, mark, content = re.fullmatch(r"([^=@]*)([=@]?)(.*)", value, re.DOTALL).groups()  # type: ignore[union-attr]
    if mark == "@":
        _no_file("--data-urlencode", "@" + content)
    if not mark:
        name, content = "", name
    encoded = quote_plus(content.encode("utf-8", "surrogateescape"))
    draft.add_data(f"{name}={encoded}" if name else encoded)


def _json(draft: _RequestDraft, value: str) -> None:
    draft.add_data(_no_file("--json", value), joint=b"")
    draft.implied |= {"Content-Type": "application/json", "Accept": "application/json"}


def _user(draft: _RequestDraft, value: str) -> None:
    if ":" not in value:
        raise BadCurl("-u: write user:password; there is no prompt for the password")
    draft.implied["Authorization"] = _basic(value)


def _user_agent(draft: _RequestDraft, value: str) -> None:
    if value:
        draft.implied["User-Agent"] = value


def _max_time(draft: _RequestDraft, value: str) -> None:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise BadCurl(f"-m {_shown(value)}: write a number of seconds")
    if seconds:  # 0 means no limit in curl
        draft.more["timeout"] = seconds


def _flag(name: str) -> Callable[[_RequestDraft, str], None]:
    return lambda draft, _value: setattr(draft, name, True)


FLAGS: Mapping[str, Callable[[_RequestDraft, str], None]] = {"--get": _flag("to_query"), "--head": _flag("head")}
APPLIED: Mapping[str, Callable[[_RequestDraft, str], None]] = {
    **FLAGS,
    "--cookie": _cookie,
    "--data": _data,
    "--data-ascii": _data,
    "--data-binary": _data,
    "--data-raw": lambda draft, value: draft.add_data(value),
    "--data-urlencode": _data_urlencode,
    "--header": lambda draft, value: draft.add_header(value),
    "--json": _json,
    "--max-time": _max_time,
    "--proxy": lambda draft, value: draft.more.update(proxy=value if "://" in value else "http://" + value),
    "--referer": lambda draft, value: draft.implied.update(Referer=value.removesuffix(";auto")),
    "--request": lambda draft, value: setattr(draft, "method", value),
    "--url": lambda draft, value: draft.set_url(value),
    "--user": _user,
    "--user-agent": _user_agent,
}
KNOWN = frozenset(APPLIED) | IGNORED | IGNORED_WITH_VALUE


def _options(arguments: list[str], *, ignore_unknown: bool) -> Iterator[tuple[str, str]]:
    """Yield the options to apply as (long name, value). An argument that is not an option is yielded as a --url."""
    rest = iter(arguments)
    for word in rest:
        if not word.startswith("-") or word == "-":
            yield "--url", word
        elif word.startswith("--"):
            yield from _option(word, None, rest, ignore_unknown)
        else:
            yield from _short_options(word, rest, ignore_unknown)


def _short_options(word: str, rest: Iterator[str], ignore_unknown: bool) -> Iterator[tuple[str, str]]:
    """Split `-sXPOST`: flags, then at most one option with its value."""
    for at in range(1, len(word)):
        name = LONG_NAMES.get("-" + word[at], "-" + word[at])
        if name in IGNORED or name in FLAGS:
            yield from _option(name, None, rest, ignore_unknown)
        else:
            yield from _option(name, word[at + 1 :] or None, rest, ignore_unknown)
            return


def _option(name: str, value: str | None, rest: Iterator[str], ignore_unknown: bool) -> Iterator[tuple[str, str]]:
    if name not in KNOWN:
        if not ignore_unknown:
            raise BadCurl(f"unknown curl option {_shown(name)}{_suggest(name)}")
        return
    if name in IGNORED:
        return
    if name not in FLAGS and value is None:
        value = next(rest, None)
        if value is None:
            raise BadCurl(f"the curl option {name} needs a value")
    if name not in IGNORED_WITH_VALUE:
        yield name, value or ""


def _suggest(name: str) -> str:
    near = get_close_matches(name, sorted(KNOWN), 1, 0.7)
    return f": did you mean {near[0]}?" if near else ": leave it out, or pass ignore_unknown_options=True"


def _no_file(option: str, value: str) -> str:
    if value.startswith("@"):
        raise BadCurl(f"{option} {_shown(value)}: files are not read: write the data, or use --data-raw for a real '@'")
    return value


def _basic(credentials: str) -> str:
    return "Basic " + b64encode(credentials.encode("utf-8", "surrogateescape")).decode()


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "...")


# --- writing

_SAFE = re.compile(r"[\w@%+=:,./-]+", re.ASCII)


def _arguments(request: Curlable) -> Iterator[str]:
    method, body = request.method.upper(), request.body
    url = add_params(request.url, getattr(request, "params", None))
    if any(bracket in url for bracket in "[]{}"):
        yield "--globoff"
    if method == "HEAD" and not body:
        yield "--head"  # with -X HEAD curl would wait for a body
    elif method != ("POST" if body else "GET"):
        yield from ("-X", method)
    yield url
    for name, value in request.headers.items():
        yield from ("-H", f"{name}: {value}" if value.strip() else f"{name};")
    if body and "content-type" not in {name.lower() for name in request.headers}:
        yield from ("-H", "Content-Type:")  # otherwise curl adds its own
    if cookies := _cookies(request):
        yield from ("-b", cookies)
    if timeout := request.meta.get("download_timeout"):
        yield from ("-m", repr(timeout).removesuffix(".0"))
    if proxy := request.meta.get("proxy"):
        yield from ("-x", proxy.decode() if isinstance(proxy, bytes) else proxy)
    if body:
        yield from ("--data-raw", body.decode("utf-8", "surrogateescape"))


def _cookies(request: Curlable) -> str:
    cookies = getattr(request, "cookies", None) or {}
    pairs = cookies.items() if isinstance(cookies, Mapping) else [(each["name"], each["value"]) for each in cookies]
    return "; ".join(f"{_cookie_text(name)}={_cookie_text(value)}" for name, value in pairs)


def _cookie_text(part: Any) -> str:
    return part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part)


def _quoted(word: str) -> str:
    if word.isprintable():
        return word if _SAFE.fullmatch(word) else "'" + word.replace("'", "'\\''") + "'"
    return "$'" + "".join(map(_escaped, word.encode("utf-8", "surrogateescape"))) + "'"


def _escaped(byte: int) -> str:
    named = {0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 0x27: "\\'", 0x5C: "\\\\"}
    return named.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}")
