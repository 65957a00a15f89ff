"""The manifest: what an image is, with sums by which anyone can tell that it still is."""

import json
from pathlib import Path

from .common import ImageError, sha256_file

FORMAT = 1
FILES = ("vmlinuz", "initrd.img", "root.qcow2")


def describe_files(directory: Path) -> dict:
    return {
        name: {"sha256": sha256_file(directory / name), "size": (directory / name).stat().st_size}
        for name in FILES
    }


def read(directory: Path) -> dict:
    path = directory / "manifest.json"
    try:
        manifest = json.loads(path.read_text())
    except OSError as error:
        raise ImageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ImageError(f"{path}: damaged: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ImageError(f"{path}: not a manifest of format {FORMAT}")
    return manifest


def write(directory: Path, manifest: dict) -> None:
    text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    (directory / "manifest.json").write_text(text)


def problems(directory: Path) -> list[str]:
    """What is wrong with an image, one line a file; empty when it is sound."""
    manifest = read(directory)
    found = []
    for name in FILES:
        expected = manifest.get("files", {}).get(name)
        path = directory / name
        if not expected:
            found.append(f"{path}: not in the manifest")
        elif not path.is_file():
            found.append(f"{path}: missing")
        elif path.stat().st_size != expected["size"]:
            found.append(f"{path}: {path.stat().st_size} bytes instead of {expected['size']}")
        elif sha256_file(path) != expected["sha256"]:
            found.append(f"{path}: sha256 differs from the manifest")
    return found
