"""The two slow steps: a root file system from Debian packages, and a disk from a root file system.

The first is kept (`.cache` in the output directory), since the agent, which changes far more often,
is added only in the second. Neither mounts anything nor needs a loop device: both work in a
container.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from .apt import forwarded_settings
from .common import AGENT_PATH, output_of, run, sha256_file
from .kernel import Kernel, build_initrd
from .recipe import COMMON_DIR, SUITE, Recipe

KERNEL_PACKAGE = "linux-image-cloud-amd64"

MIB = 1 << 20
MIN_DISK_BYTES = 1024 * MIB
DISK_STEP_BYTES = 64 * MIB

_DPKG_OPTIONS = (
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/groff/*",
    "path-exclude=/usr/share/lintian/*",
    "path-exclude=/usr/share/locale/*",
    "path-include=/usr/share/locale/locale.alias",
)


@dataclass(frozen=True)
class Base:
    """A finished root without the agent, and the kernel that goes with it."""

    root_tar: Path
    vmlinuz: Path
    initrd: Path
    kernel_version: str
    packages: list[dict]
    root_sha256: str
    built: int  # seconds since 1970, for what is added to the root later

    def sums(self) -> list[str]:
        files = (sha256_file(self.vmlinuz), sha256_file(self.initrd))
        return [self.root_sha256, str(self.built), *files]

    def same_packages(self, other: "Base") -> bool:
        kernels = sha256_file(self.vmlinuz), sha256_file(other.vmlinuz)
        return kernels[0] == kernels[1] and self.packages == other.packages

    @staticmethod
    def load(directory: Path) -> "Base":
        facts = json.loads((directory / "base.json").read_text())
        return Base(
            root_tar=directory / "root.tar",
            vmlinuz=directory / "vmlinuz",
            initrd=directory / "initrd.img",
            kernel_version=facts["kernel_version"],
            packages=facts["packages"],
            root_sha256=facts["root_sha256"],
            built=facts["built"],
        )


def build_base(recipe: Recipe, sources: list[str], target: Path, work: Path) -> None:
    """Fills the directory @target with what Base.load() reads."""
    _bootstrap(recipe, sources, target / "root.tar", work)
    packages = _read_packages(work / "packages")

    debs = list(work.glob("linux-image-*.deb"))
    kernel = Kernel(debs[0], work / "kernel")
    shutil.copyfile(kernel.vmlinuz, target / "vmlinuz")
    build_initrd(kernel, target / "initrd.img", work)
    if recipe.modules:
        extra = work / "modules"
        kernel.keep_modules(recipe.modules, extra)
        # /lib is a link to usr/lib in the root.
        run(["tar", "-C", extra, "--append", "-f", target / "root.tar", "--sort=name",
             "--mtime=@0", "--owner=0", "--group=0", "--transform=s,^lib/,usr/lib/,", "lib/modules"])
    facts = {
        "kernel_version": kernel.version,
        "packages": packages,
        "root_sha256": sha256_file(target / "root.tar"),
        "built": int(time.time()),
    }
    (target / "base.json").write_text(json.dumps(facts))


def _bootstrap(recipe: Recipe, sources: list[str], root_tar: Path, work: Path) -> None:
    settings = work / "apt.conf"
    settings.write_text(forwarded_settings())
    directory = shlex.quote(str(work))
    apt = 'APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"'
    hooks = [
        f'dpkg-query --admindir="$1/var/lib/dpkg" -W -f \'${{Package}} ${{Version}}\\n\' '
        f">{directory}/packages",
        # The kernel is not installed, which would pull an initramfs generator in: only unpacked.
        f"cd {directory} && {apt} apt-get -qq -o APT::Sandbox::User=root download "
        f"$({apt} apt-cache depends {KERNEL_PACKAGE} | awk '/Depends: linux-image-/ {{print $2}}')",
        f'{shlex.quote(str(COMMON_DIR / "setup"))} "$1"',
    ]
    if (recipe.directory / "setup").exists():
        hooks.append(f'{shlex.quote(str(recipe.directory / "setup"))} "$1"')
    run(
        [
            "mmdebstrap",
            "--quiet",
            "--format=tar",
            f"--variant={recipe.variant}",
            f"--include={','.join(recipe.packages)}",
            f"--aptopt={settings}",
            '--aptopt=APT::Install-Recommends "false"',
            *(f"--dpkgopt={option}" for option in _DPKG_OPTIONS),
            *(f"--customize-hook={hook}" for hook in hooks),
            SUITE,
            root_tar,
            "-",
        ],
        input="".join(line + "\n" for line in sources).encode(),
        env={**os.environ, "LC_ALL": "C"},
    )


def _read_packages(path: Path) -> list[dict]:
    pairs = (line.split() for line in path.read_text().splitlines())
    return [{"name": name, "version": version} for name, version in sorted(pairs)]


def build_disk(
    recipe: Recipe, base: Base, agent: Path, identity: str, target: Path, work: Path
) -> int:
    """Writes the qcow2 disk @target; returns its virtual size. Equal input gives equal bytes."""
    root = work / "root"
    root.mkdir(mode=0o755)
    run(["tar", "-C", root, "--numeric-owner", "--xattrs", "-xpf", base.root_tar])
    _add_file(root / AGENT_PATH.lstrip("/"), agent.read_bytes(), 0o755, base.built)
    label = f"{recipe.name} {identity[:16]}\n".encode()
    _add_file(root / "etc" / "paddock-image", label, 0o644, base.built)

    raw = work / "root.raw"
    size = _make_filesystem(root, raw, uuid.UUID(identity[:32]), base.built)
    shutil.rmtree(root)
    options = ["-c", "-o", "compression_type=zstd"] if recipe.compress else []
    run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", *options, raw, target])
    raw.unlink()
    return size


def _add_file(path: Path, data: bytes, mode: int, mtime: int) -> None:
    """As if it had been there when the root was made: the directory's time shows no trace either."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.chown(path, 0, 0)
    os.chmod(path, mode)
    for changed in (path, path.parent):
        os.utime(changed, (mtime, mtime))


def _make_filesystem(root: Path, raw: Path, fs_uuid: uuid.UUID, built: int) -> int:
    size = _disk_size(root)
    with open(raw, "wb") as file:
        file.truncate(size)
    run(
        [
            "mke2fs", "-q", "-t", "ext4", "-d", root, "-m", "0", "-I", "256", "-L", "root",
            "-U", fs_uuid,
            # The group descriptors' reserve (resize_inode) is what makes growth in a guest quick.
            "-O", "64bit,metadata_csum,resize_inode,^metadata_csum_seed",
            "-E", f"lazy_itable_init=1,lazy_journal_init=1,nodiscard,hash_seed={fs_uuid},"
                  "root_owner=0:0",
            "-J", "size=32",
            raw,
        ],
        env={**os.environ, "E2FSPROGS_FAKE_TIME": str(built)},
    )  # fmt: skip
    # mke2fs copies the times at which our copies of the files were made and read.
    commands = raw.with_suffix(".debugfs")
    with open(commands, "w") as file:
        file.write(f"set_current_time @{built}\n")
        for inode in _used_inodes(raw):
            file.write(f"sif <{inode}> ctime @{built}\nsif <{inode}> atime @{built}\n")
    run(["debugfs", "-w", "-f", commands, raw], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return size


def _used_inodes(raw: Path) -> list[int]:
    """The root directory's and all that are not the file system's own."""
    dump = output_of(["dumpe2fs", raw])
    count = int(re.search(r"^Inode count: +(\d+)", dump, re.M)[1])
    first = int(re.search(r"^First inode: +(\d+)", dump, re.M)[1])
    free: set[int] = set()
    for line in re.findall(r"^  Free inodes: (.*)$", dump, re.M):
        for span in filter(None, line.split(", ")):
            low, _, high = span.partition("-")
            free.update(range(int(low), int(high or low) + 1))
    return [2, *(inode for inode in range(first, count + 1) if inode not in free)]


def _disk_size(root: Path) -> int:
    """Some room, for a sandbox whose disk is no larger; a sandbox grows it to its own size."""
    used = int(output_of(["du", "-s", "-B1", root]).split()[0])
    wanted = max(MIN_DISK_BYTES, used * 5 // 4 + 128 * MIB)
    return -(-wanted // DISK_STEP_BYTES) * DISK_STEP_BYTES
