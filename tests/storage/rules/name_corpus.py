"""Generates names like those of common torrents, to count the names that rules refuse wrongly.

No name is that of abuse material; some are names of news reports about abuse. The words are hard for rules against
abuse: titles of films, series, music, books and home videos mention families, schools and ages, and legal adult
material mentions adult ages. Some titles have a word such as "sex" or "naked", as titles of well-known series do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator


def listed(text: str) -> list[str]:
    return text.split()


COMMON = listed("""
    the of and a in to night day house river road city home last first dark light blue red black white golden
    silver summer winter autumn spring rain snow fire water stone iron glass paper wild silent broken lost
    hidden secret long little big great old new young american french italian king queen prince princess lady
    lord doctor captain detective murder love heart dream story song dance music garden island mountain forest
    sea ocean sky star moon sun world war peace game life death time year week hour minute street bridge tower
    castle village town country train ship plane wolf bear lion tiger horse dog cat bird fish dragon ghost witch
    angel devil saint sinner stranger friend enemy brother sister father mother family wedding party holiday
    christmas birthday school college university class
""")
YOUNG = listed("""
    kid kids child children boy boys girl girls baby babies teen teens teenage daughter son schoolgirl nursery
    junior toddler kindergarten candy doll dolls cute little tiny sweet innocent youth orphan pupil student
    twins
""")
BOLD = listed("""
    sex sexy naked nude love desire kiss passion erotic
""")
HAN = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏小大男女孩子学校少年儿童父母家庭老师同学青春爱情城市"
EVENTS = (
    "birthday",
    "first day of school",
    "piano recital",
    "football match",
    "summer camp",
    "talent show",
    "graduation",
)
TAGS = ("1080p.WEB-DL.x264", "720p.HDTV.x264", "2160p.UHD.BluRay.x265", "DVDRip.XviD", "1080p.BluRay.x264")
ABOUT = ("documentary", "BBC Panorama", "Dateline", "true crime podcast")
OF_AGE = ("Teen", "MILF", "Amateur", "College", "Schoolgirl Uniform", "Young And Legal", "Stepsister", "Wife")
NAMES = ("Anna", "Max", "Lily", "Tom", "Mia")
GROUPS = ["".join(random.Random(n).choices("ABCDEFGHIKLMNOPRSTVYXZ", k=n % 4 + 3)) for n in range(300)]


def names(seed: int) -> Iterator[tuple[str, str]]:
    """Yield (kind, name) without end."""
    chance = random.Random(seed)
    kinds: tuple[Callable[[random.Random], str], ...]
    kinds = (film, series, music, book, home_video, chinese, software, whisky, news, adult)
    weights = (20, 20, 14, 10, 6, 10, 8, 1, 1, 10)
    while True:
        [kind] = chance.choices(kinds, weights)
        yield kind.__name__, kind(chance)


def title(chance: random.Random) -> str:
    """Return up to seven words; one in twenty titles has a bold one."""
    words = chance.choices(COMMON, k=chance.randint(1, 4))
    if chance.random() < 0.25:
        words.insert(chance.randrange(len(words) + 1), chance.choice(YOUNG))
    if chance.random() < 0.05:
        words.insert(chance.randrange(len(words) + 1), chance.choice(BOLD))
    if chance.random() < 0.05:
        words.insert(0, str(chance.randint(1, 99)))
    return " ".join(words).title()


def film(chance: random.Random) -> str:
    return f"{title(chance)} {year(chance)} {chance.choice(TAGS)}-{chance.choice(GROUPS)}".replace(" ", ".")


def series(chance: random.Random) -> str:
    episode = f"S{chance.randint(1, 12):02}E{chance.randint(1, 24):02}"
    release = f"{chance.choice(TAGS)}-{chance.choice(GROUPS)}"
    return f"{title(chance)}.{episode}.{title(chance)}.{release}".replace(" ", ".")


def music(chance: random.Random) -> str:
    return f"{title(chance)} - {title(chance)} ({year(chance)}) [{chance.choice(['FLAC', 'MP3 320'])}]"


def book(chance: random.Random) -> str:
    ages = f", ages {chance.randint(2, 12)}-{chance.randint(13, 18)}" if chance.random() < 0.2 else ""
    return f"{title(chance)}{ages} - {title(chance)}.{chance.choice(['epub', 'pdf', 'mobi'])}"


def home_video(chance: random.Random) -> str:
    age = f"{chance.randint(1, 17)}{chance.choice(['yo', ' y.o.', ' years'])}"
    song = f" sings {title(chance)}" if chance.random() < 0.3 else ""
    return f"{chance.choice(NAMES)} {age} {chance.choice(EVENTS)}{song} {year(chance)}"


def chinese(chance: random.Random) -> str:
    text = "".join(chance.choices(HAN, k=chance.randint(3, 9)))
    return f"{text} 第{chance.randint(1, 40)}集 {chance.choice(['国语中字', '1080P', '高清', '小说', '无损'])}"


def software(chance: random.Random) -> str:
    version = ".".join(str(chance.randint(0, 30)) for _ in range(3))
    return f"{title(chance)} v{version} {chance.choice(['x64', 'macOS', 'Multilingual', 'Portable'])}"


def whisky(chance: random.Random) -> str:
    return f"Glen {chance.choice(COMMON).title()} {chance.choice([10, 12, 15, 16])}yo tasting notes.pdf"


def news(chance: random.Random) -> str:
    what = chance.choice(["underage sex scandal", "abuse investigation", "trial"])
    return f"{chance.choice(ABOUT)} - {title(chance)} {what} {year(chance)}"


def adult(chance: random.Random) -> str:
    """Return the name of legal adult material, whose actors are of age."""
    age = f" {chance.choice([18, 19, 20, 21, 30])}{chance.choice(['yo', ' yo', ' y.o.'])}" * chance.randint(0, 1)
    date = f"{chance.randint(14, 25)}.{chance.randint(1, 12):02}.{chance.randint(1, 28):02}"
    actors = f"{chance.choice(OF_AGE)}{age} {title(chance)}"
    return f"Site{chance.choice(GROUPS)}.{date}.{actors} xxx {chance.choice(TAGS)}".replace(" ", ".")


def year(chance: random.Random) -> int:
    return chance.randint(1950, 2025)
