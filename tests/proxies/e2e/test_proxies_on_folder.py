"""`lycosa proxies ...` on a pool in a folder (P1-P3): fill it, look, explain, ban, export; what is wrong is said."""

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


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Said]


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

    def call(*words: str, given: str = "") -> Said:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        code = main(["proxies", *words])
        return Said(code, *capsys.readouterr())

    return call


def used(pool: str, outcome: Outcome) -> None:
    """Let somebody use each proxy once, with this outcome."""

    async def story() -> None:
        opened = await open_pool(pool)
        try:
            for _ in range(3):
                (lease,) = await opened.acquire(SITE)
                await opened.release(lease, [outcome])
        finally:
            await opened.close()

    asyncio.run(story())


def test_add_list_and_export_again(run: Run, tmp_path: Path) -> None:
    assert run("add", "list.txt") == (0, "3 proxies added\n", "")
    assert run("add", "list.txt", "10.0.0.4:1") == (0, "1 proxy added, 3 known already\n", "")
    rows = {row["name"]: row for row in run("list", "--json").rows}
    assert rows["http://10.0.0.2:8080"]["price_gb"] == 4.5
    assert [row["tags"] for row in run("list", "--tag", "country=de", "--json").rows] == [
        {"country": "de", "provider": "acme"}
    ]
    table = run("list")
    assert table.out.splitlines()[0].split()[:3] == ["state", "latency", "uses"]
    exported = run("export", "--secrets", "-o", "copy.txt")
    assert exported == (0, "", "")
    assert stat.S_IMODE((tmp_path / "copy.txt").stat().st_mode) == 0o600
    again = str(tmp_path / "again")
    assert run("add", "copy.txt", "--pool", again).out == "4 proxies added\n"
    assert run("export", "--secrets", "--pool", again).out.split("\n") == (tmp_path / "copy.txt").read_text().split(
        "\n"
    )


def test_logins_are_written_only_when_asked_for(run: Run) -> None:
    run("add", "list.txt")
    for words in (["list"], ["list", "--json"], ["stats", "--json"], ["explain", SITE], ["explain", SITE, "--json"]):
        assert "hunter2" not in run(*words).out
        assert "ann:" not in run(*words).out
    for kind in ("lines", "json", "csv"):
        told = run("export", "--format", kind)
        assert "hunter2" not in told.out
        assert told.err == "the logins of 1 of 3 were left out: --secrets writes them\n"
        assert "socks5h://ann:hunter2@10.0.0.3:1080" in run("export", "--format", kind, "--secrets").out


def test_export_into_a_pipe_leaves_it_a_pipe(run: Run, tmp_path: Path) -> None:
    """As `-o /dev/stdout` is written by many; replacing it would take it from the whole machine."""
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


def test_faults_of_a_list_are_told_with_their_lines(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_text("10.0.0.1:8080\nnonsense\n\n10.0.0.2:99999\n10.0.0.3:1 country\n")
    told = run("add", "bad.txt")
    assert (told.code, told.out) == (2, "1 proxy added\n")
    assert told.err.splitlines() == [
        "bad.txt:2: 'nonsense' has no port: write host:port",
        "bad.txt:4: 99999 is not a port: 1 to 65535",
        "bad.txt:5: the text after the address is not key=value",
    ]
    told = run("add", "bad.txt", "--strict", "--pool", str(tmp_path / "other"))
    assert (told.code, told.out) == (2, "")
    assert told.err.splitlines()[-1] == "lycosa: nothing was added: 3 invalid lines (see above)"
    (tmp_path / "many.txt").write_text("10.0.0.9:1\n" + "nonsense\n" * 100)
    assert run("add", "many.txt").err.splitlines()[-1] == "many.txt: and 80 more"


@pytest.mark.parametrize(
    ("words", "given", "says"),
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
        (["add", "-"], "[1", "standard input: this is not JSON: line 1: it breaks off"),
        (["add", "http://127.0.0.1:1/list.txt"], "", "the list at http://127.0.0.1:1/list.txt cannot be fetched: "),
        (["add", "list.txt", "--tag", "Bad Name=x"], "", "--tag Bad Name=...: write a name in lower case"),
        (["add", "list.txt", "--tag", "country"], "", "--tag 'country': write NAME=VALUE"),
        (["ban", SITE, "10.9.9.9:1"], "", "the pool has no proxy 10.9.9.9:1"),
        (["ban", SITE, "http://me:hunter2@10.9.9.9:1"], "", "the pool has no proxy 10.9.9.9:1"),
        (["ban", SITE, "10.0.0.1:8080", "--for", "soon"], "", "--for 'soon': write a time such as 90s"),
        (["unban", SITE], "", "which proxies? name some, or write --all"),
        (["remove"], "", "which proxies?"),
        (["remove", "--all", "--dead"], "", "which proxies?"),
        (["site", "--bind", "0.0.0.0:0"], "", "without a key only 127.0.0.1 or ::1"),
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
        (["judge", "--bind", "127.0.0.1:0", "--public", "a b"], "", "--public a b: write a name or an address alone"),
        (["judge", "--bind", "127.0.0.1:0", "--public", "http://a/"], "", "--public http://a/: write a name or an"),
        (["judge", "--bind", "127.0.0.1:0", "--public", "a:80"], "", "--public a:80: write a name or an address alone"),
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
        (["site", "--bind", "a..b:0", "--key-file", "key.txt"], "", "--bind a..b: no such address"),
        (["judge", "--bind", "a..b:0", "--no-tls"], "", "--bind a..b: no such address"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(run: Run, words: list[str], given: str, says: str) -> None:
    assert run("add", "-", given=LIST).code == 0
    told = run(*words, given=given)
    assert told.code == 2, told
    assert says in told.err
    assert len(told.err.splitlines()) == 1
    assert "hunter2" not in told.err


def test_without_a_pool_it_is_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LYCOSA_PROXY_POOL")
    told = run("list")
    assert (told.code, told.err.startswith("lycosa: which pool? write --pool DIR")) == (2, True)
    told = run("list", "--pool", "postgres://db")
    assert (told.code, "is not a pool of proxies: write memory:, a folder, or redis://" in told.err) == (2, True)
    for pool, says in (("memory:", "ends with its process"), ("list.txt", "list.txt is a list, not a pool: ")):
        told = run("list", "--pool", pool)
        assert (told.code, says in told.err) == (2, True)


def test_what_uses_said_is_explained(run: Run, pool: str) -> None:
    """P2, P5: a ban stays on its site, and is said with its reason and its end."""
    run("add", "list.txt")
    used(pool, Outcome(Blame.SITE, "429", rest_s=3000.0))
    told = run("explain", SITE)
    assert told.out.splitlines()[0] == f"{SITE}: none would be leased now"
    assert all("(429)" in line for line in told.out.splitlines()[2:])
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


def test_what_holds_everywhere_is_explained_with_its_reason(run: Run, pool: str) -> None:
    run("add", "list.txt")

    async def story() -> None:
        opened = await open_pool(pool)
        try:
            await opened.report_check((await opened.proxies())[0].proxy.key, Outcome(Blame.UNFIT, "alters pages"))
        finally:
            await opened.close()

    asyncio.run(story())
    told = {row["why"]: row for row in run("explain", SITE, "--json").rows}
    assert told["dead"]["reason"] == "alters pages"
    assert told["dead"]["text"] == "dead until a check finds it working (alters pages)"


def test_bans_by_hand(run: Run) -> None:
    run("add", "list.txt")
    key = parse_proxy("10.0.0.1:8080").key
    assert (
        run("ban", SITE, key[:6], "--reason", "complaint").out
        == f"http://10.0.0.1:8080 is banned on {SITE} until it is lifted\n"
    )
    told = run("ban", SITE, "10.0.0.2:8080", "10.0.0.3:1080", "--for", "2h")
    assert told.out.count("(in 2 h)") == 2
    told = {row["key"]: row for row in run("explain", SITE, "--json").rows}
    assert (told[key]["why"], told[key]["reason"]) == ("banned", "complaint")
    assert sorted(row["why"] for row in told.values()) == ["banned", "cooling", "cooling"]
    assert run("unban", SITE, key).out == f"1 proxy unbanned on {SITE}\n"
    assert run("explain", SITE).out.splitlines()[0] == f"{SITE}: the next one is drawn from 1"
    assert run("explain", SITE, "10.0.0.2:8080").out.splitlines()[0] == f"{SITE}: the next one is drawn from 1"


def test_several_logins_on_one_address_are_told_apart(run: Run) -> None:
    run("add", "-", given="http://a:1@10.0.0.1:80\nhttp://b:1@10.0.0.1:80\n")
    told = run("remove", "10.0.0.1:80")
    assert (told.code, "matches 2 proxies: write the key of one: " in told.err) == (2, True)
    assert run("remove", "http://a:1@10.0.0.1:80").out == "1 proxy removed\n"
    assert run("stats").out.splitlines()[0] == "1 proxy: 1 ready"
    assert run("remove", "10.0.0.1:80").out == "1 proxy removed\n"
    told = run("list")
    assert (told.out, told.err) == ("", "no proxies yet: lycosa proxies add FILE\n")


def test_remove_many(run: Run, pool: str) -> None:
    run("add", "list.txt")
    assert run("remove", "--tag", "country=de").out == "1 proxy removed\n"
    assert run("remove", "--dead").out == "0 proxies removed\n"
    assert run("remove", "--all").out == "2 proxies removed\n"


def test_the_rest_of_a_long_table_is_told(run: Run) -> None:
    run("add", "-", given="".join(f"10.1.0.{number}:80\n" for number in range(1, 31)))
    assert run("list", "--limit", "10").err == "only the first 10 of 30 are shown: --limit 0 shows all\n"
    assert len(run("list", "--limit", "0").out.splitlines()) == 31
    assert run("explain", SITE, "--limit", "2").err == "only the first 2 of 30 are shown: --limit 0 shows all\n"


def test_commands_without_a_module_are_not_listed(run: Run) -> None:
    from lycosa.cli.proxies import COMMANDS

    told = run("--help").out
    modules = {path.stem for path in (Path(__file__).parents[3] / "lycosa/cli/proxies").glob("*.py")}
    for name in COMMANDS:
        assert (f"  {name} " in told) == (name in modules), name


@pytest.mark.parametrize(("text", "value"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400)])
def test_times(text: str, value: float) -> None:
    assert parse_time_span(text, "--for") == value


@pytest.mark.parametrize("text", ["", "0", "-1s", "1y", "1e9", "9" * 30, "\N{SUPERSCRIPT TWO}s"])
def test_what_is_no_time(text: str) -> None:
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
def test_a_mistyped_pool_is_one_line_and_nothing_is_made(run: Run, tmp_path: Path, words: list[str]) -> None:
    code, out, err = run(*words, "--pool", "nosuch/deep/pool")
    made = "there is no pool in nosuch/deep/pool, nor a file of this name: "
    made += "lycosa proxies add FILE --pool nosuch/deep/pool makes one"
    assert (code, out, err) == (2, "", f"lycosa: {made}\n")
    assert not (tmp_path / "nosuch").exists()
