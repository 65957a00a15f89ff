"""The kernel package's parts that an image uses, and the initial ramdisk made from them."""

import lzma
import os
import shutil
import subprocess
from pathlib import Path

from .common import IMAGES_DIR, ImageError, run

# What a guest needs before its agent can speak: bus, disk, root file system, channel; then what the
# agent expects to find. Dependencies come from the kernel package, built-in ones are left out.
BOOT_MODULES = ("virtio_pci", "virtio_blk", "ext4", "virtio_console", "virtio_net", "virtio_rng")


class Kernel:
    """An unpacked kernel package: `tree` holds boot/ and lib/modules/VERSION."""

    def __init__(self, package: Path, tree: Path):
        run(["dpkg-deb", "-x", package, tree])
        self.tree = tree
        self.version = self._find_version()
        self.vmlinuz = tree / "boot" / f"vmlinuz-{self.version}"
        self.module_root = tree / "lib" / "modules" / self.version
        run(["depmod", "-b", tree, self.version])
        self._paths, self._needs = self._read_dependencies()
        self._builtin = {
            _module_name(line) for line in (self.module_root / "modules.builtin").open()
        }

    def _find_version(self) -> str:
        versions = os.listdir(self.tree / "lib" / "modules")
        if len(versions) != 1:
            raise ImageError(f"kernel package holds {len(versions)} versions instead of one")
        return versions[0]

    def _read_dependencies(self) -> tuple[dict[str, str], dict[str, list[str]]]:
        paths, needs = {}, {}
        for line in (self.module_root / "modules.dep").open():
            path, _, dependencies = line.partition(":")
            name = _module_name(path)
            paths[name] = path
            # depmod lists what is to be inserted first last.
            needs[name] = [_module_name(dep) for dep in reversed(dependencies.split())]
        return paths, needs

    def closure(self, names) -> list[str]:
        """Paths below the module root, each after all that it needs."""
        order: list[str] = []
        for name in names:
            if name in self._builtin:
                continue
            if name not in self._paths:
                raise ImageError(f"kernel {self.version} has no module {name}")
            for module in [*self._needs[name], name]:
                if self._paths[module] not in order:
                    order.append(self._paths[module])
        return order

    def module_bytes(self, path: str) -> bytes:
        data = (self.module_root / path).read_bytes()
        if path.endswith(".xz"):
            return lzma.decompress(data)
        if path.endswith(".zst"):
            return run(["zstd", "-dc"], input=data, stdout=subprocess.PIPE).stdout
        return data

    def keep_modules(self, prefixes: list[str], target: Path) -> None:
        """Copies the modules below the prefixes, and what they need, to a root file system."""
        names = [
            name
            for name, path in self._paths.items()
            if any(path.startswith(f"kernel/{prefix}") for prefix in prefixes)
        ]
        base = target / "lib" / "modules" / self.version
        for path in self.closure(names):
            (base / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.module_root / path, base / path)
        for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
            shutil.copyfile(self.module_root / name, base / name)
        run(["depmod", "-b", target, self.version])


def _module_name(path: str) -> str:
    return Path(path.strip()).name.split(".ko")[0].replace("-", "_")


def build_initrd(kernel: Kernel, target: Path, work: Path) -> None:
    """An uncompressed cpio: unpacking costs an emulated processor more than reading it."""
    init = work / "init"
    compiler = os.environ.get("CC", "cc").split()
    flags = ["-std=gnu11", "-Os", "-static", "-s", "-Wall", "-Wextra", "-Werror"]
    run([*compiler, *flags, "-o", init, IMAGES_DIR / "initrd" / "init.c"])

    archive = _Cpio()
    for name in ("dev", "proc", "newroot", "modules.d"):
        archive.add_directory(name)
    archive.add_file("init", init.read_bytes(), 0o755)
    names = []
    for path in kernel.closure(BOOT_MODULES):
        name = f"modules.d/{_module_name(path)}.ko"
        archive.add_file(name, kernel.module_bytes(path), 0o644)
        names.append(f"/{name}\n")
    archive.add_file("modules", "".join(names).encode(), 0o644)
    target.write_bytes(archive.finish())


class _Cpio:
    """The `newc` form, as much of it as an initial ramdisk needs; equal input gives equal bytes."""

    def __init__(self):
        self._parts: list[bytes] = []
        self._inode = 0

    def add_directory(self, name: str) -> None:
        self._add(name, 0o040755, b"")

    def add_file(self, name: str, data: bytes, mode: int) -> None:
        self._add(name, 0o100000 | mode, data)

    def finish(self) -> bytes:
        self._add("TRAILER!!!", 0, b"")
        return b"".join(self._parts)

    def _add(self, name: str, mode: int, data: bytes) -> None:
        self._inode += 1
        encoded = name.encode() + b"\0"
        links = 2 if mode & 0o040000 else 1
        #         ino          mode  uid gid links mtime size     device    rdevice  name          check
        fields = (self._inode, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields)
        self._parts += [_pad4(header + encoded), _pad4(data)]


def _pad4(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
