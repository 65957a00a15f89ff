"""The same under qemu:///system, as the installed service has it."""
import contextlib
import os
import pathlib
import signal
import subprocess
import unittest

from paddock import Daemon, wait_for


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


if __name__ == "__main__":
    unittest.main()
