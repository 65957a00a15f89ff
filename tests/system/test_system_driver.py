"""The same under qemu:///system, as the installed service has it."""
import contextlib
import os
import pathlib
import signal
import subprocess
import time
import unittest

import lib_netns
import test_network
from paddock import HOOKS_BUILD, Daemon, wait_for

# Runs in the guest.
SENDER = """
import socket, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    try:
        sock.sendto(b"still here", ("203.0.113.9", 80))
    except OSError:
        pass
    time.sleep(0.02)
"""


class LibvirtDaemons:
    """libvirtd and virtlogd, started where none runs, and ended again."""

    def __init__(self):
        self.started = []
        for name in ("virtlogd", "libvirtd"):
            pid_file = pathlib.Path(f"/run/{name}.pid")
            if self.is_running(pid_file, name):
                continue
            subprocess.run([f"/usr/sbin/{name}", "-d"], check=True, timeout=60)
            wait_for(lambda p=pid_file, n=name: self.is_running(p, n), 30, f"{name} runs")
            self.started.append(int(pid_file.read_text()))

    @staticmethod
    def is_running(pid_file, name):
        with contextlib.suppress(OSError, ValueError):
            pid = int(pid_file.read_text())
            return name in pathlib.Path(f"/proc/{pid}/comm").read_text()
        return False

    def close(self):
        for pid in reversed(self.started):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


class SystemDriver(unittest.TestCase):
    def test_create_exec_restart_the_daemon_and_destroy(self):
        daemons = LibvirtDaemons()
        self.addCleanup(daemons.close)
        daemon = Daemon(uri="qemu:///system").start()
        self.addCleanup(daemon.close)
        client = daemon.client()
        sandbox = client.create(name="system")["id"]
        self.assertEqual(client.exec(sandbox, "echo", "hello")["stdout"], "hello\n")
        client.shell(sandbox, "echo kept >/workspace/f")
        listed = subprocess.run(["virsh", "-c", "qemu:///system", "list", "--name"],
                                capture_output=True, text=True, timeout=60).stdout
        self.assertIn(sandbox, listed)

        daemon.terminate()
        daemon.start_again()
        client.port = daemon.port
        self.assertEqual(client.exec(sandbox, "cat", "/workspace/f")["stdout"], "kept\n")
        self.assertEqual(client.destroy(sandbox)["status"], "deleted")
        self.assertTrue(daemon.is_gone(sandbox), daemon.leftovers(sandbox))
        listed = subprocess.run(["virsh", "-c", "qemu:///system", "list", "--all", "--name"],
                                capture_output=True, text=True, timeout=60).stdout
        self.assertNotIn(sandbox, listed)

    def test_a_guest_is_silent_without_the_filter_even_if_libvirt_hangs(self):
        daemons = LibvirtDaemons()
        self.addCleanup(daemons.close)
        around = test_network.Surroundings()
        self.addCleanup(around.close)
        broken = pathlib.Path(f"/tmp/paddock-filter-fails-{os.getpid()}")
        self.addCleanup(broken.unlink, missing_ok=True)
        guest = test_network.Guest(HOOKS_BUILD, {"PADDOCK_TEST_FILTER_FAIL_FILE": str(broken)},
                                   uri="qemu:///system")
        self.addCleanup(guest.daemon.close)
        table = guest.table.split()[-1]
        guest.client.exec(guest.sandbox, "sh", "-c", "setsid python3 -c \"$0\" >/dev/null 2>&1 &", SENDER)
        begin = around.packets()
        wait_for(lambda: around.packets() > begin + 20, 30, "the guest sends")

        libvirtd = int(pathlib.Path("/run/libvirtd.pid").read_text())
        self.addCleanup(os.kill, libvirtd, signal.SIGCONT)
        os.kill(libvirtd, signal.SIGSTOP)
        broken.touch()
        lib_netns.sh(["nft", "delete", "table", "inet", table])
        time.sleep(1)
        before = around.packets()
        time.sleep(2)
        # Beside a few questions of the host's own for hardware addresses.
        self.assertLess(around.packets() - before, 10)

        # The filter alone brings the guest back, whatever libvirt does.
        broken.unlink()
        before = around.packets()
        wait_for(lambda: around.packets() > before + 20, 30, "the guest sends again")
        os.kill(libvirtd, signal.SIGCONT)
        self.assertEqual(guest.client.exec(guest.sandbox, "echo", "fine")["stdout"], "fine\n")


if __name__ == "__main__":
    unittest.main()
