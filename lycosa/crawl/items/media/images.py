"""ImagesPipeline: downloads the images in `image_urls` of items, and stores them as JPEG, with thumbnails.

    ITEM_PIPELINES = {"lycosa.ImagesPipeline": 1}
    IMAGES_STORE = "images"
    IMAGES_THUMBS = {"small": (50, 50)}

Downloads are not trusted: only common image formats are read, with at most Pillow's MAX_IMAGE_PIXELS pixels. An upright
JPEG in RGB is stored unchanged. Other images are rotated according to their EXIF data, put on a white background if
they are transparent, and converted to JPEG.
"""

from __future__ import annotations

import asyncio
from typing import IO, TYPE_CHECKING, Any, cast

from lycosa.core.errors import BadSetting, StateError
from lycosa.core.public import public
from lycosa.crawl.items.media.files import url_digest
from lycosa.crawl.items.media.pipeline import MediaInfo, MediaPipeline, MediaRecord
from lycosa.crawl.items.media.store import FileException, PartialFile
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.request import Request

if TYPE_CHECKING:  # Pillow is an extra
    from PIL.Image import Image

FORMATS = ("JPEG", "MPO", "PNG", "GIF", "WEBP", "AVIF", "BMP", "ICO", "TIFF", "JPEG2000")
CONCURRENT_IMAGES = 2
FULL = ""

ORIENTATION = 0x0112
"""The EXIF tag for the camera's orientation; 1 is upright."""


class ImageException(FileException):
    """The file is not an image, or its size is not allowed."""


@public
class ImagesPipeline(MediaPipeline):
    """Stores images as `full/<SHA-1 of the URL>.jpg`, thumbnails as `thumbs/<name>/<SHA-1 of the URL>.jpg`."""

    STORE = "IMAGES"
    URLS_FIELD = "image_urls"
    RESULT_FIELD = "images"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._slots = asyncio.Semaphore(CONCURRENT_IMAGES)
        try:
            import PIL.Image
        except ImportError as error:
            raise BadSetting(f"{type(self).__name__} needs Pillow: pip install 'lycosa[images]'") from error
        PIL.Image.init()
        self._formats = [name for name in FORMATS if name in PIL.Image.OPEN]

    def file_path(
        self, request: Request, response: Response | None = None, info: MediaInfo | None = None, *, item: Any = None
    ) -> str:
        return f"full/{url_digest(request.url)}.jpg"

    def thumb_path(
        self,
        request: Request,
        thumb_id: str,
        response: Response | None = None,
        info: MediaInfo | None = None,
        *,
        item: Any = None,
    ) -> str:
        return f"thumbs/{thumb_id}/{url_digest(request.url)}.jpg"

    def is_complete(self, record: MediaRecord, request: Request, item: Any) -> bool:
        return super().is_complete(record, request, item) and all(
            self.store.size(self.thumb_path(request, name, info=self.info, item=item)) is not None
            for name in self.settings.thumbs
        )

    async def persist(
        self, file: PartialFile, path: str, request: Request, response: Response, item: Any
    ) -> tuple[str, int]:
        """Save the thumbnails, then the image, so an image that exists has all its thumbnails."""
        paths = {
            name: self.thumb_path(request, name, response=response, info=self.info, item=item)
            for name in self.settings.thumbs
        }
        converted: dict[str, PartialFile] = {}
        try:
            async with self._slots:
                await asyncio.to_thread(self._convert, file, converted, request.url)
            for name, place in paths.items():
                await self.save(converted[name], place)
            return await self.save(converted.get(FULL, file), path)
        finally:
            for each in converted.values():
                each.discard()

    def _convert(self, file: PartialFile, converted: dict[str, PartialFile], url: str) -> None:
        """Add new files to `converted`: the thumbnails, and the image unless it is stored unchanged."""
        from PIL import Image

        try:
            with Image.open(file.path, formats=self._formats) as original:
                self._check_size(original)
                image = upright_and_opaque(original)
                if image is not original:
                    converted[FULL] = self._write(image)
                for name, size in self.settings.thumbs.items():
                    thumb = image.copy()
                    thumb.thumbnail(size, Image.Resampling.LANCZOS)
                    converted[name] = self._write(thumb)
        except (StateError, ImageException):
            raise
        except Exception as error:
            raise ImageException(f"{url}: cannot be read as an image: {error}") from error

    def _check_size(self, image: Image) -> None:
        """Check the size in the header, before the image is decompressed. Pillow itself refuses the largest images."""
        from PIL.Image import MAX_IMAGE_PIXELS

        width, height = image.size
        min_width, min_height = self.settings.min_width, self.settings.min_height
        if width < min_width or height < min_height:
            raise ImageException(f"the image is too small: {width}x{height} pixels, minimum {min_width}x{min_height}")
        if MAX_IMAGE_PIXELS is not None and width * height > MAX_IMAGE_PIXELS:
            raise ImageException(f"the image has {width}x{height} pixels, more than {MAX_IMAGE_PIXELS} in all")

    def _write(self, image: Image) -> PartialFile:
        file = self.store.new_file(self.settings.max_size)
        try:
            image.save(cast("IO[bytes]", file), "JPEG")
        except BaseException:
            file.discard()
            raise
        return file


def upright_and_opaque(image: Image) -> Image:
    """Return the image in RGB, upright, on a white background. An upright RGB JPEG is returned as the same object."""
    from PIL import Image, ImageOps

    image.load()
    transparent = image.mode in {"RGBA", "LA", "PA", "La", "RGBa"} or "transparency" in image.info
    if image.getexif().get(ORIENTATION, 1) != 1:
        image = ImageOps.exif_transpose(image)
    elif image.format in {"JPEG", "MPO"} and image.mode == "RGB":
        return image
    if not transparent:
        return image.convert("RGB")
    pixels = image.convert("RGBA")
    opaque = Image.new("RGB", pixels.size, (255, 255, 255))
    opaque.paste(pixels, mask=pixels.getchannel("A"))
    return opaque
