"""The host's disk is full: at a creation, and while a guest writes."""
import concurrent.futures
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

from paddock import HOOKS_BUILD, SCRATCH, Daemon, wait_for

CONFIG = "[network]\ndefault = none\n[log]\nlevel = debug\n"
MIB = 1 << 20


class SmallDisk:
    """A file system of its own for a state directory, with a file that takes up its room."""

    def __init__(self, mib):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="pd-full-", dir=SCRATCH))
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}M,mode=0711", "paddock-test", self.path],
                       check=True, timeout=30)
        self.filler = self.path / "filler"

    def free(self):
        stat = os.statvfs(self.path)
        return stat.f_bavail * stat.f_frsize

    def fill(self, but=0):
        """Leaves at most so many bytes; guest and database go on writing meanwhile."""
        with open(self.filler, "ab") as file:
            while (wanted := self.free() - but) > 0:
                with contextlib.suppress(OSError):  # somebody was faster
                    os.posix_fallocate(file.fileno(), file.tell(), wanted)
                file.seek(0, os.SEEK_END)

    def make_room(self):
        self.filler.unlink()

    def close(self):
        subprocess.run(["umount", "-l", self.path], check=False, timeout=30)
        self.path.rmdir()


class DiskFull(unittest.TestCase):
    waits = True

    @classmethod
    def setUpClass(cls):
        cls.disk = SmallDisk(700)
        try:
            cls.daemon = Daemon(CONFIG, HOOKS_BUILD, state=cls.disk.path / "s").start()
            cls.client = cls.daemon.client()
        except BaseException:
            cls.disk.close()
            raise

    @classmethod
    def tearDownClass(cls):
        cls.disk.filler.unlink(missing_ok=True)
        cls.daemon.close()
        cls.disk.close()

    def tearDown(self):
        self.disk.filler.unlink(missing_ok=True)
        for row in self.client.call("GET", "/v1/sandboxes").json["data"]:
            self.client.destroy(row["id"])

    def names(self):
        return sorted(p.name for p in (self.daemon.state / "sandboxes").iterdir())

    def slowest_look(self, sandbox):
        slowest = 0
        for path in (f"/v1/sandboxes/{sandbox}", "/v1/sandboxes") * 5:
            start = time.monotonic()
            self.assertEqual(self.client.call("GET", path).status, 200)
            slowest = max(slowest, time.monotonic() - start)
        return slowest

    def test_a_creation_without_any_room_fails_and_leaves_nothing(self):
        before = self.names()
        self.disk.fill()
        started = time.monotonic()
        answer = self.client.call("POST", "/v1/sandboxes", {"size": "tiny", "image": "minimal"})
        self.assertEqual((answer.status, answer.error[0]), (503, "unavailable"), answer)
        self.assertLess(time.monotonic() - started, 60)
        print(f"      {answer.error[1]}")
        self.disk.make_room()
        wait_for(lambda: self.names() == before, 30, lambda: f"nothing is left: {self.names()}")
        self.assertEqual(self.client.call("GET", "/v1/sandboxes").json["data"], [])
        sandbox = self.client.create()["id"]
        self.assertEqual(self.client.exec(sandbox, "echo", "fine")["stdout"], "fine\n")
        self.client.destroy(sandbox)

    def test_a_creation_that_runs_out_of_room_goes_on_once_there_is_some(self):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            creation = pool.submit(self.client.call, "POST", "/v1/sandboxes", {"size": "tiny", "image": "minimal"})
            # Its first boot writes to the disk, a second or two from here.
            wait_for(lambda: "point=create.channel" in self.daemon.log_tail(100), 30, "it boots")
            self.disk.fill()
            wait_for(lambda: "is paused by the host" in self.daemon.log_tail(100), 25,
                     lambda: f"it is paused: {creation} {creation.done() and creation.result()}", pause=0.1)
            self.assertFalse(creation.done())
            self.disk.make_room()
            answer = creation.result()
        self.assertEqual(answer.status, 201, answer)
        self.assertEqual(self.client.exec(answer.json["id"], "echo", "fine")["stdout"], "fine\n")
        self.client.destroy(answer.json["id"])
        self.assertTrue(self.daemon.is_gone(answer.json["id"]))

    def test_a_daemon_killed_on_a_full_disk_loses_nothing(self):
        sandbox = self.client.create(temporary=False)["id"]
        self.client.shell(sandbox, "echo kept >/workspace/f; sync")
        pid = self.daemon.qemu_pid(sandbox)
        self.disk.fill()
        self.daemon.kill()
        begin = self.daemon.log_path.stat().st_size
        # It may well not become ready before there is room: libvirt writes to that disk, too.
        self.daemon.supervisor.send_signal(signal.SIGHUP)
        wait_for(lambda: re.search(r"hypervisor not available|sandboxes from before are checked",
                                   self.daemon.log_since(begin)), 30, self.daemon.log_tail, pause=0.1)
        self.disk.make_room()
        self.daemon.wait_ready()
        self.client.port = self.daemon.port
        self.assertEqual(self.daemon.qemu_pid(sandbox), pid)
        wait_for(lambda: self.client.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "true"}).status == 200,
                 30, "it answers", pause=0.2)
        self.assertEqual(self.client.shell(sandbox, "cat /workspace/f")["stdout"], "kept\n")
        self.client.destroy(sandbox)
        self.assertTrue(self.daemon.is_gone(sandbox), self.daemon.leftovers(sandbox))

    def test_a_guest_that_fills_the_disk_is_paused_and_goes_on_once_there_is_room(self):
        client = self.client
        sandbox = client.create(temporary=False)["id"]
        client.shell(sandbox, "echo before >/workspace/before; sync")
        self.disk.fill(but=30 * MIB)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            started = time.monotonic()
            waiting = pool.submit(client.call, "POST", f"/v1/sandboxes/{sandbox}/exec",
                                  {"command": "sleep 1000", "timeout_ms": 12000})
            writing = pool.submit(client.call, "POST", f"/v1/sandboxes/{sandbox}/exec",
                                  {"command": "head -c 300M /dev/zero >/workspace/big; sync; echo done",
                                   "timeout_ms": 300000})
            record = wait_for(lambda: (client.get(sandbox)["reason"] and client.get(sandbox)), 60, "it is paused",
                              pause=0.1)
            self.assertEqual(record["status"], "running", record)
            self.assertIn("paused", record["reason"])
            print(f"      paused after {time.monotonic() - started:.1f} s")
            # Everything answers, and soon.
            started = time.monotonic()
            answer = client.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "true"})
            self.assertEqual((answer.status, answer.error[0]), (503, "unavailable"), answer)
            self.assertIn("paused", answer.error[1])
            self.assertIn("Retry-After", answer.headers)
            self.assertLess(time.monotonic() - started, 1)
            self.assertLess(self.slowest_look(sandbox), 1)
            answer = client.call("POST", f"/v1/sandboxes/{sandbox}/extend", {"minutes": 1})
            self.assertGreaterEqual(answer.status, 400, answer)
            # The guest's clock stands, and with it what bounds a command; the host's doesn't.
            answer = waiting.result(40)
            print(f"      a command of 12 s is answered after {time.monotonic() - started:.1f} s")
            self.assertEqual((answer.status, answer.error[0]), (503, "unavailable"), answer)
            self.assertIn("paused", answer.error[1])
            self.assertIsNotNone(self.daemon.qemu_pid(sandbox))
            self.assertFalse(writing.done())
            self.disk.make_room()
            started = time.monotonic()
            wait_for(lambda: client.get(sandbox)["reason"] is None, 15, lambda: f"it goes on: {client.get(sandbox)}")
            print(f"      goes on after {time.monotonic() - started:.1f} s")
            # The command noticed nothing.
            answer = writing.result(60)
            self.assertEqual((answer.status, answer.json["stdout"]), (200, "done\n"), answer)
        wait_for(lambda: client.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "true"}).status == 200, 15,
                 "it answers")
        self.assertEqual(client.shell(sandbox, "cat /workspace/before; wc -c </workspace/big")["stdout"],
                         f"before\n{300 * MIB}\n")
        # Its clock stood, and is put right.
        wait_for(lambda: abs(client.clock_ahead(sandbox)[0]) < 0.1, 30, "it knows the time", pause=1)
        self.assertEqual(client.call("POST", f"/v1/sandboxes/{sandbox}/restart", {}).status, 200)
        self.assertEqual(client.shell(sandbox, "cat /workspace/before")["stdout"], "before\n")
        client.destroy(sandbox)
        self.assertTrue(self.daemon.is_gone(sandbox), self.daemon.leftovers(sandbox))


if __name__ == "__main__":
    unittest.main()
