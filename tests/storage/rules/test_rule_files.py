from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest

from lycosa.core.errors import UsageError
from lycosa.storage.core.torrents.rule_tests import failures
from lycosa.storage.core.torrents.words import hashed_word
from lycosa.storage.rules.rule_files import compile_own, compile_pattern, load_rules, make_inspector
from tests.storage.rules.records import record_named

PACKAGE = Path(load_rules.__code__.co_filename).with_name("rule_sets")


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def refusal(paths: list[Path], name: str) -> str:
    return make_inspector(paths).inspect(record_named(name)).refused


def test_words_come_from_a_file_beside_the_rules(tmp_path: Path):
    write(tmp_path / "words.txt", f"# ours\nclear one\n\n{hashed_word('hidden one')}\n")
    rules = write(tmp_path / "mine.toml", '[[deny]]\nreason = "listed"\nfile = "words.txt"\n')
    assert refusal([rules], "A Clear One") == "listed"
    assert refusal([rules], "A Hidden.One") == "listed"
    assert refusal([rules], "A third one") == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = [", "mine.toml: not TOML: "),
        ('[[deny]]\nreason = "r"\nwords = ["?"]', "mine.toml: '?' does not have 1 to"),
        ('[[deny]]\nreason = "r"\nfile = "none.txt"', "none.txt: cannot be read: no such file or directory"),
        ('[[deny]]\nreason = "r"\npatterns = ["(a"]', "mine.toml: RE2 cannot compile the pattern '(a': "),
        ('[[deny]]\nreason = "r"\npatterns = ["(?=a)b"]', "RE2 cannot compile the pattern "),
        ('[[deny]]\nreason = "r"\npatterns = ["((a{500}){500}){9}"]', "RE2 cannot compile the pattern "),
        (f'[[content]]\npatterns = ["{"a" * 501}"]', "a pattern has at most 500 characters"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path, text: str, message: str):
    with pytest.raises(UsageError) as caught:
        make_inspector([write(tmp_path / "mine.toml", text)])
    assert message in str(caught.value)


def test_patterns_of_a_user_are_fast_on_any_name(tmp_path: Path):
    """For the first of these patterns, `re` would need longer than the age of the universe."""
    rules = write(tmp_path / "mine.toml", "[[deny]]\nreason = 'r'\npatterns = ['(a+)+$', '(a|a|a)*b', '(.*){20}c']\n")
    inspector = make_inspector([rules])
    started = time.process_time()
    assert not inspector.inspect(record_named("a" * 250 + "!")).refused
    assert time.process_time() - started < 10.0


def test_built_in_patterns_are_fast_on_any_name():
    inspector = make_inspector()
    hostile = ["[" * 255, "s1" * 127, "第" * 255, "1 " * 127, "[a] - 1 " * 31, "20 01 01 " * 28, "- " * 127, "x1x" * 85]
    started = time.process_time()
    for name in hostile:
        inspector.inspect(record_named(name))
    assert time.process_time() - started < 10.0


def test_no_name_makes_the_inspection_fail():
    inspector, chance = make_inspector(), random.Random(19)
    letters = [*map(chr, range(0x3000)), *"第季集話회화期十s1e0p.[]-()/\\\ud800\U0001f469\U0010ffff"]
    for _ in range(300):
        names = ["".join(chance.choices(letters, k=chance.randrange(40))) for _ in range(3)]
        inspector.inspect(record_named(*names))


def test_built_in_patterns_have_the_same_meaning_in_re2():
    """So that users may copy them."""
    names = (Path(__file__).with_name("names.txt")).read_text(encoding="utf-8").casefold().splitlines()
    patterns = [pattern for section in load_rules(PACKAGE / "content.toml").content for pattern in section.patterns]
    assert len(patterns) > 30
    for pattern in patterns:
        ours, theirs = compile_own(pattern), compile_pattern(pattern)
        for name in names:
            one, other = ours.search(name), theirs.search(name)
            assert (one and one.groupdict()) == (other and other.groupdict()), (pattern, name)


def test_the_rules_against_abuse_material_are_on_unless_a_file_switches_them_off(tmp_path: Path):
    assert refusal([], "a lycosamarkertest here") == "abuse material (word)"
    assert refusal([], "lycosahinttest.lycosaexplicittest.mkv") == "abuse material (combination of words)"
    assert refusal([], "lycosahinttest") == ""
    assert refusal([], "lycosaexplicittest") == ""
    assert refusal([], "lycosahinttest lycosaexplicittest documentary") == ""
    assert refusal([write(tmp_path / "off.toml", "abuse_rules = false\n")], "lycosamarkertest") == ""


def test_words_against_abuse_material_are_hashed_except_those_that_prevent_a_refusal():
    lists = load_rules(PACKAGE / "abuse.toml").words
    assert {name for name, section in lists.items() if section.words} == {"about"}
    assert all(re.fullmatch(r"[0-9]+-[0-9a-f]{16}", word) for section in lists.values() for word in section.hashed)


def test_a_user_extends_the_rules_and_tests_them(tmp_path: Path):
    text = """
        [[content]]
        words = ["gardenfest"]
        type = "audio"
        weight = 9
        tags = ["festival"]

        [[category]]
        number = 3999
        type = "audio"
        tags = ["festival"]

        [[test]]
        name = "Gardenfest 2024 1080p"
        type = "audio"
        category = 3999
        year = 2024

        [[test]]
        name = "Some Show S01E02 720p"
        season = 2
        refused = true
    """
    rules = write(tmp_path / "mine.toml", text)
    assert list(failures(make_inspector([rules]), load_rules(rules).test)) == [
        "'Some Show S01E02 720p': not refused",
        "'Some Show S01E02 720p': season is 1, not 2",
    ]
