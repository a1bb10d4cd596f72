"""Splits ASCII texts into the same words as `words(one_spelling(text))`, but much faster.

The slow regular expression of `release_names` runs only if it may join adjacent words, or if a text has a very long
word, + or #. For all other texts, a table lists the words that the expression changes.
"""

from __future__ import annotations

from functools import cache

from lycosa.search.core.analyzer import WORD_MAX, words
from lycosa.search.core.release_names import one_spelling

_FOLDED = "".join(char.lower() if char.isalnum() else " " for char in map(chr, range(128))).encode().ljust(256)
_NOTHING: frozenset[str] = frozenset()


def ascii_words(text: str) -> list[str]:
    """Return the folded words in order."""
    rules = _rules()
    found = text.encode().translate(_FOLDED).decode().split()
    joined = _NOTHING
    for place, word in enumerate(found):
        if word in joined or len(word) > WORD_MAX:
            return words(one_spelling(text))
        rule = rules.get(word)
        if rule is None:
            joined = _NOTHING
        else:
            found[place], joined = rule
    if "+" in text or "#" in text:  # C++ and C#
        return words(one_spelling(text))
    return found


@cache
def _rules() -> dict[str, tuple[str, frozenset[str]]]:
    """Map each listed word to its spelling, and to the following words that `one_spelling` may join to it."""
    short = [f"{number:0{digits}}" for digits in (1, 2) for number in range(10**digits)]
    numbers = [*short, *(f"{number:03}" for number in range(1000))]
    alone = [f"{kind}{number}" for kind in ("e", "ep", "episode") for number in numbers]
    alone += [f"{season}x{episode}" for season in short for episode in short if len(episode) > 1]
    # `one_spelling` does not change the other words of this form, such as s01e123.
    alone += [f"s{season}e{episode}" for season in short for episode in numbers if len(season) < 2 or episode in short]
    alone += [f"s{season}e0{episode}" for season in short for episode in short if len(episode) > 1]
    alone += ["x264", "x265", "x266", "hevc", "avc", "4k", "uhd"]
    spelled = {word: one_spelling(word) for word in alone}
    codecs, counted = frozenset(("264", "265", "266")), frozenset(numbers)
    joined = {"web": frozenset(("dl", "rip")), "blu": frozenset(("ray",)), "h": codecs, "x": codecs}
    joined |= dict.fromkeys(("bd", "hd", "br", "dvd"), frozenset(("rip",)))
    joined |= {"season": counted, "ep": counted, "episode": counted}
    joined |= dict.fromkeys((f"s{season}" for season in short), frozenset(f"e{number}" for number in numbers))
    changed = {word: (to, _NOTHING) for word, to in spelled.items() if to != word}
    return changed | {word: (word, following) for word, following in joined.items()}
