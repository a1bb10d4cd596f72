"""The batch indexer of Sphinx, beside which indexes of torrents are measured. Its index cannot be updated.

The index has the same fields and numbers as ours, but no keywords. The indexer reads rows that a command writes.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lycosa.search.core.schema import TORRENTS, IndexEntry
from lycosa.search.core.sphinxql import CHARSET, fed

CONFIG = """source rows
{{
    type = tsvpipe
    tsvpipe_command = {command}
{columns}
}}
index rows
{{
    source = rows
    path = {folder}/plain
    charset_table = {charset}
    docinfo = extern
}}
indexer
{{
    mem_limit = {memory}
}}
"""


def text_fields(*, files: bool) -> list[str]:
    """Return the fields that are searched."""
    return ["name", "files"] if files else ["name"]


def fed_row(entry: IndexEntry, fields: Sequence[str]) -> str:
    """Return the row of a torrent."""
    texts = (fed(entry.texts[name]) for name in fields)
    numbers = (str(entry.numbers.get(name, -1)) for name in TORRENTS.numbers)
    return "\t".join([str(entry.key), *texts, *numbers]) + "\n"


def batch_index(folder: Path, command: str, fields: Sequence[str], memory: str) -> int:
    """Index the rows that the command writes, in files `plain.*` of the folder. Return the number of rows."""
    columns = [f"    tsvpipe_field = {name}" for name in fields]
    columns += [f"    tsvpipe_attr_bigint = n_{name}" for name in TORRENTS.numbers]
    config = folder / "sphinx.conf"
    config.write_text(
        CONFIG.format(command=command, columns="\n".join(columns), folder=folder, charset=CHARSET, memory=memory)
    )
    done = subprocess.run(["indexer", "--config", str(config), "rows"], capture_output=True, text=True, check=False)
    collected = re.search(r"collected (\d+) docs", done.stdout)
    assert collected, done.stdout + done.stderr
    return int(collected[1])
