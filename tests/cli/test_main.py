"""Usage errors: one line on standard error, the right exit code, never a traceback (bad input)."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import pytest

from lycosa import __main__ as entry_point
from lycosa import __version__
from lycosa.cli.main import VERBS, Verbs, main
from lycosa.core.errors import BadSetting, FetchError, IndexFailure, LycosaError, StateLocked, StorageFull, UsageError
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for variable in [name for name in os.environ if name.startswith("LYCOSA_")]:
        monkeypatch.delenv(variable)


def fails(capsys, *argv: str) -> tuple[int, str]:
    code = main(argv)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("lycosa: ")
    assert captured.err.count("\n") == 1, captured.err
    assert captured.err.endswith("\n")
    return code, captured.err.removeprefix("lycosa: ").strip()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("crwl", "unknown command 'crwl': did you mean crawl?"),
        ("bench", "unknown command 'bench': the benchmarks are in bench/ in the source"),
        ("parse", "unknown command 'parse': try lycosa shell URL --spider NAME"),
        ("levitate", "unknown command 'levitate': lycosa --help lists them"),
        ("http://a.example/", "to crawl it, write lycosa crawl http://a.example/"),
        ("--verson", "unknown option --verson: did you mean --version?"),
        ("-x", "unknown option -x"),
        ("crawl", "crawl needs URL...|NAME...: see lycosa crawl --help"),
        ("crawl --depht 3 http://a/", "unknown option --depht: did you mean --depth?"),
        ("dht rules apply --json", "unknown option --json: see lycosa dht rules apply --help"),
        ("crawl --zzz http://a/", "unknown option --zzz: see lycosa crawl --help"),
        ("crawl --dashboard 1 http://a/", "unknown option --dashboard"),
        ("crawl -z http://a/", "unknown option -z"),
        ("crawl http://a/ --depth", "option '--depth' requires an argument"),
        ("crawl http://a/ --quiet=3", "option '--quiet' does not take a value"),
        ("crawl example.com", "'example.com' has no scheme: write https://example.com"),
        ("crawl localhost:8000", "'localhost:8000' has no scheme: write https://localhost:8000"),
        (
            "crawl http://a/ quotes",
            "'quotes' is not a URL: write https://... (URLs and spider names cannot be mixed)",
        ),
        ("crawl quotes", "'quotes' is not a URL: write https://... (there is no project here: lycosa startproject"),
        ("crawl quotes.py", "lycosa runspider quotes.py"),
        ("crawl http://a/ -a tag=x", "-a gives arguments to a spider"),
        ("crawl http://a/ -a =x", "-a '=x': write NAME=VALUE"),
        ("crawl http://a/ -a a-b=x", "-a 'a-b=x': write NAME=VALUE"),
        ("crawl http://a/ -s depth", "-s 'depth': write NAME=VALUE"),
        ("crawl http://a/ -s DEPHT_LIMIT=3", "did you mean DEPTH_LIMIT?"),
        ("crawl http://a/ -o a.jsonl -O b.jsonl", "-o and -O exclude each other"),
        ("crawl http://a/ -o items.xml", "-o: 'items.xml': write a file that ends in .jsonl, .json or .csv"),
        ("crawl http://a/ -O items.sqlite.gz", "a database cannot be compressed: write 'items.sqlite'"),
        ("crawl http://a/ -o i.jsonl -o ./i.jsonl:csv", "i.jsonl is named twice"),
        ("crawl http://a/ -o - -o -:csv", "-o: standard output is named twice"),
        ("crawl http://a/ -o i.jsonl --fields url", "--fields are the columns of CSV, and no output is CSV"),
        ("crawl http://a/ -o i.jsonl -O i.csv", "-o and -O exclude each other"),
        ("crawl http://a/ --depth -1", "--depth: '-1' is not a whole number from 0"),
        ("crawl http://a/ --depth deep", "--depth: 'deep' is not a whole number"),
        ("crawl http://a/ --max-pages 0", "--max-pages: '0' is not a whole number from 1"),
        ("crawl http://a/ --concurrency 0", "--concurrency: '0' is not a whole number from 1"),
        ("crawl http://a/ --concurrency 64x", "--concurrency: '64x' is not"),
        ("crawl http://a/ --scope hots", "--scope: 'hots' is not one of host, domain, prefix, any"),
        ("crawl http://a/ --max-body 10Mbit", "--max-body: '10Mbit' is not a size"),
        ("crawl http://a/ --header nonsense", "--header: 'nonsense' is not a header line"),
        ("crawl http://a/ --proxy localhost:1", "--proxy: 'localhost:1' is not a proxy"),
        ("crawl http://a/ -L LOUD", "--log-level: 'LOUD' is not one of"),
        ("crawl http://a/ --timeout nan", "--timeout: 'nan' is not a number of seconds"),
        ("runspider", "runspider needs FILE: see lycosa runspider --help"),
        ("runspider a.py b.py", "unexpected extra argument"),
        ("runspider none.py", "none.py: no such file"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(capsys, argv, says):
    code, line = fails(capsys, *argv.split(" "))
    assert code == 2
    assert says in line


def test_an_invalid_variable_or_file_is_named(capsys, monkeypatch):
    monkeypatch.setenv("LYCOSA_DEPHT", "1")
    code, line = fails(capsys, "crawl", "http://a.example/")
    assert (code, "did you mean LYCOSA_DEPTH?" in line) == (2, True)
    monkeypatch.delenv("LYCOSA_DEPHT")
    Path("lycosa.toml").write_text("dephts = 1")
    assert "lycosa.toml: unknown setting 'dephts'" in fails(capsys, "crawl", "http://a.example/")[1]


def test_no_arguments_and_help_show_the_verbs(capsys):
    assert main([]) == 0
    alone = capsys.readouterr().out
    assert main(["--help"]) == main(["-h"]) == 0
    assert capsys.readouterr().out == alone * 2
    assert [verb for verb in VERBS if f"\n  {verb} " not in alone] == []


@pytest.mark.parametrize("verb", ["frontier", "index"])
def test_a_group_without_a_command_shows_its_help(capsys, verb):
    assert main([verb]) == main([verb, "--help"]) == 0
    shown = capsys.readouterr()
    half = len(shown.out) // 2
    assert shown.out[:half] == shown.out[half:]
    assert "Commands:\n" in shown.out
    assert shown.err == ""


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"lycosa {__version__} (Python 3.")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(capsys, verb):
    assert main([verb, "--help"]) == 0
    assert f"Usage: lycosa {verb} " in capsys.readouterr().out


def test_the_command_help_shows_the_help(capsys):
    assert main(["--help"]) == main(["help"]) == 0
    shown = capsys.readouterr().out
    assert shown[: len(shown) // 2] == shown[len(shown) // 2 :]
    assert main(["crawl", "--help"]) == main(["help", "crawl"]) == 0
    shown = capsys.readouterr().out
    assert shown[: len(shown) // 2] == shown[len(shown) // 2 :]
    assert main(["help", "craw"]) == 2
    assert "did you mean crawl?" in capsys.readouterr().err


INTERRUPTED_IMPORT = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "lycosa.cli.main":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
from lycosa.__main__ import main
sys.exit(main())
"""


def test_control_c_while_modules_are_imported_shows_no_traceback():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "lycosa: interrupted\n")


def options_in(text):
    return set(re.findall(r"^  (?:-\w, )?(-[-\w]+)", text, re.MULTILINE))


@pytest.mark.parametrize("verb", ["crawl", "runspider", "worker"])
def test_help_lists_common_options_and_help_all_lists_all_options(capsys, verb):
    main([verb, "--help"])
    everyday = options_in(capsys.readouterr().out)
    assert main([verb, "--help-all"]) == 0
    everything = options_in(capsys.readouterr().out)
    assert {"-o", "--depth", "--max-pages", "--retry-dead", "-a", "--set", "--help-all"} <= everyday
    assert everyday < everything
    assert len(everyday) <= 25
    assert "--lease" in everything - everyday


def test_a_worker_lists_no_option_that_it_refuses(capsys):
    main(["worker", "--help-all"])
    shown = options_in(capsys.readouterr().out)
    assert not {"-O", "--processes"} & shown
    assert "--frontier" in shown


@pytest.fixture
def verb(monkeypatch):
    """Replace `crawl` by a function."""

    def replace(action) -> None:
        command = click.Command("crawl", callback=action)
        monkeypatch.setattr(Verbs, "get_command", lambda self, ctx, name: command)

    return replace


def raiser(error: BaseException):
    def action():
        raise error

    return action


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("what"), 2),
        (BadSetting("what"), 2),
        (StateLocked("what"), 3),
        (StorageFull("what"), 3),
        (IndexFailure("what"), 3),
        (FetchError("what"), 3),
        (LycosaError("what"), 3),
        (ExceptionGroup("tasks", [ExceptionGroup("more", [StorageFull("what")])]), 3),
        (ExceptionGroup("tasks", [UsageError("what")]), 2),
    ],
    ids=repr,
)
def test_lycosa_errors_are_one_line_with_their_exit_code(capsys, verb, error, code):
    verb(raiser(error))
    assert fails(capsys, "crawl") == (code, "what")


def test_a_message_cannot_send_control_characters_to_the_terminal(capsys, verb):
    verb(raiser(UsageError("a\x1b[2Jb\nc\x07")))
    assert fails(capsys, "crawl") == (2, "a?[2Jb c?")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()], ids=repr)
def test_the_exit_code_of_an_interrupt_is_130(capsys, verb, error):
    verb(raiser(error))
    assert fails(capsys, "crawl") == (130, "interrupted")


def test_the_exit_code_is_what_the_verb_returns(verb):
    for code in (0, 1, 130):
        verb(lambda code=code: code)
        assert main(["crawl"]) == code
    verb(lambda: None)
    assert main(["crawl"]) == 0


def test_an_internal_error_is_one_line_and_a_file_with_the_traceback(capsys, verb, tmp_path):
    verb(raiser(ZeroDivisionError("division by zero")))
    code, line = fails(capsys, "crawl")
    assert code == 3
    assert line.startswith("internal error: ZeroDivisionError: division by zero (please report it with ")
    (file,) = tmp_path.glob("lycosa-*.txt")
    assert str(file) in line
    assert "in raiser" in file.read_text() or "in action" in file.read_text()


def test_the_traceback_is_shown_on_request_or_if_no_file_can_be_written(capsys, verb, monkeypatch, tmp_path):
    verb(raiser(ZeroDivisionError("division by zero")))
    monkeypatch.setenv("LYCOSA_DEBUG", "1")
    assert main(["crawl"]) == 3
    shown = capsys.readouterr().err
    assert "Traceback (most recent call last)" in shown
    assert "lycosa: internal error: ZeroDivisionError" in shown
    assert list(tmp_path.glob("lycosa-*.txt")) == []


def python(code: str, *argv: str, **more) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code, *argv], env=environment, capture_output=True, text=True, check=False, **more
    )


HEAVY = ("asyncio", "rich", "uvloop", "pycurl", "lmdb", "parsel", "lxml", "tantivy", "selectolax", "lycosa.app")


@pytest.mark.parametrize(
    "argv", [["--help"], ["--version"], ["crawl", "--help"], ["crawl"], ["nonsense"]], ids=" ".join
)
def test_help_and_usage_errors_import_no_slow_modules(argv):
    code = f"""
import sys
from lycosa.cli.main import main
main(sys.argv[1:])
print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""
    assert python(code, *argv).stderr.endswith("[]\n")


def test_a_crawl_without_a_proxy_pool_does_not_import_pools():
    code = """
import sys
import lycosa.app.crawl.run, lycosa.app.crawl.wiring
values = ("lycosa.proxies.core", "lycosa.proxies.ports")
pools = ("lycosa.proxies.", "lycosa.app.crawl.proxies", "lycosa.app.proxies.checks")
print([name for name in sys.modules if name.startswith(pools) and not name.startswith(values)])
"""
    done = python(code)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize("lines", [1, 10_000])
def test_a_closed_pipe_ends_the_command_quietly(lines):
    code = f"""
import sys, click
from lycosa.cli.main import Verbs, main
Verbs.get_command = lambda *_: click.Command("crawl", callback=lambda: [print("x" * 100) for _ in range({lines})])
sys.exit(main(["crawl"]))
"""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""},
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


CLOSED = """
import os, sys, click
from lycosa.cli.main import Verbs, main
def show():
    print([os.readlink(f"/proc/self/fd/{fd}") for fd in range(3)], file=open(sys.argv[1], "w"))
    print("progress", file=sys.stderr)
Verbs.get_command = lambda *_: click.Command("crawl", callback=show)
sys.exit(main(["crawl"]))
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_not_reused_by_files_and_progress_is_never_among_items(tmp_path, closed):
    command = f'{sys.executable} -c "$0" "$1" {closed}'
    done = subprocess.run(
        ["sh", "-c", command, CLOSED, tmp_path / "seen"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == (b"" if "2>" in closed else b"progress\n")
    assert "seen" not in (tmp_path / "seen").read_text()


def test_main_is_the_entry_point_of_the_package():
    text = (ROOT / "pyproject.toml").read_text()
    assert f'lycosa = "{entry_point.__name__}:main"' in text


def test_a_lycosa_error_in_an_exception_group_is_reported(capsys, verb):
    async def tasks() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(60))
            raise StorageFull("full")

    verb(lambda: asyncio.run(tasks()))
    assert fails(capsys, "crawl") == (3, "full")
