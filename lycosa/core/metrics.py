"""Metrics in the text format of Prometheus (version 0.0.4), which OpenMetrics scrapers also read.

The name of a metric ends with its unit, the name of a counter with `_total`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")

Samples = Sequence[tuple[Mapping[str, str], float]]


class Metric(NamedTuple):
    """`kind` is counter or gauge; each sample has labels and a value."""

    name: str
    kind: str
    help: str
    samples: Samples


def exposition(metrics: Iterable[Metric]) -> bytes:
    """Format metrics. Raises `ValueError` for an invalid name."""
    lines: list[str] = []
    for metric in metrics:
        if not NAME.fullmatch(metric.name) or (metric.kind == "counter") != metric.name.endswith("_total"):
            raise ValueError(f"{metric.name} is not a valid name of a {metric.kind}")
        lines += [f"# HELP {metric.name} {_escaped(metric.help)}", f"# TYPE {metric.name} {metric.kind}"]
        lines += [f"{metric.name}{_labels(labels)} {_number(value)}" for labels, value in metric.samples]
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    for name in labels:
        if not NAME.fullmatch(name) or ":" in name:
            raise ValueError(f"{name} is not a valid name of a label")
    return "{" + ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
