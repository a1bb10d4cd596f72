"""Split a pasted command into words, by the rules of bash or of cmd.exe on Windows, in linear time.

Nothing is expanded and nothing is run. Bytes that are not UTF-8 (`$'\\xff'`) become surrogates, as in `sys.argv`.
"""

from __future__ import annotations

import re

_BASH = re.compile(
    r"""\\\r?\n | (?P<blank>\s+) | '(?P<single>[^']*)' | \$'(?P<ansi>(?:[^'\\]|\\.)*)'
    | \$?"(?P<double>(?:[^"\\]|\\.)*)" | \\(?P<escaped>.) | (?P<plain>[^\s'"\\$]+|\$(?!'))""",
    re.VERBOSE | re.DOTALL,
)
_IN_DOUBLE = re.compile(r'\\(?:([$`"\\])|\r?\n)')
_IN_ANSI = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|x([0-9a-fA-F]{1,2})|([0-7]{1,3})"
    r"|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.)|(.))",
    re.DOTALL,
)
_ANSI = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_CMD = re.compile(r'(\\+(?=")|)(?:(")|(\s+)|([^\s"\\]+|\\+))')


def bash_words(command: str) -> list[str]:
    """Split as bash does. Raises `ValueError` for an unclosed quote, or a backslash at the end."""
    words = _Words()
    at = 0
    while at < len(command):
        found = _BASH.match(command, at)
        if found is None:
            raise ValueError("the command ends with a backslash" if command[at:] == "\\" else "a quote is not closed")
        at = found.end()
        if found["blank"] is not None:
            words.end()
        elif found.lastgroup:
            words.add(_piece(found))
    return words.end()


class _Words:
    """Words that are built piece by piece. An empty piece ('') also makes a word."""

    def __init__(self) -> None:
        self._done: list[str] = []
        self._pieces: list[str] = []

    def add(self, *pieces: str) -> None:
        self._pieces += pieces

    def end(self) -> list[str]:
        if self._pieces:
            self._done.append("".join(self._pieces))
            self._pieces = []
        return self._done


def _piece(found: re.Match[str]) -> str:
    if found["double"] is not None:
        return _IN_DOUBLE.sub(lambda each: each[1] or "", found["double"])
    if found["ansi"] is not None:
        # Successive escaped bytes (\xc3\xa9) may form one UTF-8 character.
        return _IN_ANSI.sub(_ansi, found["ansi"]).encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    return found[found.lastgroup or 0]


def _ansi(found: re.Match[str]) -> str:
    high, low, byte, octal, short, long, control, other = found.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF))
    if byte or octal:
        return bytes([int(byte, 16) if byte else int(octal, 8) & 0xFF]).decode("utf-8", "surrogateescape")
    if short or long:
        code = int(short or long, 16)
        return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"
    if control:
        return chr(ord(control.upper()) & 0x1F)
    return _ANSI.get(other, other if other in "\\'\"?" else "\\" + other)


def cmd_words(command: str) -> list[str]:
    """Remove the carets of cmd.exe, then split as Windows programs do. Raises `ValueError` for an unclosed quote.

    `\\"` stands for a quote in a word, and so does `""` inside quotes.
    """
    words = _Words()
    quoted = skip = False
    for found in _CMD.finditer(_without_carets(command)):
        slashes, mark, blank, plain = found.groups("")
        if skip:  # the second half of ""
            skip = False
        elif blank and not quoted:
            words.end()
        elif not mark:
            words.add(slashes, blank, plain)
        else:
            skip = quoted and len(slashes) % 2 == 0 and found.string.startswith('"', found.end())
            literal = skip or len(slashes) % 2 == 1
            words.add("\\" * (len(slashes) // 2), '"' * literal)
            quoted ^= not literal
    if quoted:
        raise ValueError("a quote is not closed")
    return words.end()


def _without_carets(command: str) -> str:
    """Return what cmd.exe passes to the program: outside quotes a caret escapes the next character and joins lines."""
    quoted = False

    def plain(found: re.Match[str]) -> str:
        nonlocal quoted
        text = found[0]
        if text == '"':
            quoted = not quoted
            return text
        if quoted:
            return text
        return "\n" if found[1] else "" if text[1:] in {"\n", "\r\n"} else text[1:]

    return re.sub(r'"|\^(\r?\n\r?\n)|\^\r?\n|\^.', plain, re.sub(r"\^[ \t]+(?=\r?\n)", "^", command))
