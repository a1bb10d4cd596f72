from __future__ import annotations

import random

from lycosa.search.core.analyzer import words
from lycosa.search.core.ascii_words import ascii_words
from lycosa.search.core.release_names import one_spelling

PARTS = [
    *(
        "s",
        "S01",
        "s1",
        "e",
        "E3",
        "e03",
        "ep",
        "EP",
        "episode",
        "Season",
        "x",
        "X264",
        "h",
        "H265",
        "264",
        "avc",
        "hevc",
    ),
    *(
        "1x02",
        "11x02",
        "x02",
        "4k",
        "uhd",
        "web",
        "WEB",
        "dl",
        "rip",
        "blu",
        "ray",
        "bd",
        "hd",
        "br",
        "dvd",
        "c",
        "c++",
    ),
    *(
        "C#",
        "+",
        "0",
        "1",
        "02",
        "003",
        "1000",
        "word",
        "w" * 64,
        "w" * 65,
        "s01e02",
        "S1E2",
        "s001e02",
        "s01e002",
        "s01e0022",
    ),
    *(".", "_", "-", " ", " ", " ", ".", ",", "(", "\n", "/", "\x1c", "\0", "  ", " - ", ", "),
]


def test_the_words_equal_those_of_the_regular_expression():
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(20_000):
        text = "".join(rng.choices(PARTS, k=rng.randrange(1, 7)))
        assert ascii_words(text) == words(one_spelling(text)), text


def test_seasons_and_episodes_have_the_same_words_as_with_the_regular_expression():
    """Seasons have one or two digits, and episodes have one to three."""
    for season in range(100):
        for text in (
            f"S{season}E{season * 7 % 1000}",
            f"s{season:02} e{season:03}",
            f"{season}x{season:02}",
            f"e{season}",
        ):
            assert ascii_words(text) == words(one_spelling(text)), text
