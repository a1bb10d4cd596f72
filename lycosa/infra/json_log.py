"""A log in JSON: one object per line, with `time`, `level`, `logger`, `message`, and the fields of the record.

Calls pass fields as `extra`: log.info("slow", extra={"url": url}). A traceback is in `exception`.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from math import isfinite
from typing import Any

FIELDS_MAX = 50
"""Maximum number of fields in a line, and of elements in a list."""

FIELD_TEXT_MAX = 10_000

STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every record, which are not fields."""


class JsonFormatter(logging.Formatter):
    """A field never replaces `time`, `level`, `logger` or `message`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            line["exception"] = record.exc_text
        return json.dumps(line | {name: value for name, value in fields_of(record).items() if name not in line})


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return at most FIELDS_MAX fields. Long texts are cut.

    None, booleans and finite numbers are kept; a list keeps its form, but its elements become text, like all else.
    """
    found = [each for each in vars(record).items() if each[0] not in STANDARD]
    return {name: _json_value(value) for name, value in found[:FIELDS_MAX]}


def _json_value(value: Any) -> Any:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
        return value
    if isinstance(value, list | tuple):
        return [str(each)[:FIELD_TEXT_MAX] for each in value[:FIELDS_MAX]]
    return str(value)[:FIELD_TEXT_MAX]
