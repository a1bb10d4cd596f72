"""ImagesPipeline (C10): all images become JPEG in RGB, with thumbnails; hostile images do no harm."""

from __future__ import annotations

import asyncio
import hashlib
import struct
import subprocess
import sys
import textwrap
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from lycosa.crawl.items.media.images import ImageException, ImagesPipeline
from lycosa.crawl.items.media.pipeline import settings_of
from tests.conftest import ROOT
from tests.crawl.downloads import opened
from tests.servers.misbehaving import serving
from tests.servers.sins import SINS, Exchange
from tests.storage.memory_keystore import MemoryKeyStore

RED, WHITE = (255, 0, 0), (255, 255, 255)


def picture(mode: str = "RGB", size: tuple[int, int] = (40, 20), colour: Any = "red", **options: Any) -> bytes:
    """Return an image with a left half of this colour and a right half of 0 in all channels."""
    image = Image.new(mode, size)
    if mode == "P":
        image.putpalette([0, 0, 0, 255, 0, 0])
        colour = 1
    ImageDraw.Draw(image).rectangle((0, 0, size[0] // 2 - 1, size[1]), fill=colour)
    out = BytesIO()
    image.save(out, **{"format": "PNG", **options})
    return out.getvalue()


def turned() -> bytes:
    """Return a JPEG whose EXIF data says that the camera was turned."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return picture(format="JPEG", quality=95, exif=exif)


def bomb(width: int, height: int) -> bytes:
    """Return the beginning of a PNG whose header has this size."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" * 100_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


PICTURES: dict[str, bytes] = {}


async def show(x: Exchange) -> None:
    """Answer with an image of `PICTURES`."""
    await x.answer(200, PICTURES[x.rest.split("/")[-1]], kind="image/png")


@pytest.fixture(autouse=True)
def _pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SINS, "/picture", show)
    PICTURES.clear()


def download(tmp_path: Path, data: bytes, kind: Any = ImagesPipeline, **settings: Any) -> list[tuple[bool, Any]]:
    """Return the results of one item with one image."""
    seen: list[Any] = []

    class Records(kind):  # type: ignore[misc]
        def item_completed(self, results, item, info):
            seen.extend(results)
            return super().item_completed(results, item, info)

    async def run() -> None:
        PICTURES["a"] = data
        async with serving() as server, opened(Records, tmp_path, **settings) as pipeline:
            await pipeline.process_item({"image_urls": [server.url("/picture/a")]})

    asyncio.run(run())
    return seen


def image_of(path: Path) -> Image.Image:
    with Image.open(path) as image:
        image.load()
        assert (image.format, image.mode) == ("JPEG", "RGB")
        return image


def near(one: Any, other: Any) -> bool:
    return all(abs(a - b) < 12 for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    ("data", "right"),
    [
        (picture(), (0, 0, 0)),
        (picture("RGBA"), WHITE),
        (picture("RGBA", format="WEBP", lossless=True), WHITE),
        (picture("P"), (0, 0, 0)),
        (picture("P", transparency=0), WHITE),
        (picture("P", format="GIF", transparency=0), WHITE),
        (picture("CMYK", colour=(0, 255, 255, 0), format="JPEG", quality=95), WHITE),
        (picture("RGB", format="BMP"), (0, 0, 0)),
        (picture("RGB", format="TIFF"), (0, 0, 0)),
    ],
    ids=["rgb", "rgba", "webp", "palette", "palette, transparent", "gif", "cmyk", "bmp", "tiff"],
)
def test_images_that_are_no_rgb_jpeg_are_converted_to_jpeg_on_white(data: bytes, right: Any, tmp_path: Path) -> None:
    ((good, result),) = download(tmp_path, data)
    assert good, result
    path = tmp_path / result["path"]
    assert result["path"] == f"full/{hashlib.sha1(result['url'].encode()).hexdigest()}.jpg"
    assert result["checksum"] == hashlib.md5(path.read_bytes()).hexdigest()
    image = image_of(path)
    assert image.size == (40, 20)
    assert near(image.getpixel((5, 10)), RED)
    assert near(image.getpixel((35, 10)), right)


def test_a_jpeg_in_rgb_is_stored_unchanged(tmp_path: Path) -> None:
    data = picture(format="JPEG", quality=90)
    ((good, result),) = download(tmp_path, data)
    assert good
    assert (tmp_path / result["path"]).read_bytes() == data


def test_a_grey_image_is_converted_to_rgb(tmp_path: Path) -> None:
    ((good, result),) = download(tmp_path, picture("L", colour=255, format="JPEG"))
    assert good
    assert near(image_of(tmp_path / result["path"]).getpixel((5, 10)), WHITE)


def test_an_image_is_rotated_by_its_exif_orientation(tmp_path: Path) -> None:
    ((good, result),) = download(tmp_path, turned())
    assert good
    image = image_of(tmp_path / result["path"])
    assert image.size == (20, 40)
    assert near(image.getpixel((10, 5)), RED)
    assert near(image.getpixel((10, 35)), (0, 0, 0))


def test_thumbnails_keep_proportions_and_are_recreated_if_one_is_missing(tmp_path: Path) -> None:
    async def run() -> list[str]:
        PICTURES["a"] = picture(size=(400, 200))
        memory = MemoryKeyStore()
        statuses = []
        thumbs = {"small": (50, 50), "big": (120, 500)}
        async with serving() as server:
            for round_ in range(4):
                async with opened(ImagesPipeline, tmp_path, memory, thumbs=thumbs) as pipeline:
                    item = await pipeline.process_item({"image_urls": [server.url("/picture/a")]})
                statuses.append(item["images"][0]["status"])
                name = Path(item["images"][0]["path"]).name
                assert image_of(tmp_path / "thumbs/small" / name).size == (50, 25)
                assert image_of(tmp_path / "thumbs/big" / name).size == (120, 60)
                assert image_of(tmp_path / "full" / name).size == (400, 200)
                if round_ == 1:
                    (tmp_path / "thumbs/big" / name).unlink()
        return statuses

    assert asyncio.run(run()) == ["downloaded", "uptodate", "downloaded", "uptodate"]
    assert not (tmp_path / ".parts").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<html>no image", "cannot be read as an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "cannot be read as an image"),
        (picture()[:-30], "cannot be read as an image"),
        (picture(size=(300, 300), format="JPEG")[:700], "cannot be read as an image"),
        (picture(size=(39, 40)), "too small: 39x40 pixels, minimum 40x20"),
        (picture(size=(40, 19)), "too small: 40x19 pixels, minimum 40x20"),
        (bomb(50_000, 50_000), "decompression bomb|cannot be read"),
        (bomb(9_500, 9_500), r"9500x9500 pixels, more than|decompression bomb|exceeds limit"),
        (bomb(9_000, 9_000), "cannot be read as an image"),
    ],
    ids=["html", "eps", "cut png", "cut jpeg", "narrow", "low", "bomb", "little bomb", "bomb that is empty"],
)
def test_a_bad_or_small_image_is_refused_and_leaves_nothing(data: bytes, message: str, tmp_path: Path) -> None:
    import re

    thumbs = {"small": (5, 5)}
    ((good, error),) = download(tmp_path, data, min_width=40, min_height=20, thumbs=thumbs)
    assert not good
    assert isinstance(error, ImageException)
    assert re.search(message, str(error))
    assert "\n" not in str(error)
    assert list(tmp_path.iterdir()) == []


def test_a_hostile_name_of_a_thumbnail_is_refused(tmp_path: Path) -> None:
    ((good, error),) = download(tmp_path / "store", picture(), thumbs={"../../x": (5, 5)})
    assert not good
    assert "cannot be the name of a file" in str(error)
    assert [path.name for path in tmp_path.rglob("*")] == ["store"]


def test_with_deduplicate_equal_images_are_hard_links(tmp_path: Path) -> None:
    async def run() -> None:
        PICTURES["a"] = PICTURES["b"] = picture(size=(100, 100))
        thumbs = {"t": (10, 10)}
        async with serving() as server, opened(ImagesPipeline, tmp_path, deduplicate=True, thumbs=thumbs) as pipeline:
            for name in "ab":
                await pipeline.process_item({"image_urls": [server.url(f"/picture/{name}")]})

    asyncio.run(run())
    for folder in ("full", "thumbs/t"):
        files = list((tmp_path / folder).iterdir())
        assert len(files) == 2
        assert len({path.stat().st_ino for path in files}) == 1


def test_the_event_loop_is_not_blocked_by_conversions(tmp_path: Path) -> None:
    async def run() -> int:
        PICTURES.update((str(n), picture(size=(1500, 1500), colour=(n, 0, 0))) for n in range(6))
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.002)
                ticks += 1

        async with serving() as server, opened(ImagesPipeline, tmp_path, thumbs={"t": (700, 700)}) as pipeline:
            ticking = asyncio.create_task(tick())
            item = await pipeline.process_item({"image_urls": [server.url(f"/picture/{n}") for n in range(6)]})
            ticking.cancel()
            assert len(item["images"]) == 6
        return ticks

    assert asyncio.run(run()) > 5


def test_without_pillow_an_error_says_what_to_install() -> None:
    code = """
        import sys
        sys.modules["PIL"] = None
        from lycosa import ImagesPipeline
        from lycosa.core.errors import BadSetting
        from lycosa.crawl.items.media.pipeline import MediaInfo, MediaSettings
        try:
            ImagesPipeline(MediaSettings("x", "a", "b"), MediaInfo(None, None), None)
        except BadSetting as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == "ImagesPipeline needs Pillow: pip install 'lycosa[images]'\n", done.stderr


class Small(ImagesPipeline):
    MIN_WIDTH = 7
    THUMBS = {"a": (1, 2)}


def test_settings_of_images_are_read() -> None:
    read = settings_of(
        ImagesPipeline,
        {"IMAGES_STORE": "x", "IMAGES_THUMBS": {"s": [5, 6]}, "IMAGES_MIN_WIDTH": "3", "IMAGES_MIN_HEIGHT": 4},
    )
    assert (read.thumbs, read.min_width, read.min_height) == ({"s": (5, 6)}, 3, 4)
    assert (read.urls_field, read.result_field) == ("image_urls", "images")
    own = settings_of(Small, {"IMAGES_STORE": "x", "IMAGES_MIN_WIDTH": 0, "IMAGES_THUMBS": {}})
    assert (own.thumbs, own.min_width) == ({"a": (1, 2)}, 7)
