"""The output directory: where finished images lie and how a new one takes the old one's place.

    OUT/NAME/VERSION/    vmlinuz, initrd.img, root.qcow2, manifest.json; never written again
    OUT/NAME/current     link to the VERSION in use
    OUT/.cache/NAME-KEY/ root without agent
    OUT/.work-*          a build in progress

A version's name is made from all that its content is made from, so a disk overlay that names one
can rely on it for as long as it exists; the build never removes one. The link is switched by
rename(2): a reader sees the old image or the new one.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from . import manifest
from .common import ImageError


def resolve(out: Path, name: str) -> Path:
    """The directory of the version in use."""
    current = out / name / "current"
    if not current.exists():
        raise ImageError(f"no image {name} in {out}; make it with images/build {name}")
    return current.resolve()


@contextlib.contextmanager
def locked(out: Path):
    """One build at a time; what an interrupted one left behind is removed."""
    out.mkdir(parents=True, exist_ok=True)
    os.chmod(out, 0o755)
    with open(out / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for leftover in out.glob(".work-*"):
            shutil.rmtree(leftover)
        yield


@contextlib.contextmanager
def work_directory(out: Path):
    work = Path(tempfile.mkdtemp(prefix=".work-", dir=out))
    # mmdebstrap's downloads run as another user.
    os.chmod(work, 0o755)
    try:
        yield work
    finally:
        shutil.rmtree(work)


def cache_put(out: Path, key: str, finished: Path) -> Path:
    """Keeps one root for each image name: the part of @key before the last dash."""
    cache = out / ".cache"
    cache.mkdir(exist_ok=True)
    name = key.rpartition("-")[0]
    for old in cache.glob(f"{name}-*"):
        if old.name.rpartition("-")[0] == name:
            shutil.rmtree(old)
    os.rename(finished, cache / key)
    return cache / key


def publish(out: Path, name: str, version: str, finished: Path) -> Path:
    """Moves @finished to its place and makes it the version in use."""
    home = out / name
    home.mkdir(exist_ok=True)
    os.chmod(home, 0o755)
    target = home / version
    if not _is_sound(target):
        _seal(finished)
        if target.exists():
            # Damaged: the same version is the same content, so what refers to it is repaired.
            os.rename(target, finished.parent / "damaged")
        os.rename(finished, target)
    link = home / ".current"
    link.unlink(missing_ok=True)
    link.symlink_to(version)
    os.rename(link, home / "current")
    _fsync(home)
    return target


def _is_sound(directory: Path) -> bool:
    try:
        return not manifest.problems(directory)
    except ImageError:
        return False


def _seal(directory: Path) -> None:
    """Nobody writes here again; on disk before anything points to it."""
    for path in directory.iterdir():
        os.chmod(path, 0o444)
        os.chown(path, 0, 0)
        _fsync(path)
    os.chmod(directory, 0o755)
    _fsync(directory)


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
