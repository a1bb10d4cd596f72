"""ImagesPipeline: downloads the images that items name in `image_urls`, as JPEG, with thumbnails.

    ITEM_PIPELINES = {"lycosa.ImagesPipeline": 1}
    IMAGES_STORE = "images"
    IMAGES_THUMBS = {"small": (50, 50)}

What comes is hostile: only kinds of images that browsers show are read, none of more pixels than Pillow's
MAX_IMAGE_PIXELS, at most IMAGES_AT_A_TIME of them, in threads. An image that is a JPEG in RGB already is kept as it
came; others are turned as their EXIF says, put on white where they are transparent, and written as JPEG.
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
IMAGES_AT_A_TIME = 2
FULL = ""
"""The key of the image itself among its thumbnails."""

ORIENTATION = 0x0112
"""The EXIF tag that says how a camera was held; 1 is upright."""


class ImageException(FileException):
    """The image is none, or not one that is wanted."""


@public
class ImagesPipeline(MediaPipeline):
    """Images: `full/<SHA-1 of the URL>.jpg`, thumbnails `thumbs/<name>/<SHA-1 of the URL>.jpg`."""

    STORE = "IMAGES"
    URLS_FIELD = "image_urls"
    RESULT_FIELD = "images"

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._places = asyncio.Semaphore(IMAGES_AT_A_TIME)
        try:
            import PIL.Image
        except ImportError as error:
            raise BadSetting(f"{type(self).__name__} needs Pillow: pip install 'lycosa[images]'") from error
        PIL.Image.init()
        self._formats = [name for name in FORMATS if name in PIL.Image.OPEN]

    def file_path(
        self, request: Request, response: Response | None = None, info: MediaInfo | None = None, *, item: Any = None
    ) -> str:
        """Return the path of the image in the store."""
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
        """Return the path of a thumbnail in the store."""
        return f"thumbs/{thumb_id}/{url_digest(request.url)}.jpg"

    def is_complete(self, known: MediaRecord, request: Request, item: Any) -> bool:
        """Return whether the image and its thumbnails are there."""
        return super().is_complete(known, request, item) and all(
            self.store.size(self.thumb_path(request, name, info=self.info, item=item)) is not None
            for name in self.settings.thumbs
        )

    async def persist(
        self, part: PartialFile, path: str, request: Request, response: Response, item: Any
    ) -> tuple[str, int]:
        """Keep the image and its thumbnails, these first: an image that is there has them."""
        thumbs = {
            name: self.thumb_path(request, name, response=response, info=self.info, item=item)
            for name in self.settings.thumbs
        }
        made: dict[str, PartialFile] = {}
        try:
            async with self._places:
                await asyncio.to_thread(self._make, part, list(thumbs), made, request.url)
            for name, place in thumbs.items():
                await self.keep(made[name], place)
            return await self.keep(made.get(FULL, part), path)
        finally:
            for each in made.values():
                each.discard()

    def _make(self, part: PartialFile, thumbs: list[str], made: dict[str, PartialFile], url: str) -> None:
        """Write the thumbnails, and the image if it is not as it shall be, into parts that are put into `made`."""
        from PIL import Image

        try:
            with Image.open(part.path, formats=self._formats) as original:
                self._check(original)
                image = upright_and_opaque(original)
                if image is not original:
                    made[FULL] = self._written(image)
                for name in thumbs:
                    small = image.copy()
                    small.thumbnail(self.settings.thumbs[name], Image.Resampling.LANCZOS)
                    made[name] = self._written(small)
        except (StateError, ImageException):
            raise
        except Exception as error:
            raise ImageException(f"{url}: cannot be read as an image: {error}") from error

    def _check(self, image: Image) -> None:
        """Refuse an image by its head, before it is unpacked. Pillow itself refuses the largest."""
        from PIL.Image import MAX_IMAGE_PIXELS

        width, height = image.size
        least = (self.settings.min_width, self.settings.min_height)
        if width < least[0] or height < least[1]:
            raise ImageException(f"the image is too small, {width}x{height} of at least {least[0]}x{least[1]} pixels")
        if MAX_IMAGE_PIXELS is not None and width * height > MAX_IMAGE_PIXELS:
            raise ImageException(f"the image has {width}x{height} pixels, more than {MAX_IMAGE_PIXELS} in all")

    def _written(self, image: Image) -> PartialFile:
        part = self.store.part(self.settings.max_size)
        try:
            image.save(cast("IO[bytes]", _Writer(part)), "JPEG")
        except BaseException:
            part.discard()
            raise
        return part


def upright_and_opaque(image: Image) -> Image:
    """Return the image in RGB, turned as its camera was held, on white; itself when it is a JPEG like that already."""
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


class _Writer:
    """A part as the file that Pillow wants to write to."""

    def __init__(self, part: PartialFile) -> None:
        self._part = part

    def write(self, piece: bytes) -> int:
        self._part(piece)
        return len(piece)

    def flush(self) -> None:
        pass
