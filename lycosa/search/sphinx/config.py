"""The configuration of searchd for an index."""

from __future__ import annotations

from pathlib import Path

from lycosa.search.core.schema import Schema
from lycosa.search.core.sphinx_address import SphinxAddress
from lycosa.search.core.sphinxql import CHARSET, columns

# binlog_flush = 2: the server logs a change before it answers. With 1, kill -9 of Sphinx 2.2 loses the change.
SEARCHD = """searchd
{{
    listen = {listen}:mysql41
    log = {folder}/searchd.log
    pid_file = {folder}/searchd.pid
    binlog_path = {folder}
    binlog_flush = 2
    max_packet_size = 128M
}}
"""
INDEX = """index {name}
{{
    type = rt
    path = {folder}/{name}
    charset_table = {charset}
    rt_mem_limit = {memory}
{columns}
}}
"""
STATE = ("rt_field = unused", "rt_attr_string = body", "rt_attr_bigint = writer")


def searchd_config(address: SphinxAddress, folder: Path) -> str:
    """Return the section `searchd` of the configuration."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return SEARCHD.format(listen=address.socket or f"{host}:{address.port}", folder=folder)


def index_config(name: str, schema: Schema, folder: Path, memory: str, *, manticore: bool = False) -> str:
    """Return the sections of the three real-time indexes that hold one search index.

    A real-time index keeps up to `memory` (a size such as 128M) of documents in memory before it writes them to disk.
    With `manticore`, a setting keeps the server from storing the texts.
    """
    kinds = dict.fromkeys([*schema.texts, "pairs", "keywords"], "rt_field") | {
        "length": "rt_attr_uint",
        "stored": "rt_attr_string",
    }
    kinds |= {f"n_{name}": "rt_attr_bigint" for name in schema.numbers}
    kinds |= {f"v_{name}": "rt_attr_multi_64" for name in schema.counted}
    documents = [f"{kinds[column]} = {column}" for column in columns(schema) if column != "id"]
    if manticore:
        documents.append("stored_fields =")
    parts = {"0": documents, "1": documents, "state": STATE}
    return "".join(
        INDEX.format(
            name=f"{name}_{part}",
            folder=folder,
            charset=CHARSET,
            memory=memory,
            columns="\n".join(f"    {line}" for line in lines),
        )
        for part, lines in parts.items()
    )
