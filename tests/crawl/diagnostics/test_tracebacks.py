"""The frames of user code in a traceback."""

from __future__ import annotations

import json
import logging

import pytest

from lycosa.core.url import canonicalize
from lycosa.crawl.diagnostics.bug_log import BugLog
from lycosa.crawl.diagnostics.tracebacks import is_user_file, user_frame, user_function, user_line, user_traceback


def parse() -> None:
    json.loads("{")


def raised_by(function, *arguments) -> BaseException:
    try:
        function(*arguments)
    except Exception as error:
        return error
    raise AssertionError


def test_the_innermost_line_of_user_code_is_found_above_the_standard_library() -> None:
    error = raised_by(parse)
    line = parse.__code__.co_firstlineno + 1
    assert user_frame(error) == (__file__, line)
    assert user_line(error) == f"test_tracebacks.py:{line}"
    assert user_function(error, "parse") == "raised_by", "the outermost function outside Lycosa"


def test_an_exception_without_user_code_has_no_line_and_a_complete_traceback(caplog) -> None:
    error = BaseException().with_traceback(None)
    assert (user_traceback(error), user_line(error), user_function(error, "parse")) == (None, "", "parse")
    BugLog().record(error, "parse", "BaseException")
    assert caplog.records[0].exc_info == (BaseException, error, None)


def test_frames_of_lycosa_are_no_user_code() -> None:
    error = raised_by(canonicalize, "http://[")
    assert error.__traceback__ is not None
    ours = error.with_traceback(error.__traceback__.tb_next)
    assert (user_traceback(ours), user_line(ours)) == (None, "")


@pytest.mark.parametrize(
    ("file", "is_users"),
    [
        (__file__, True),
        ("<string>", True),
        ("<frozen importlib._bootstrap>", False),
        (json.__file__, False),
        (logging.__file__, False),
        ("/venv/lib/python3.11/site-packages/parsel/selector.py", False),
        (BugLog.record.__code__.co_filename, False),
    ],
)
def test_files_of_user_code_are_distinguished_from_ours_and_libraries(file: str, is_users: bool) -> None:
    assert is_user_file(file) == is_users
