"""`lycosa dht rules`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from lycosa.cli.crawl import progress
from lycosa.cli.dht.records import records_options
from lycosa.cli.exit_codes import DEAD, DONE, one_line
from lycosa.cli.task_progress import task_progress
from lycosa.core.units import format_count

_FILE = click.Path(path_type=Path)


@click.group("rules", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Use your own rules to refuse torrents by name and to classify their content (docs/torrent-rules.md)."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command.command("test")
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="FILE...")
def test(files: tuple[Path, ...]) -> int:
    """Run the tests in rule files. Exit code 1: a test failed."""
    from lycosa.app.dht_rules import test_rules

    failed = 0
    for path in files:
        rules, mistakes = test_rules(path)
        for mistake in mistakes:
            print(f"{path}: {one_line(mistake)}")
        failed += len(mistakes)
        progress.write([f"{path}: {format_count(len(rules.test), 'test')}, {len(mistakes):,} failed"])
    return DEAD if failed else DONE


@command.command("check", short_help="Check a rule file, and try it on names.")
@click.argument("file", type=_FILE)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def check(file: Path, names: tuple[str, ...]) -> int:
    """Check a rule file, and show what it and the built-in rules say about each NAME."""
    from lycosa.app.dht_rules import check_name, test_rules

    rules, _ = test_rules(file)
    counts = (
        f"{format_count(len(getattr(rules, name)), text)}"
        for name, text in (("deny", "deny rule"), ("content", "content rule"), ("test", "test"))
    )
    progress.write([f"{file}: {', '.join(counts)}"])
    for name in names:
        record, refused = check_name(file, name)
        if refused:
            print(f"{one_line(record.name)}: refused: {one_line(refused)}")
        elif record.content is not None:
            print(f"{one_line(record.name)}: {_described(record.content)}")
    return DONE


@command.command("apply", short_help="Apply rules to the stored torrents.")
@click.argument("file", type=_FILE, required=False)
@records_options
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
def apply(file: Path | None, location: Any, *, dry_run: bool) -> int:
    """Remove and deny the stored torrents that the rules in FILE refuse, and classify the content of the others again.

    Both infohashes of a hybrid torrent are denied. The file is copied to DIR/rules, where all crawls and imports with
    this --state read it; those that are running load it within seconds. Without FILE, the built-in rules and those in
    DIR/rules are applied: use this after an update of Lycosa, which may change the built-in rules.

    \b
    lycosa dht rules apply mine.toml --state torrents --dry-run
    """
    return asyncio.run(_apply(file, location, dry_run=dry_run))


async def _apply(file: Path | None, location: Any, *, dry_run: bool) -> int:
    from lycosa.app.dht_rules import apply_rules

    def report(record: Any, reason: str) -> None:
        print(f"{record.keys[0].hex()}\t{one_line(reason)}\t{one_line(record.name)}")

    with task_progress("torrent", "refused", 0) as show:
        applied = await apply_rules(location, file, report, show, dry_run=dry_run)
    what = "would be removed" if dry_run else "removed"
    described = f", {applied.described:,} reclassified" if applied.described else ""
    progress.write([f"{format_count(applied.refused, 'torrent')} of {applied.read:,} {what}{described}"])
    if applied.installed is not None:
        progress.write([f"the rules are installed in {applied.installed}"])
    return DONE


@command.command("hash", short_help="Print the hashes of words, for a rule file that hides the words.")
def hash_words() -> int:
    """Read words from standard input, one per line, and write their hashes, for a rule file that hides them."""
    from lycosa.app.dht_rules import hashed_word

    for line in sys.stdin:
        if word := line.strip():
            print(hashed_word(word))
    return DONE


def _described(facts: Any) -> str:
    said = [facts.type.name.lower(), f"category {facts.category}"]
    said += [f"{facts.resolution} lines"] if facts.resolution else []
    said += [f"year {facts.year}"] if facts.year else []
    said += [f"season {facts.season}"] if facts.season is not None else []
    said += [f"episode {facts.episode}"] if facts.episode is not None else []
    return ", ".join([*said, *facts.languages])
