"""The two slow steps: a root file system from Debian packages, and a disk from a root file system.

The first is kept (`.cache` in the output directory), since the agent, which changes far more often, is
added only in the second. Neither mounts anything nor needs a loop device, so both work in a container.
"""

import json
import os
import shlex
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from .apt import forwarded_settings
from .common import AGENT_PATH, run, output_of
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

    @staticmethod
    def load(directory: Path) -> "Base":
        facts = json.loads((directory / "base.json").read_text())
        return Base(
            root_tar=directory / "root.tar",
            vmlinuz=directory / "vmlinuz",
            initrd=directory / "initrd.img",
            kernel_version=facts["kernel_version"],
            packages=facts["packages"],
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
             "--owner=0", "--group=0", "--transform=s,^lib/,usr/lib/,", "lib/modules"])
    facts = {"kernel_version": kernel.version, "packages": packages}
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


def build_disk(recipe: Recipe, base: Base, agent: Path, seed: str, target: Path, work: Path) -> int:
    """Writes the qcow2 disk @target; returns its virtual size. Equal input gives equal bytes."""
    root = work / "root"
    root.mkdir(mode=0o755)
    run(["tar", "-C", root, "--numeric-owner", "--xattrs", "-xpf", base.root_tar])
    _inject_agent(root, agent)
    (root / "etc" / "paddock-image").write_text(f"{recipe.name} {seed[:12]}\n")

    size = _disk_size(root)
    raw = work / "root.raw"
    with open(raw, "wb") as file:
        file.truncate(size)
    identity = uuid.UUID(seed[:32])
    run(
        [
            "mke2fs", "-q", "-t", "ext4", "-d", root, "-m", "0", "-I", "256", "-L", "root",
            "-U", identity,
            # The group descriptors' reserve (resize_inode) is what makes growth in a guest quick.
            "-O", "64bit,metadata_csum,resize_inode,^orphan_file,^metadata_csum_seed",
            "-E", f"lazy_itable_init=1,lazy_journal_init=1,nodiscard,hash_seed={identity},"
                  "root_owner=0:0",
            "-J", "size=32",
            raw,
        ],
        env={**os.environ, "E2FSPROGS_FAKE_TIME": "1"},
    )  # fmt: skip
    shutil.rmtree(root)
    options = ["-c", "-o", "compression_type=zstd"] if recipe.compress else []
    run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", *options, raw, target])
    raw.unlink()
    return size


def _inject_agent(root: Path, agent: Path) -> None:
    target = root / AGENT_PATH.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(agent, target)
    os.chmod(target, 0o755)
    os.chown(target, 0, 0)


def _disk_size(root: Path) -> int:
    """Some room, for a sandbox whose disk is no larger; a sandbox grows it to its own size."""
    used = int(output_of(["du", "-s", "-B1", root]).split()[0])
    wanted = max(MIN_DISK_BYTES, used * 5 // 4 + 128 * MIB)
    return -(-wanted // DISK_STEP_BYTES) * DISK_STEP_BYTES
