"""`lycosa index`, `search` and `site` as typed by a user (C7, D4, bad input): output, exit codes, one-line mistakes."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import msgspec
import pytest

from lycosa.cli.main import main
from lycosa.crawl.items.page_item import PageItem
from tests.conftest import ROOT

DEADLINE_S = 60
LYCOSA = [sys.executable, "-c", "import sys; from lycosa.cli.main import main; sys.exit(main())"]


def line(n: int, **changes: object) -> bytes:
    url = f"http://docs.example.org/{n}"
    at = "2026-11-21T07:00:00Z"
    page = PageItem(url, url, 200, "text/html", f"Page {n}", ["Part"], f"common word{n}", "en", 0, at, 1, f"{n:016x}")
    return msgspec.json.encode(msgspec.structs.replace(page, **changes)) + b"\n"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if name.startswith("LYCOSA_")]:
        monkeypatch.delenv(variable)


@pytest.fixture
def items() -> Path:
    path = Path("items.jsonl")
    path.write_bytes(b"".join(line(n) for n in range(20)))
    return path


@pytest.fixture
def index(items, capsys) -> str:
    assert main(["index", "build", "--index", "index", str(items)]) == 0
    capsys.readouterr()
    return "index"


def run(capsys, *argv: str) -> tuple[int, str, str]:
    code = main(argv)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_build_continues_at_its_position(items, capsys):
    code, out, err = run(capsys, "index", "build", "--index", "index", "items.jsonl")
    assert (code, out) == (0, "")
    assert "items.jsonl: 20 items indexed in " in err
    assert "index: 20 documents" in err
    assert "nothing new" in run(capsys, "index", "build", "--index", "index", "items.jsonl")[2]
    with items.open("ab") as file:
        file.write(line(20) + line(5, title="Replaced") + b"broken\n" + b'{"half": ')
    err = run(capsys, "index", "build", "--index", "index", "items.jsonl")[2]
    assert "2 items indexed" in err
    assert "1 line skipped: not a JSON object" in err
    assert "the last line is incomplete" in err
    assert "index: 21 documents" in err


def test_build_reads_several_files_and_any_items(index, capsys):
    Path("lamps.jsonl").write_text('{"name": "Lamp", "price": 3, "colour": "blue"}\n{"name": "Lamp", "colour": "red"}')
    code, _, err = run(capsys, "index", "build", "--index", index, "items.jsonl", "lamps.jsonl")
    assert code == 0
    assert "lamps.jsonl: 2 items indexed" in err
    assert json.loads(run(capsys, "search", "lamp blue", "--index", index, "--json")[1])["total"] == 1


def test_fields_and_analysis_need_to_be_named_only_at_the_first_build(capsys):
    Path("lamps.jsonl").write_text('{"name": "臺燈", "maker": {"name": "Ada"}, "note": "hidden"}\n')
    named = ["--title", "name", "--text", "maker.name", "--analysis", "simplified"]
    build = ["index", "build", "--index", "lamps", "lamps.jsonl"]
    assert "1 item indexed" in run(capsys, *build, *named)[2]
    with Path("lamps.jsonl").open("a") as file:
        file.write('{"name": "Lamp two", "maker": {"name": "Eve"}, "note": "hidden"}\n')
    assert "1 item indexed" in run(capsys, *build)[2]
    for query, total in {"台灯": 1, "title:臺燈 ada": 1, "eve": 1, "hidden": 0}.items():
        found = json.loads(run(capsys, "search", query, "--index", "lamps", "--json")[1])
        assert (query, found["total"]) == (query, total)
    code, _, err = run(capsys, *build, "--title", "note")
    assert (code, "has other fields or another analysis: build it again with --fresh" in err) == (3, True)
    assert run(capsys, *build, *named)[0] == run(capsys, *build, "--title", "note", "--fresh")[0] == 0
    code, _, err = run(capsys, *build, "--fresh", "--analysis", "pinyin")
    assert (code, err.count("\n")) == (2, 1)
    assert "lamps.jsonl: nothing new" in run(capsys, *build)[2], "nothing was erased"


def test_an_index_is_declared_before_it_is_filled(capsys):
    assert "empty: 0 documents" in run(capsys, "index", "build", "--index", "empty", "--title", "name")[2]
    Path("lamps.jsonl").write_text('{"name": "Lamp", "title": "hidden"}\n')
    assert run(capsys, "index", "build", "--index", "empty", "lamps.jsonl")[0] == 0
    assert json.loads(run(capsys, "search", "title:lamp", "--index", "empty", "--json")[1])["total"] == 1
    assert run(capsys, "index", "build", "--index", "empty")[0] == 2


def test_an_index_of_items_may_be_on_sqlite(items, capsys):
    build = ["index", "build", "--index", "small", "items.jsonl"]
    assert "small: 20 documents" in run(capsys, *build, "--engine", "fts5")[2]
    assert Path("small/fts5/index.sqlite").exists()
    assert "nothing new" in run(capsys, *build)[2]
    assert json.loads(run(capsys, "search", "common", "--index", "small", "--json")[1])["total"] == 20
    assert json.loads(run(capsys, "index", "stats", "--index", "small", "--json")[1])["documents"] == 20
    code, _, err = run(capsys, *build, "--engine", "tantivy")
    assert (code, "belongs to fts5, not to tantivy" in err, err.count("\n")) == (3, True, 1)


def test_manticore_stores_no_texts(capsys):
    printed = [
        run(capsys, "index", "sphinx-config", f"{scheme}://localhost/lamps", "--pages", "--folder", "server")[1]
        for scheme in ("sphinx", "manticore")
    ]
    assert [text.count("stored_fields =\n") for text in printed] == [0, 2]
    assert printed[1].replace("    stored_fields =\n", "") == printed[0]


def test_fresh_rebuilds_the_index(index, items, capsys):
    items.write_bytes(line(100))
    code, _, err = run(capsys, "index", "build", "--index", index, "items.jsonl")
    assert (code, "`lycosa index build --fresh`" in err, err.count("\n")) == (3, True, 1)
    assert "index: 1 document\n" in run(capsys, "index", "build", "--fresh", "--index", index, "items.jsonl")[2]


def test_stats_show_documents_and_size(index, capsys):
    code, out, _ = run(capsys, "index", "stats", "--index", index)
    assert code == 0
    assert re.match(
        r"documents  20\nsize       [\d.,]+ kB\nsource     jsonl:/.*items.jsonl, read to [\d,]+ bytes\n$", out
    )
    stats = json.loads(run(capsys, "index", "stats", "--index", index, "--json")[1])
    assert stats["documents"] == 20
    assert stats["size_bytes"] > 1000
    assert list(stats["positions"].values()) == [Path("items.jsonl").stat().st_size]


def test_search_output_in_a_pipe_is_plain_text(index, capsys):
    code, out, err = run(capsys, "search", "word7", "common", "--index", index)
    assert code == 0
    assert out == "Page 7\nhttp://docs.example.org/7\ncommon word7\n2026-11-21T07:00:00Z\n\n"
    assert re.match(r"1 to 1 of 1 in [\d.]+ ms\n$", err)


def test_search_as_json(index, capsys):
    code, out, err = run(capsys, "search", "common", "--index", index, "--json", "--limit", "3", "--offset", "19")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["total"], found["limit"], found["offset"], len(found["hits"])) == (20, 3, 19, 1)


def test_search_reports_no_results(index, capsys):
    assert run(capsys, "search", "zebra", "--index", index) == (0, "", "nothing found for zebra\n")


def test_search_suggests_another_spelling(index, capsys):
    assert run(capsys, "search", "comon", "--index", index)[2] == "nothing found for comon; did you mean: common\n"
    assert json.loads(run(capsys, "search", "comon", "--index", index, "--json")[1])["suggestion"] == "common"


def test_search_reports_partial_matches(index, capsys):
    assert "no page has all of the words" in run(capsys, "search", "common zebra", "--index", index)[2]


def test_the_index_may_come_from_the_settings(index, capsys, monkeypatch):
    monkeypatch.setenv("LYCOSA_INDEX", index)
    assert run(capsys, "search", "word7")[0] == 0


def test_search_output_on_a_terminal_is_coloured_and_escaped(index, capsys):
    Path("evil.jsonl").write_bytes(line(66, title="\x1b[31mred\x07 title", text="evil \x1b]0;owned\x07 <b>text</b>"))
    assert main(["index", "build", "--index", index, "evil.jsonl"]) == 0
    parent, child = pty.openpty()
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    environ.pop("NO_COLOR", None)
    command = [*LYCOSA, "search", "evil title", "--index", str(Path(index).resolve())]
    process = subprocess.Popen(command, cwd=ROOT, stdout=child, stderr=subprocess.DEVNULL, env=environ)
    os.close(child)
    shown = read_all(parent)
    assert process.wait(DEADLINE_S) == 0
    assert "\x1b[1;33mevil\x1b[0m" in shown
    assert "<b>text</b>" in shown
    assert "\x1b[31m" not in shown
    assert "\x1b]0;" not in shown


def read_all(descriptor: int) -> str:
    data = b""
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:
            piece = b""
        if not piece:
            os.close(descriptor)
            return data.decode()
        data += piece


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ("search", 2, "search needs QUERY"),
        ("search x", 2, "which index? Give --index DIR"),
        ("search x --index nowhere", 3, "nowhere does not exist"),
        ("search x --index {tmp}", 3, "is not a search index"),
        ("search * --index index", 2, "has no word in it"),
        ("search x --index index --limit 0", 2, "limit 0 is out of range: use 1 to"),
        ("search x --index index --offset -1", 2, "offset -1 is out of range"),
        ("search x --index index --limit many", 2, "'many' is not a valid integer"),
        ("site", 2, "which index? Give --index DIR"),
        ("site --index nowhere", 3, "nowhere does not exist"),
        ("site --index index --port 99999", 2, "99999 is not in the range"),
        ("site --index index --host 0.0.0.0", 2, "--host 0.0.0.0 would be open to other machines: add --allow-remote"),
        ("site --index index --host 203.0.113.7 --allow-remote", 3, "--host 203.0.113.7: cannot listen there"),
        ("site --index index --host no.such.host.invalid", 2, "--host no.such.host.invalid"),
        ("index build --index other nothing.jsonl", 2, "nothing.jsonl does not exist"),
        ("index build --index other {tmp}", 2, "is not a file"),
        ("index build --index {tmp} items.jsonl", 3, "is not a search index"),
        ("index build --fresh --index {tmp} items.jsonl", 3, "is not a search index"),
        ("index stats --index nowhere", 3, "nowhere does not exist"),
    ],
)
def test_mistakes_are_one_line(index, capsys, tmp_path, argv, code, message):
    before = sorted(tmp_path.rglob("*"))
    got, out, err = run(capsys, *argv.format(tmp=tmp_path).split())
    assert message in err
    assert (got, out, err.count("\n")) == (code, "", 1)
    assert err.startswith("lycosa: ")
    assert sorted(tmp_path.rglob("*")) == before


# --------------------------------------------------------------------------------------------------------------- site


def site_line(index: str, *argv: str) -> tuple[subprocess.Popen[str], str]:
    """Return the process and the line it printed."""
    command = [*LYCOSA, "site", "--index", str(Path(index).resolve()), *argv]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    ready, _, _ = select.select([process.stdout], [], [], DEADLINE_S)
    assert ready, "the site printed no line"
    return process, process.stdout.readline()


def start_site(index: str, *argv: str) -> tuple[subprocess.Popen[str], str]:
    """Return the process and the address it printed."""
    process, line = site_line(index, *argv)
    found = re.search(r"http://\S+", line)
    if not found:
        process.kill()
        pytest.fail(f"{line} {process.communicate()}")
    return process, found[0]


def ends(process: subprocess.Popen[str], sent: signal.Signals) -> tuple[int, str]:
    process.send_signal(sent)
    try:
        _, err = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    return process.returncode, err


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_site_serves_until_a_signal(index, sent, code):
    process, address = start_site(index, "--port", "0", "--title", "Our pages")
    connection = socket.create_connection(("127.0.0.1", int(address.split(":")[2].strip("/"))))
    with urllib.request.urlopen(address, timeout=DEADLINE_S) as response:
        assert "Our pages" in response.read().decode()
    with urllib.request.urlopen(f"{address}api/search?q=word7", timeout=DEADLINE_S) as response:
        assert json.load(response)["total"] == 1
    assert ends(process, sent) == (code, "")
    connection.close()


def test_site_that_is_open_to_other_machines_says_so(index, monkeypatch):
    monkeypatch.setenv("LYCOSA_ALLOW_REMOTE", "true")
    process, line = site_line(index, "--port", "0", "--host", "0.0.0.0")
    assert re.fullmatch(
        r"Search site: http://0\.0\.0\.0:\d+/  \(open to other machines, without a password, Ctrl-C stops it\)\n", line
    )
    urllib.request.urlopen(line.split()[2].replace("0.0.0.0", "127.0.0.1"), timeout=DEADLINE_S).close()
    assert ends(process, signal.SIGTERM) == (0, "")


def test_site_shows_documents_indexed_while_it_runs(index, items):
    process, address = start_site(index, "--port", "0")
    try:
        with items.open("ab") as file:
            file.write(line(777))
        assert main(["index", "build", "--index", index, "items.jsonl"]) == 0
        with urllib.request.urlopen(f"{address}api/search?q=word777", timeout=DEADLINE_S) as response:
            assert json.load(response)["total"] == 1
    finally:
        ends(process, signal.SIGTERM)


def test_taken_port_is_reported(index, capsys):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code, out, err = run(capsys, "site", "--index", index, "--port", str(port))
    assert (code, out, err) == (3, "", f"lycosa: port {port} is in use: try --port 0\n")


def test_default_port_that_is_taken_is_skipped(index):
    first, one = start_site(index)
    second, other = start_site(index)
    try:
        assert one != other
        assert urllib.request.urlopen(other, timeout=DEADLINE_S).status == 200
    finally:
        ends(first, signal.SIGTERM)
        ends(second, signal.SIGTERM)
