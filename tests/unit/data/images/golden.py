#!/usr/bin/env python3
"""Makes the image files of this folder and golden.txt, with Pillow and NumPy; run once, its output is in the repository.

golden.txt: a line for each check: FILE SIZE RESIZE FILTER COLOR HEIGHT WIDTH, then the sample's bytes in hex, as Pillow gives them
for torchvision's Resize and CenterCrop (SIZE "-": the image as it is).
"""
import pathlib

import numpy
from PIL import Image, ImageOps

HERE = pathlib.Path(__file__).resolve().parent


def picture(height, width, seed):
    rng = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:height, 0:width]
    planes = [128 + 100 * numpy.sin(x / (2 + c) + seed) * numpy.cos(y / (3 + c)) for c in range(3)]
    return numpy.clip(numpy.stack(planes, -1) + rng.normal(0, 12, (height, width, 3)), 0, 255).astype(numpy.uint8)


def files():
    rgb = picture(6, 9, 1)
    image = Image.fromarray(rgb)
    alpha = numpy.concatenate([rgb, rgb[..., :1]], -1)
    image.save(HERE / "rgb.png")
    image.convert("L").save(HERE / "gray.png")
    image.convert("1").save(HERE / "bits.png")
    Image.fromarray(alpha, "RGBA").save(HERE / "alpha.png")
    Image.fromarray(alpha[..., 2:], "LA").save(HERE / "gray_alpha.png")
    palette = image.quantize(16)
    palette.save(HERE / "palette.png", transparency=3)
    Image.fromarray((rgb[..., 0].astype(numpy.uint16) << 8) + 77).save(HERE / "gray16.png")
    image.save(HERE / "rgb.jpg", quality=90)
    image.save(HERE / "progressive.jpeg", quality=80, progressive=True)
    image.convert("L").save(HERE / "gray.jpg", quality=90)
    image.convert("CMYK").save(HERE / "cmyk.jpg", quality=95)
    for orientation in range(2, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        image.save(HERE / f"turned{orientation}.jpg", quality=90, exif=exif)
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(HERE / "turned6.png", exif=exif)
    image.save(HERE / "turned6.webp", lossless=True, exif=exif)
    image.save(HERE / "rgb.webp", quality=80)
    Image.fromarray(alpha, "RGBA").save(HERE / "alpha.webp", lossless=True)
    Image.fromarray(picture(23, 37, 2)).save(HERE / "photo.png")
    Image.fromarray(picture(41, 29, 3)).save(HERE / "tall.png")


def fit(image, size, resize, method):
    height, width = size
    if resize == "exact":
        return image.resize((width, height), method)
    if width * image.height >= height * image.width:
        image = image.resize((width, int(width * image.height / image.width)), method)
    else:
        image = image.resize((int(height * image.width / image.height), height), method)
    top, left = round((image.height - height) / 2), round((image.width - width) / 2)
    return image.crop((left, top, left + width, top + height))


def line(name, size="-", resize="crop", method="bilinear", color="rgb"):
    image = ImageOps.exif_transpose(Image.open(HERE / name))
    if image.mode == "I;16":  # convert() would clip: the upper byte counts, as in RGB of 16 bits
        image = Image.fromarray((numpy.array(image) >> 8).astype(numpy.uint8))
    image = image.convert("RGB" if color == "rgb" else "L")
    if size != "-":
        parts = [int(part) for part in size.split("x")]
        image = fit(image, parts if len(parts) == 2 else parts * 2, resize,
                    {"bilinear": Image.Resampling.BILINEAR, "area": Image.Resampling.BOX}[method])
    return f"{name} {size} {resize} {method} {color} {image.height} {image.width} {numpy.asarray(image).tobytes().hex()}\n"


def main():
    files()
    lines = [line(path.name) for path in sorted(HERE.iterdir())
             if path.suffix in (".png", ".jpg", ".jpeg", ".webp") and path.stem not in ("photo", "tall")]
    lines += [line(name, color="gray") for name in ("rgb.png", "gray.jpg", "alpha.webp")]
    for name in ("photo.png", "tall.png"):
        for method in ("bilinear", "area"):
            lines += [line(name, "8", "crop", method), line(name, "5x11", "crop", method), line(name, "7x6", "exact", method),
                      line(name, "13", "crop", method, "gray"), line(name, "30x44", "exact", method, "gray")]
    (HERE / "golden.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
