"""QEMU started by hand with an image: the baseline without libvirt, and a way to look at a guest.

Emulated processor, one vCPU, the devices that a sandbox has and nothing else. The disk is a throw-away
overlay. Time is counted from just before QEMU is executed to the first byte that the agent sends in
answer to a SYNC of the guest protocol.
"""

import os
import select
import socket
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from . import manifest
from .common import ImageError, run

PORT_NAME = "org.paddock.agent.0"

# The agent protocol's SYNC, as guest-agent/proto/frame.h lays it out.
_MAGIC = bytes.fromhex("ff50444b9d1ce27705b863fa31ce8a0e")
_FRAME_SYNC = 1
_SYNC_RETRY_SECONDS = 0.25


@dataclass(frozen=True)
class Machine:
    memory_mib: int = 256
    disk_gb: int = 2
    machine: str = "q35"
    cpu: str = "max"
    append: str = ""  # more kernel arguments
    kernel: Path | None = None  # instead of the image's own
    initrd: Path | None = None


class BareGuest:
    """A running QEMU; a context manager that ends it and removes its files."""

    def __init__(self, image: Path, machine: Machine):
        facts = manifest.read(image)
        self._directory = tempfile.TemporaryDirectory(prefix="paddock-bare-")
        self.directory = Path(self._directory.name)
        self.serial_log = self.directory / "serial.log"
        self.channel: socket.socket | None = None
        overlay = self.directory / "disk.qcow2"
        base = (image / "root.qcow2").resolve()
        run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, overlay,
             f"{machine.disk_gb}G"])
        arguments = self._arguments(image, machine, facts["cmdline"], overlay)
        self._log = open(self.directory / "qemu.log", "w+b")
        self.started = time.monotonic()
        self.process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=self._log,
                                        stderr=self._log)

    def _arguments(self, image: Path, machine: Machine, cmdline: str, overlay: Path) -> list[str]:
        return [
            "qemu-system-x86_64",
            "-accel", "tcg,tb-size=32",
            "-machine", f"{machine.machine},usb=off,vmport=off",
            "-cpu", machine.cpu, "-smp", "1", "-m", str(machine.memory_mib),
            "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-kernel", str(machine.kernel or image / "vmlinuz"),
            "-initrd", str(machine.initrd or image / "initrd.img"),
            "-append", f"{cmdline} {machine.append}".strip(),
            "-drive", f"file={overlay},if=none,id=disk,cache=unsafe",
            "-device", "virtio-blk-pci,drive=disk",
            "-device", "virtio-serial-pci",
            "-chardev", f"socket,id=agent,path={self.directory}/agent,server=on,wait=off",
            "-device", f"virtserialport,chardev=agent,name={PORT_NAME}",
            "-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile=",
            "-device", "virtio-rng-pci",
            "-serial", f"file:{self.serial_log}",
        ]  # fmt: skip

    def await_first_byte(self, deadline_seconds: float) -> float:
        """Seconds from the start of QEMU to the agent's first byte."""
        deadline = self.started + deadline_seconds
        self.channel = self._connect(deadline)
        while time.monotonic() < deadline:
            nonce = os.urandom(16)
            self.channel.sendall(struct.pack("<IHHI", 32, _FRAME_SYNC, 0, 0) + _MAGIC + nonce)
            if select.select([self.channel], [], [], _SYNC_RETRY_SECONDS)[0]:
                elapsed = time.monotonic() - self.started
                if not self.channel.recv(1):
                    raise ImageError(f"QEMU ended before the agent spoke\n{self.logs()}")
                return elapsed
        raise ImageError(f"no word from the agent in {deadline_seconds} s\n{self.logs()}")

    def _connect(self, deadline: float) -> socket.socket:
        channel = socket.socket(socket.AF_UNIX)
        while True:
            try:
                channel.connect(str(self.directory / "agent"))
                return channel
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise ImageError(f"QEMU did not start\n{self.logs()}") from None
                time.sleep(0.005)

    def logs(self) -> str:
        serial = self.serial_log.read_text(errors="replace") if self.serial_log.exists() else ""
        self._log.seek(0)
        return self._log.read().decode(errors="replace") + serial

    def __enter__(self) -> "BareGuest":
        return self

    def __exit__(self, *_) -> None:
        if self.channel:
            self.channel.close()
        self.process.kill()
        self.process.wait()
        self._log.close()
        self._directory.cleanup()
