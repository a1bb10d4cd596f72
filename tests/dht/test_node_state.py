"""The state folder: saved tables, refused files, and contacts that an empty table does not replace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lycosa.core.errors import StateError, UsageError
from lycosa.dht.core.endpoints import IPV4, IPV6, Contact, pack
from lycosa.dht.core.events import SavedTable
from lycosa.dht.node_state import FILE, open_node_state


def table(number: int, ip: str = "192.0.2.1", contacts: int = 2) -> SavedTable:
    found = (Contact(bytes([number, each]) * 10, pack(ip, 1000 + each)) for each in range(contacts))
    return SavedTable(bytes([number]) * 20, tuple(found))


TABLES = [table(1), table(2), table(3, "2001:db8::1")]
FAMILIES = [IPV4, IPV4, IPV6]


def save(folder: Path, families: list[int], tables: list[SavedTable]) -> None:
    with open_node_state(folder) as state:
        state.load(families)
        state.save(tables)


def load(folder: Path, families: list[int]) -> list[SavedTable | None]:
    with open_node_state(folder) as state:
        return state.load(families)


def test_each_node_gets_its_table_again(tmp_path: Path) -> None:
    assert load(tmp_path, FAMILIES) == [None, None, None]
    save(tmp_path, FAMILIES, TABLES)
    assert load(tmp_path, FAMILIES) == TABLES
    assert load(tmp_path, [IPV6, IPV4, IPV6]) == [TABLES[2], TABLES[0], None]


def test_the_file_is_only_for_its_user(tmp_path: Path) -> None:
    save(tmp_path / "state", FAMILIES, TABLES)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "state" / FILE).stat().st_mode & 0o777 == 0o600


def test_an_empty_table_does_not_replace_saved_contacts(tmp_path: Path) -> None:
    save(tmp_path, [IPV4], [table(1)])
    save(tmp_path, [IPV4], [table(9, contacts=0)])
    assert load(tmp_path, [IPV4]) == [SavedTable(bytes([9]) * 20, table(1).contacts)]


def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    with (
        open_node_state(tmp_path),
        pytest.raises(StateError, match=r"in use by process \d+"),
        open_node_state(tmp_path),
    ):
        pass


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is damaged: remove it"),
        ("[]", "is damaged: remove it"),
        ('{"other": ' + "[" * 100_000, "is damaged: remove it"),
        ('{"format": "lycosa dht node 2", "other": 1}', "written as 'lycosa dht node 2', this version reads"),
        ('{"format": "lycosa dht node 1", "nodes": [{"family": 4, "node_id": "zz", "contacts": []}]}', "is damaged"),
        ('{"format": "lycosa dht node 1", "nodes": [{"family": 4, "node_id": "00", "contacts": []}]}', "is damaged"),
    ],
)
def test_damaged_files_and_files_of_other_versions_are_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(StateError, match=message):
        load(tmp_path, [IPV4])


def test_a_contact_of_the_wrong_length_is_refused(tmp_path: Path) -> None:
    save(tmp_path, [IPV4], [table(1)])
    saved = json.loads((tmp_path / FILE).read_text())
    saved["nodes"][0]["contacts"][0] += "00"
    (tmp_path / FILE).write_text(json.dumps(saved))
    with pytest.raises(StateError, match="is damaged"):
        load(tmp_path, [IPV4])


def test_a_file_in_place_of_the_folder_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--state .*: not a folder"):
        load(tmp_path / "file", [IPV4])


def test_a_node_that_is_not_run_this_time_keeps_its_contacts(tmp_path: Path) -> None:
    save(tmp_path, [IPV4, IPV6], [table(1), TABLES[2]])
    save(tmp_path, [IPV4], [table(3)])
    assert load(tmp_path, [IPV4, IPV6]) == [table(3), TABLES[2]]
