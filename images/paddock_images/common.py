"""Paths, the error that ends a command with one line, and the small helpers every module here uses."""

import hashlib
import os
import subprocess
from pathlib import Path

IMAGES_DIR = Path(__file__).resolve().parent.parent
RECIPES_DIR = IMAGES_DIR / "recipes"
AGENT_PATH = "/usr/lib/paddock/paddock-agent"


class ImageError(Exception):
    """Something a user can act on; the commands print it without a traceback."""


def default_out() -> Path:
    return Path(os.environ.get("PADDOCK_IMAGES") or IMAGES_DIR / "out")


def run(args: list, **kwargs) -> subprocess.CompletedProcess:
    """Runs a program; its failure becomes an ImageError that names it."""
    args = [str(arg) for arg in args]
    try:
        return subprocess.run(args, check=True, **kwargs)
    except FileNotFoundError:
        raise ImageError(f"{args[0]} is not installed") from None
    except subprocess.CalledProcessError as error:
        detail = (error.stderr or b"")
        detail = detail.decode(errors="replace") if isinstance(detail, bytes) else detail
        raise ImageError(f"{args[0]} failed with {error.returncode}\n{detail}".rstrip()) from None


def output_of(args: list) -> str:
    return run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout


def sha256_file(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_tree(*roots: Path) -> str:
    """One sum over names, modes and contents of all files below the roots."""
    total = hashlib.sha256()
    for root in roots:
        files = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.is_file())
        for path in files:
            if "__pycache__" in path.parts:
                continue
            executable = os.access(path, os.X_OK)
            name = path.relative_to(root.parent)
            total.update(f"{name}\0{executable:d}\0{sha256_file(path)}\n".encode())
    return total.hexdigest()
