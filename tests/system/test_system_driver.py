"""The same under qemu:///system, as the installed service has it."""
import contextlib
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import tempfile
import time
import unittest
import uuid

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
            if not self.is_running(self.pid_file(name), name):
                self.start(name)
                self.started.append(name)

    @staticmethod
    def pid_file(name):
        return pathlib.Path(f"/run/{name}.pid")

    def pid(self, name="libvirtd"):
        return int(self.pid_file(name).read_text())

    def start(self, name="libvirtd"):
        if pathlib.Path("/run/systemd/system").exists():
            subprocess.run(["systemctl", "start", name], check=True, timeout=60)
        else:
            subprocess.run([f"/usr/sbin/{name}", "-d"], check=True, timeout=60)
        wait_for(lambda: self.is_running(self.pid_file(name), name), 30, f"{name} runs")

    def stop(self, how=signal.SIGTERM, name="libvirtd"):
        """For good: where systemd would start it again with the next connection, its sockets go first."""
        pid = self.pid(name)
        if pathlib.Path("/run/systemd/system").exists():
            sockets = [f"{name}{kind}.socket" for kind in ("", "-ro", "-admin")]
            subprocess.run(["systemctl", "stop", *sockets], check=True, timeout=60)
            subprocess.run(["systemctl", "kill", f"--signal={int(how)}", name], check=True, timeout=60)
        else:
            os.kill(pid, how)
        wait_for(lambda: not self.runs(pid, name), 30, f"{name} has ended")

    @staticmethod
    def runs(pid, name):
        with contextlib.suppress(OSError):
            return name in pathlib.Path(f"/proc/{pid}/comm").read_text() and \
                "\nState:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
        return False

    @classmethod
    def is_running(cls, pid_file, name):
        with contextlib.suppress(OSError, ValueError):
            return cls.runs(int(pid_file.read_text()), name)
        return False

    def close(self):
        for name in reversed(self.started):
            if self.is_running(self.pid_file(name), name):
                self.stop(name=name)


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

    FOREIGN = """<domain type='qemu'><name>{name}</name><uuid>{uuid}</uuid><memory unit='MiB'>32</memory>
        <os><type arch='x86_64' machine='q35'>hvm</type></os>
        <metadata>{metadata}</metadata>
        <devices><memballoon model='none'/></devices></domain>"""

    def foreign_domain(self, name, metadata=""):
        """A paused domain that somebody else made."""
        xml = self.FOREIGN.format(name=name, uuid=uuid.uuid4(), metadata=metadata)
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write(xml)
            file.flush()
            self.virsh("create", file.name, "--paused")
        self.addCleanup(self.virsh, "destroy", name)

    @staticmethod
    def virsh(*args):
        return subprocess.run(["virsh", "-c", "qemu:///system", *args], check=True, capture_output=True, text=True,
                              timeout=60).stdout

    @staticmethod
    def strays(daemon, *options):
        done = daemon.ctl("strays", "--json", *options)
        answer = json.loads(done.stdout)
        if done.returncode != (1 if answer["left"] else 0):
            raise AssertionError(f"{done}")
        return answer

    def test_instances_do_not_touch_each_others_and_foreign_domains(self):
        daemons = LibvirtDaemons()
        self.addCleanup(daemons.close)
        config = "[network]\ndefault = none\n[limits]\nstray_grace = 1\n"
        one, two = (Daemon(config, uri="qemu:///system").start() for _ in range(2))
        self.addCleanup(one.close)
        self.addCleanup(two.close)
        mine = one.client().create()["id"]
        theirs = two.client().create()["id"]
        names = self.virsh("list", "--name").split()
        prefix = next(n for n in names if n.endswith(mine))[:-len(mine)]
        # Our name without our mark; and a mark that isn't one.
        similar = [f"{prefix}sb_00000000000000000001", f"{prefix}sb_00000000000000000002", "paddock-else"]
        self.foreign_domain(similar[0])
        self.foreign_domain(similar[1], "<p:sandbox xmlns:p='urn:paddock:domain' format='1' instance='0' id='x'/>")
        self.foreign_domain(similar[2])

        def check(answer, others):
            self.assertFalse([s for s in answer["data"] if not s["instance"]], answer)
            self.assertEqual([s["id"] for s in answer["data"]], others)
            self.assertLessEqual({*similar, *names}, set(self.virsh("list", "--name").split()))

        for _ in range(2):
            time.sleep(1)  # past the grace period
            check(self.strays(one, "--reap"), [])
            check(self.strays(one, "--all-instances", "--reap"), [theirs])
            check(self.strays(two, "--all-instances", "--reap"), [mine])
        # The one without its daemon, which then has lost a row: only its own goes.
        one.kill()
        check(self.strays(one, "--all-instances", "--reap"), [theirs])
        with contextlib.closing(sqlite3.connect(one.state / "paddock.db")) as db, db:
            db.execute("DELETE FROM sandbox")
        found = wait_for(lambda: [s for s in self.strays(one)["data"] if s["kind"] == "domain"], 30, "it is a stray")
        self.assertEqual([s["id"] for s in found], [mine])
        check(self.strays(two, "--all-instances", "--reap"), [mine])
        self.assertEqual(self.strays(one, "--all-instances", "--reap")["left"], 0)
        left = set(self.virsh("list", "--name").split())
        self.assertLessEqual({*similar, *(n for n in names if n.endswith(theirs))}, left)
        self.assertFalse([n for n in left if n.endswith(mine)])
        self.assertTrue(one.is_gone(mine), one.leftovers(mine))
        self.assertFalse(list(pathlib.Path("/var/log/libvirt/qemu").glob(f"*{mine}*")))
        self.assertEqual(two.client().exec(theirs, "echo", "here")["stdout"], "here\n")
        one.start_again()


if __name__ == "__main__":
    unittest.main()
