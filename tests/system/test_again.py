"""Restart and reset on real QEMU; QEMU killed and disks deleted from outside."""
import concurrent.futures
import contextlib
import datetime
import os
import signal
import time

from paddock import SystemTest, wait_for


def due(record):
    return datetime.datetime.fromisoformat(record["expires_at"].replace("Z", "+00:00")).timestamp()


class AgainTest(SystemTest):
    config = "[network]\ndefault = none\n"

    def post(self, sandbox, what, expect=200):
        answer = self.client.call("POST", f"/v1/sandboxes/{sandbox}/{what}", {})
        self.assertEqual(answer.status, expect, answer)
        return answer

    def read(self, sandbox, path="/workspace/f"):
        return self.client.shell(sandbox, f"cat {path}")["stdout"]

    def paddockctl(self, *args, expect=0):
        done = self.daemon.ctl(*args, key=self.client.key)
        self.assertEqual(done.returncode, expect, done)
        return done.stdout.decode()

    def overlay(self, sandbox):
        return next(self.daemon.state.glob(f"sandboxes/*{sandbox}*/**/*.qcow2"))


class Again(AgainTest):
    def test_a_restart_keeps_the_disk_and_a_reset_makes_a_new_one(self):
        record = self.client.create(timeout_minutes=10, metadata={"k": "v"}, env={"WORD": "set"})
        sandbox = record["id"]
        boot = self.read(sandbox, "/proc/sys/kernel/random/boot_id")
        # Nobody says sync: who restarts gets what he wrote.
        self.client.shell(sandbox, "echo kept >/workspace/f; echo gone >/tmp/f; sleep 1000 &")
        pid = self.daemon.qemu_pid(sandbox)
        started = time.monotonic()
        after = self.post(sandbox, "restart").json
        print(f"      restart: {time.monotonic() - started:.1f} s")
        self.assertEqual((after["id"], after["status"], after["reason"], after["expires_at"], after["metadata"]),
                         (sandbox, "running", None, record["expires_at"], {"k": "v"}))
        self.assertNotEqual(self.daemon.qemu_pid(sandbox), pid)
        self.assertEqual(len(self.daemon.qemu_pids()), 1)
        self.assertNotEqual(self.read(sandbox, "/proc/sys/kernel/random/boot_id"), boot)
        self.assertEqual(self.read(sandbox), "kept\n")
        self.assertEqual(self.client.shell(sandbox, "echo $WORD; hostname; cat /proc/[0-9]*/comm | grep -c sleep")["stdout"],
                         f"set\n{sandbox.replace('_', '-')}\n0\n")

        overlay = self.overlay(sandbox).stat()
        started = time.monotonic()
        after = self.post(sandbox, "reset").json
        print(f"      reset: {time.monotonic() - started:.1f} s")
        self.assertEqual((after["id"], after["status"], after["expires_at"]),
                         (sandbox, "running", record["expires_at"]))
        self.assertNotEqual(self.overlay(sandbox).stat().st_ino, overlay.st_ino)
        out = self.client.shell(sandbox, "ls /workspace | wc -l; echo $WORD; df -B1 --output=size / | tail -n 1")
        self.assertEqual(out["stdout"].split()[:2], ["0", "set"])
        self.assertGreaterEqual(int(out["stdout"].split()[2]), 2e9 * 0.9)
        self.client.shell(sandbox, "echo new >/workspace/f")

        # The new disk is a disk as good as the first.
        self.post(sandbox, "restart")
        self.assertEqual(self.read(sandbox), "new\n")
        self.client.destroy(sandbox)
        self.assertTrue(self.daemon.is_gone(sandbox), self.daemon.leftovers(sandbox))

    def test_paddockctl_restarts_and_resets(self):
        sandbox = self.client.create(name="ctl")["id"]
        self.client.shell(sandbox, "echo kept >/workspace/f")
        self.assertIn("running", self.paddockctl("restart", "ctl"))
        self.assertEqual(self.read(sandbox), "kept\n")
        self.assertIn("running", self.paddockctl("reset", sandbox))
        self.assertEqual(self.client.shell(sandbox, "ls /workspace")["stdout"], "")
        self.paddockctl("destroy", "ctl")
        self.paddockctl("restart", "ctl", expect=66)
        self.assertTrue(self.daemon.is_gone(sandbox), self.daemon.leftovers(sandbox))

    def test_a_restart_ends_what_is_under_way_with_its_name(self):
        sandbox = self.client.create()["id"]
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            running = pool.submit(self.client.call, "POST", f"/v1/sandboxes/{sandbox}/exec",
                                  {"command": "echo begun >/workspace/f; sleep 100"})
            wait_for(lambda: self.client.shell(sandbox, "cat /workspace/f || true")["stdout"], 20, "it has begun")
            first, second = [pool.submit(self.client.call, "POST", f"/v1/sandboxes/{sandbox}/restart", {})
                             for _ in range(2)]
            answer = running.result()
            self.assertEqual((answer.status, answer.error[0]), (409, "conflict"), answer)
            self.assertIn("restarted", answer.error[1])
            # Of two, one is done.
            self.assertEqual(sorted(a.result().status for a in (first, second)), [200, 409])
        self.assertEqual(self.read(sandbox), "begun\n")
        self.assertEqual(len(self.daemon.qemu_pids()), 1)
        self.client.destroy(sandbox)

    def test_a_destroy_during_a_restart_wins(self):
        sandbox = self.client.create()["id"]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            restart = pool.submit(self.client.call, "POST", f"/v1/sandboxes/{sandbox}/restart", {})
            wait_for(lambda: self.client.get(sandbox)["status"] == "provisioning", 10, "the restart begins")
            self.assertEqual(self.client.destroy(sandbox)["status"], "deleted")
            answer = restart.result()
            self.assertEqual((answer.status, answer.error[0]), (409, "sandbox_ended"), answer)
        self.assertTrue(self.daemon.is_gone(sandbox), self.daemon.leftovers(sandbox))

    def test_a_permanent_one_whose_qemu_is_killed_stops_and_starts_again(self):
        sandbox = self.client.create(temporary=False)["id"]
        self.client.shell(sandbox, "echo synced >/workspace/f; sync")
        os.kill(self.daemon.qemu_pid(sandbox), signal.SIGKILL)
        wait_for(lambda: self.client.get(sandbox)["status"] == "stopped", 15, "it stops")
        self.assertEqual(self.client.get(sandbox)["reason"], "lost")
        answer = self.client.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "true"})
        self.assertEqual((answer.status, answer.error[0]), (409, "conflict"), answer)
        self.assertTrue(self.overlay(sandbox).exists())
        self.assertIsNone(self.post(sandbox, "restart").json["reason"])
        self.assertEqual(self.read(sandbox), "synced\n")
        # One that powered itself off says so, and starts as well.
        os.kill(self.daemon.qemu_pid(sandbox), signal.SIGTERM)
        wait_for(lambda: self.client.get(sandbox)["status"] == "stopped", 15, "it stops")
        self.post(sandbox, "restart")
        self.assertEqual(self.read(sandbox), "synced\n")
        self.client.destroy(sandbox)
        self.assertTrue(self.daemon.is_gone(sandbox), self.daemon.leftovers(sandbox))

    def libvirt_pid(self, sandbox):
        """Unlike a look at command lines this knows no process that has yet to fork into the final one."""
        for path in self.daemon.state.rglob(f"*{sandbox}.pid"):
            with contextlib.suppress(OSError, ValueError):
                return int(path.read_text())
        return None

    def test_qemu_killed_during_a_restart(self):
        sandbox = self.client.create(temporary=False)["id"]
        self.client.shell(sandbox, "echo synced >/workspace/f; sync")
        pid = self.daemon.qemu_pid(sandbox)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            restart = pool.submit(self.client.call, "POST", f"/v1/sandboxes/{sandbox}/restart", {})
            new = wait_for(lambda: self.libvirt_pid(sandbox) not in (None, pid) and self.libvirt_pid(sandbox), 20,
                           "a new one")
            os.kill(new, signal.SIGKILL)
            answer = restart.result()
            self.assertGreaterEqual(answer.status, 500, answer)
        record = self.client.get(sandbox)
        self.assertEqual(record["status"], "stopped", record)
        self.assertIn("restart", record["reason"])
        self.assertEqual(self.daemon.qemu_pids(), [])
        self.post(sandbox, "restart")
        self.assertEqual(self.read(sandbox), "synced\n")
        self.client.destroy(sandbox)


class Diskless(AgainTest):
    waits = True

    def test_a_disk_deleted_under_a_running_one(self):
        sandbox = self.client.create(temporary=False)["id"]
        self.client.shell(sandbox, "echo kept >/workspace/f")
        self.overlay(sandbox).unlink()
        wait_for(lambda: self.client.get(sandbox)["reason"], 45, "its record says so", pause=0.2)
        record = self.client.get(sandbox)
        self.assertEqual(record["status"], "running", record)
        self.assertIn("disk", record["reason"])
        self.assertEqual(self.read(sandbox), "kept\n")
        answer = self.post(sandbox, "restart", expect=409)
        self.assertEqual(answer.error[0], "conflict")
        self.assertIn("reset", answer.error[1])
        self.assertEqual(self.read(sandbox), "kept\n")
        self.assertIsNone(self.post(sandbox, "reset").json["reason"])
        self.assertEqual(self.client.shell(sandbox, "ls /workspace")["stdout"], "")
        self.overlay(sandbox).unlink()
        self.client.destroy(sandbox)
        self.assertTrue(self.daemon.is_gone(sandbox), self.daemon.leftovers(sandbox))


class AgainAndExpiry(SystemTest):
    """What the guest was told of its end, it is told again."""
    waits = True

    def test_expiry_holds_after_a_restart(self):
        record = self.client.create(timeout_minutes=1)
        sandbox = record["id"]
        self.client.call("POST", f"/v1/sandboxes/{sandbox}/restart", {})
        self.assertEqual(self.client.get(sandbox)["expires_at"], record["expires_at"])
        wait_for(lambda: time.time() >= due(record), 90, "the due second")
        wait_for(lambda: self.daemon.is_gone(sandbox), 2.2, "domain, disk and socket are gone")
        self.assertEqual(self.client.get(sandbox)["reason"], "expired")

    def test_the_dead_man_holds_after_a_restart_and_a_reset(self):
        records = [self.client.create(timeout_minutes=1) for _ in range(2)]
        for record, what in zip(records, ("restart", "reset")):
            answer = self.client.call("POST", f"/v1/sandboxes/{record['id']}/{what}", {})
            self.assertEqual(answer.status, 200, answer)
        self.daemon.kill()
        try:
            self.assertLess(time.time(), due(records[0]))
            for record in records:
                wait_for(lambda: self.daemon.qemu_pid(record["id"]) is None, due(record) + 60 - time.time(),
                         "the guest is off within 60 s of its expiry", pause=0.5)
        finally:
            self.daemon.start_again()
