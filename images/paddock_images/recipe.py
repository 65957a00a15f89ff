"""A recipe: the folder below recipes/ that says what an image holds."""

import configparser
import re
from dataclasses import dataclass
from pathlib import Path

from .common import RECIPES_DIR, ImageError, sha256_tree

SUITE = "bookworm"
COMMON_DIR = RECIPES_DIR / "common"


@dataclass(frozen=True)
class Recipe:
    name: str
    directory: Path
    variant: str  # mmdebstrap's name for the set of packages to start from
    compress: bool  # smaller on disk, but every first read of a block costs the processor
    modules: list[str]  # kernel modules kept in the root, as prefixes below kernel/
    packages: list[str]

    def digest(self) -> str:
        return sha256_tree(self.directory, COMMON_DIR)


def recipe_names() -> list[str]:
    return sorted(path.parent.name for path in RECIPES_DIR.glob("*/image.conf"))


def load_recipe(name: str) -> Recipe:
    directory = RECIPES_DIR / name
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name) or not (directory / "image.conf").is_file():
        raise ImageError(f"no image {name!r}; there are: {', '.join(recipe_names())}")
    config = configparser.ConfigParser()
    config.read(directory / "image.conf")
    image = config["image"]
    lines = (line.split("#")[0].strip() for line in (directory / "packages").open())
    return Recipe(
        name=name,
        directory=directory,
        variant=image["variant"],
        compress=image.getboolean("compress"),
        modules=image.get("modules", "").split(),
        packages=[line for line in lines if line],
    )
