"""Pasted commands are split into words (C1) as by bash, and as by Windows programs."""

from __future__ import annotations

import random
import shutil
import subprocess

import pytest

from lycosa.http.core.shell_words import bash_words, cmd_words
from tests.conftest import need


def random_command(rng):
    """Return words in all kinds of quotes, without expansions that only a running shell could resolve."""

    def text(alphabet):
        return "".join(rng.choice(alphabet) for _ in range(rng.randrange(5)))

    def piece():
        return rng.choice(
            [
                "'" + text('a "\\\né$`!&') + "'",
                '"' + text(["a", " ", "'", "\n", "é", '\\"', "\\\\", "\\$", "\\`", "\\a", "\\\n", "$ ", "!"]) + '"',
                "$'" + text(["a", " ", '"', "\\'", "\\\\", "\\n", "\\t", "\\x41", "\\xc3\\xa9", "\\xff", "\\101", "\\e",
                             "\\u00e9", "\\u20AC", "\\U0001f600", "\\cA", "\\q", "\\?", "é", "\n"]) + "'",
                "\\" + rng.choice("a '\"\\$;&|(é"),
                "\\\n",
                text("abc,.:/=-@%+é"),
                rng.choice([" ", "  ", "\t", " \\\n "]),
            ]
        )  # fmt: skip

    return "word " + "".join(piece() for _ in range(rng.randrange(1, 9)))


def test_bash_splits_into_the_same_words():
    need("bash", bool(shutil.which("bash")))
    seed = random.randrange(10**6)
    print("seed", seed)
    rng = random.Random(seed)
    commands = [random_command(rng) for _ in range(500)]
    script = "".join(f"printf '%s\\0' {command}\nprintf '%s\\0' END\n" for command in commands)
    environment = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash"], input=script.encode(), capture_output=True, env=environment, timeout=30, check=True)
    found = done.stdout.decode("utf-8", "surrogateescape").split("\0END\0")
    assert len(found) == len(commands) + 1
    for command, words in zip(commands, found, strict=False):
        assert bash_words(command) == words.split("\0"), command


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ('curl ^"a b^"', ["curl", "a b"]),
        ('curl ^"a^&b^" ^\r\n  -H ^"x^"', ["curl", "a&b", "-H", "x"]),
        ('^"a^\n\nb^"', ["a\nb"]),
        ('"a ^& b"', ["a ^& b"]),
        ('a"b c"d', ["ab cd"]),
        ('"" x', ["", "x"]),
        (r'"\"" \" "a\\" a\\b', ['"', '"', "a\\", r"a\\b"]),
        ('"a ""b"" c"', ['a "b" c']),
        ("^^ a^\n b", ["^", "a", "b"]),
    ],
)
def test_words_of_cmd_exe(command, words):
    assert cmd_words(command) == words


@pytest.mark.parametrize("command", ["'", '"', "$'\\'", "\\", 'a "b\\"'])
def test_unclosed_quotes_are_refused(command):
    with pytest.raises(ValueError, match="ends with a backslash" if command == "\\" else "not closed"):
        bash_words(command)
