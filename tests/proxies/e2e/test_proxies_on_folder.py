"""`lycosa proxies ...` on a pool in a folder (P1-P3): add, list, explain, ban, export; error messages."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lycosa.app.proxies.pools import open_pool
from lycosa.cli.main import main
from lycosa.cli.proxies import add
from lycosa.cli.proxies.pool import parse_time_span
from lycosa.core.errors import UsageError
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.proxy import parse_proxy

LIST = """\
# what we bought
10.0.0.1:8080 country=de provider=acme
10.0.0.2:8080 country=fr price_gb=4.5
socks5h://ann:hunter2@10.0.0.3:1080
"""
SITE = "shop.example"


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Result]


@pytest.fixture
def pool(tmp_path: Path) -> str:
    return str(tmp_path / "pool")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], pool: str) -> Run:
    for variable in [name for name in os.environ if name.startswith("LYCOSA_")]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LYCOSA_PROXY_POOL", pool)
    (tmp_path / "list.txt").write_text(LIST)
    (tmp_path / "short.txt").write_text("short\n")
    (tmp_path / "key.txt").write_text("0123456789abcdef\n")

    def call(*words: str, stdin: str = "") -> Result:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = main(["proxies", *words])
        return Result(code, *capsys.readouterr())

    return call


def use_all(pool: str, outcome: Outcome) -> None:
    """Use each proxy once, with this outcome."""

    async def story() -> None:
        opened = await open_pool(pool)
        try:
            for _ in range(3):
                (lease,) = await opened.acquire(SITE)
                await opened.release(lease, [outcome])
        finally:
            await opened.close()

    asyncio.run(story())


def test_exported_proxies_can_be_added_again(run: Run, tmp_path: Path) -> None:
    assert run("add", "list.txt") == (0, "3 proxies added\n", "")
    assert run("add", "list.txt", "10.0.0.4:1") == (0, "1 proxy added, 3 already known\n", "")
    rows = {row["name"]: row for row in run("list", "--json").rows}
    assert rows["http://10.0.0.2:8080"]["price_gb"] == 4.5
    assert [row["tags"] for row in run("list", "--tag", "country=de", "--json").rows] == [
        {"country": "de", "provider": "acme"}
    ]
    table = run("list")
    assert table.out.splitlines()[0].split()[:3] == ["state", "latency", "uses"]
    (tmp_path / "copy.txt.part").write_text("left by an interrupted export")
    exported = run("export", "--secrets", "-o", "copy.txt")
    assert exported == (0, "", "")
    assert stat.S_IMODE((tmp_path / "copy.txt").stat().st_mode) == 0o600
    copy = str(tmp_path / "copy")
    assert run("add", "copy.txt", "--pool", copy).out == "4 proxies added\n"
    assert run("export", "--secrets", "--pool", copy).out.split("\n") == (tmp_path / "copy.txt").read_text().split("\n")


def test_logins_are_written_only_with_secrets(run: Run) -> None:
    run("add", "list.txt")
    for words in (["list"], ["list", "--json"], ["stats", "--json"], ["explain", SITE], ["explain", SITE, "--json"]):
        assert "hunter2" not in run(*words).out
        assert "ann:" not in run(*words).out
    for kind in ("lines", "json", "csv"):
        result = run("export", "--format", kind)
        assert "hunter2" not in result.out
        assert result.err == "the logins of 1 of 3 proxies were omitted: --secrets writes them\n"
        assert "socks5h://ann:hunter2@10.0.0.3:1080" in run("export", "--format", kind, "--secrets").out


def test_the_name_of_a_list_has_no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(add, "_fetch", lambda _: "10.0.0.1:1")
    assert add._read("https://ann:hunter2@lists.example/a.txt?key=hunter2", "http").name == "lists.example/a.txt"


def test_export_does_not_replace_a_pipe(run: Run, tmp_path: Path) -> None:
    """Many users write `-o /dev/stdout`: replacing that device would break the whole machine."""
    run("add", "list.txt")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert run("export", "-o", str(pipe)).code == 0
        assert pipe.is_fifo()
        assert len(os.read(reader, 65_536).splitlines()) == 3
    finally:
        os.close(reader)
    assert len(run("export", "-o", "-").out.splitlines()) == 3
    assert not (tmp_path / "-").exists()


def test_export_as_json_and_csv(run: Run) -> None:
    run("add", "list.txt", "--tag", "batch==cmd()")
    rows = run("export", "--format", "json").rows
    assert {row["url"] for row in rows} == {"http://10.0.0.1:8080", "http://10.0.0.2:8080", "socks5h://10.0.0.3:1080"}
    table = list(csv.DictReader(io.StringIO(run("export", "--format", "csv", "--tag", "country=fr").out)))
    assert [(row["price_gb"], row["state"], row["tags"]) for row in table] == [
        ("4.5", "ready", "country=fr batch==cmd()")
    ]


def test_faults_of_a_list_are_reported_with_their_lines(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("10.0.0.1:8080\nnonsense\n\n10.0.0.2:99999\n10.0.0.3:1 country\n")
    result = run("add", "bad.txt")
    assert (result.code, result.out) == (2, "1 proxy added\n")
    assert result.err.splitlines() == [
        "bad.txt:2: 'nonsense' has no port: write host:port",
        "bad.txt:4: 99999 is not a port: write 1 to 65535",
        "bad.txt:5: the text after the address is not key=value",
    ]
    result = run("add", "bad.txt", "--strict", "--pool", str(tmp_path / "other"))
    assert (result.code, result.out) == (2, "")
    assert result.err.splitlines()[-1] == "lycosa: nothing was added: 3 invalid lines (see above)"
    (tmp_path / "many.txt").write_text("10.0.0.9:1\n" + "nonsense\n" * 100)
    assert run("add", "many.txt").err.splitlines()[-1] == "many.txt: and 80 more"


@pytest.mark.parametrize(
    ("words", "stdin", "problem"),
    [
        (["add", "nowhere/list.txt"], "", "there is no file nowhere/list.txt"),
        (["add", "lsit.txt"], "", "there is no file lsit.txt: did you mean list.txt?"),
        (["add", "./shrot.txt"], "", "there is no file ./shrot.txt: did you mean ./short.txt?"),
        (["add", "ann:secret@lists/none"], "", "there is no file lists/none"),
        (
            ["add", "shorttxt"],
            "",
            "'shorttxt' has no port: write host:port; and there is no file of this name: did you",
        ),
        (["add", "nonsense"], "", "'nonsense' has no port: write host:port; and there is no file of this name"),
        (["add", "ftp://10.0.0.1:80"], "", "ftp:// is not a kind of proxy"),
        (["add", "-"], "", "there is no proxy in standard input"),
        (["add", "-"], "<html>", "standard input: this is a page (HTML, XML), not a list of proxies"),
        (["add", "-"], "[1", "standard input: this is not JSON: line 1: unexpected end"),
        (["add", "http://127.0.0.1:1/list.txt"], "", "the list at http://127.0.0.1:1/list.txt cannot be fetched: "),
        (["add", "list.txt", "--tag", "Bad Name=x"], "", "--tag Bad Name=...: write a lower-case name"),
        (["add", "list.txt", "--tag", "country"], "", "--tag 'country': write NAME=VALUE"),
        (["ban", SITE, "10.9.9.9:1"], "", "the pool has no proxy 10.9.9.9:1"),
        (["ban", SITE, "http://me:hunter2@10.9.9.9:1"], "", "the pool has no proxy 10.9.9.9:1"),
        (["ban", SITE, "10.0.0.1:8080", "--for", "soon"], "", "--for 'soon': write a time such as 90s"),
        (["unban", SITE], "", "which proxies? name some, or write --all"),
        (["remove"], "", "which proxies?"),
        (["remove", "--all", "--dead"], "", "which proxies?"),
        (
            ["site", "--bind", "0.0.0.0:0"],
            "",
            "would be open to other machines: set LYCOSA_PROXY_API_KEY",
        ),
        (["site", "--bind", "8082"], "", "--bind 8082: write ADDR:PORT, such as 127.0.0.1:8082"),
        (["site", "--key-file", "short.txt"], "", "--key-file short.txt: write 16 or more ASCII letters"),
        (["site", "--key-file", "nowhere"], "", "--key-file nowhere: no such file"),
        (["site", "--key-file", ""], "", "invalid value for '--key-file': the value is empty"),
        (
            ["serve", "--bind", "127.0.0.1:0", "--users", ""],
            "",
            "invalid value for '--users': the value is empty",
        ),
        (["serve", "--bind", "127.0.0.1:0", "--user", " "], "", "invalid value for '--user': the value is empty"),
        (["serve", "--bind", "127.0.0.1:0", "--users", "nosuch"], "", "--users nosuch: no such file"),
        (["serve", "--bind", "127.0.0.1:0", "--proxy-ca", ""], "", "'--proxy-ca': the value is empty"),
        (["serve", "--bind", "127.0.0.1:0", "--wait", "nan"], "", "'--wait': 'nan' is not a valid number"),
        (["serve", "--bind", "127.0.0.1:0", "--idle", "soon"], "", "'--idle': 'soon' is not a valid number"),
        (["check", "--timeout", "nan"], "", "'--timeout': 'nan' is not a valid number"),
        (["export", "-o", ""], "", "invalid value for '-o': the value is empty"),
        (["judge", "--bind", "127.0.0.1:0", "--keep", ""], "", "'--keep': the value is empty"),
        (["judge", "--bind", "127.0.0.1:0", "--keep", "list.txt"], "", "--keep list.txt: not a folder"),
        (["judge", "--bind", "127.0.0.1:0", "--public", ""], "", "'--public': the value is empty"),
        (["judge", "--bind", "127.0.0.1:0", "--public", "a b"], "", "--public a b: write only a name or an address"),
        (["judge", "--bind", "127.0.0.1:0", "--public", "http://a/"], "", "--public http://a/: write only a name or"),
        (["judge", "--bind", "127.0.0.1:0", "--public", "a:80"], "", "--public a:80: write only a name or an address"),
        (["ban", SITE, ""], "", "the pool has no proxy '': "),
        (["explain"], "", "explain needs TARGET"),
        (["nonsense"], "", "no such command"),
        (["add", "a" * 5000], "", "is not the address of a proxy: write [scheme://]"),
        (["list", "--pool", "a" * 5000], "", "is not a pool of proxies: the name is too long"),
        (["ban", "", "10.0.0.1:8080"], "", "TARGET '': write a domain such as shop.example, or a word"),
        (["explain", "x" * 501], "", "write a domain such as shop.example, or a word"),
        (["unban", "https://shop.example/a", "--all"], "", "https://shop.example/a is a URL: write shop.example"),
        (["list", "https://www.shop.example:8/"], "", "https://www.shop.example:8/ is a URL: write shop.example"),
        (["explain", "https://me:hunter2@shop.example/"], "", "TARGET https://shop.example/ is a URL: write "),
        (["ban", "http://[x", "10.0.0.1:8080"], "", "TARGET http://[x is a URL: write shop.example"),
        (["site", "--bind", "a..b:0", "--key-file", "key.txt"], "", "--bind a..b:0: no such address"),
        (["judge", "--bind", "a..b:0", "--no-tls"], "", "--bind a..b:0: no such address"),
    ],
)
def test_an_error_is_one_line_without_secrets(run: Run, words: list[str], stdin: str, problem: str) -> None:
    assert run("add", "-", stdin=LIST).code == 0
    result = run(*words, stdin=stdin)
    assert result.code == 2, result
    assert problem in result.err
    assert len(result.err.splitlines()) == 1
    assert "hunter2" not in result.err


def test_a_command_needs_the_address_of_a_shared_pool(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LYCOSA_PROXY_POOL")
    result = run("list")
    assert (result.code, result.err.startswith("lycosa: which pool? write --pool DIR")) == (2, True)
    result = run("list", "--pool", "postgres://db")
    assert (result.code, "is not a pool of proxies: write memory:, a folder, or redis://" in result.err) == (2, True)
    for pool, problem in (("memory:", "ends with its process"), ("list.txt", "list.txt is a list, not a pool: ")):
        result = run("list", "--pool", pool)
        assert (result.code, problem in result.err) == (2, True)


def test_a_ban_is_explained_with_its_reason_and_end_on_its_site_only(run: Run, pool: str) -> None:
    """P2, P5."""
    run("add", "list.txt")
    use_all(pool, Outcome(Blame.SITE, "429", rest_s=3000.0))
    result = run("explain", SITE)
    assert result.out.splitlines()[0] == f"{SITE}: no proxy would be leased now"
    assert all("(429)" in line for line in result.out.splitlines()[2:])
    assert {row["why"] for row in run("explain", SITE, "--json").rows} == {"cooling"}
    assert {row["why"] for row in run("explain", "b.example", "--json").rows} == {"next", "behind", "dearer"}
    (row,) = run("explain", SITE, "10.0.0.1:8080", "--json").rows
    assert (row["name"], row["reason"]) == ("http://10.0.0.1:8080", "429")
    assert row["text"].startswith("cools down until ")
    first, *targets = run("stats", "--json").rows
    assert (first["proxies"], first["granted"], first["bad"]) == (3, 3, 3)
    assert [(each["target"], each["states"]) for each in targets] == [(SITE, {"cooling": 3})]
    assert run("stats").out.splitlines()[0] == "3 proxies: 3 ready"
    assert run("unban", SITE, "--all").out == f"3 proxies unbanned on {SITE}\n"
    assert {row["state"] for row in run("list", SITE, "--json").rows} == {"ready"}


def test_a_dead_proxy_is_explained_with_its_reason(run: Run, pool: str) -> None:
    run("add", "list.txt")

    async def story() -> None:
        opened = await open_pool(pool)
        try:
            await opened.report_check((await opened.proxies())[0].proxy.key, Outcome(Blame.UNFIT, "alters pages"))
        finally:
            await opened.close()

    asyncio.run(story())
    by_why = {row["why"]: row for row in run("explain", SITE, "--json").rows}
    assert by_why["dead"]["reason"] == "alters pages"
    assert by_why["dead"]["text"] == "dead until a check finds it working (alters pages)"


def test_proxies_are_banned_and_unbanned_by_hand(run: Run) -> None:
    run("add", "list.txt")
    key = parse_proxy("10.0.0.1:8080").key
    assert (
        run("ban", SITE, key[:6], "--reason", "complaint").out
        == f"http://10.0.0.1:8080 is banned on {SITE} until the ban is lifted\n"
    )
    result = run("ban", SITE, "10.0.0.2:8080", "10.0.0.3:1080", "--for", "2h")
    assert result.out.count("(in 2 h)") == 2
    by_key = {row["key"]: row for row in run("explain", SITE, "--json").rows}
    assert (by_key[key]["why"], by_key[key]["reason"]) == ("banned", "complaint")
    assert sorted(row["why"] for row in by_key.values()) == ["banned", "cooling", "cooling"]
    assert run("unban", SITE, key).out == f"1 proxy unbanned on {SITE}\n"
    assert run("explain", SITE).out.splitlines()[0] == f"{SITE}: the next proxy is drawn from 1 proxy"
    assert run("explain", SITE, "10.0.0.2:8080").out.splitlines()[0] == f"{SITE}: the next proxy is drawn from 1 proxy"


def test_an_address_with_several_logins_is_ambiguous(run: Run) -> None:
    run("add", "-", stdin="http://a:1@10.0.0.1:80\nhttp://b:1@10.0.0.1:80\n")
    result = run("remove", "10.0.0.1:80")
    assert (result.code, "matches 2 proxies: write the key of one: " in result.err) == (2, True)
    assert run("remove", "http://a:1@10.0.0.1:80").out == "1 proxy removed\n"
    assert run("stats").out.splitlines()[0] == "1 proxy: 1 ready"
    assert run("remove", "10.0.0.1:80").out == "1 proxy removed\n"
    result = run("list")
    assert (result.out, result.err) == ("", "no proxies yet: lycosa proxies add FILE\n")


def test_proxies_are_removed_by_tag_and_state(run: Run, pool: str) -> None:
    run("add", "list.txt")
    assert run("remove", "--tag", "country=de").out == "1 proxy removed\n"
    assert run("remove", "--dead").out == "0 proxies removed\n"
    assert run("remove", "--all").out == "2 proxies removed\n"


def test_a_cut_table_says_how_many_rows_there_are(run: Run) -> None:
    run("add", "-", stdin="".join(f"10.1.0.{number}:80\n" for number in range(1, 31)))
    assert run("list", "--limit", "10").err == "only the first 10 of 30 are shown: --limit 0 shows all\n"
    assert len(run("list", "--limit", "0").out.splitlines()) == 31
    assert run("explain", SITE, "--limit", "2").err == "only the first 2 of 30 are shown: --limit 0 shows all\n"


def test_every_command_of_the_help_has_a_module(run: Run) -> None:
    from lycosa.cli.proxies import COMMANDS

    result = run("--help").out
    modules = {path.stem for path in (Path(__file__).parents[3] / "lycosa/cli/proxies").glob("*.py")}
    for name in COMMANDS:
        assert (f"  {name} " in result) == (name in modules), name


@pytest.mark.parametrize(("text", "value"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400)])
def test_time_spans_are_parsed(text: str, value: float) -> None:
    assert parse_time_span(text, "--for") == value


@pytest.mark.parametrize("text", ["", "0", "-1s", "1y", "1e9", "9" * 30, "\N{SUPERSCRIPT TWO}s"])
def test_invalid_time_spans_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_time_span(text, "--for")


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["check"],
        ["stats"],
        ["explain", SITE],
        ["ban", SITE, "10.0.0.1:8080"],
        ["unban", SITE, "10.0.0.1:8080"],
        ["remove", "10.0.0.1:8080"],
        ["export"],
        ["site", "--bind", "127.0.0.1:0"],
        ["keep", "--judge", "judge://rK5Sf20DpErDqB6rsfsY-4DrrsecBvCm@127.0.0.1:1/"],
    ],
)
def test_a_mistyped_pool_is_an_error_and_creates_nothing(run: Run, tmp_path: Path, words: list[str]) -> None:
    code, out, err = run(*words, "--pool", "nosuch/deep/pool")
    problem = "there is no pool in nosuch/deep/pool, nor a file of this name: "
    problem += "lycosa proxies add FILE --pool nosuch/deep/pool creates one"
    assert (code, out, err) == (2, "", f"lycosa: {problem}\n")
    assert not (tmp_path / "nosuch").exists()
