"""Strays on real QEMU with the embedded driver: found and removed with the daemon up and down, and nothing else is."""
import contextlib
import json
import pathlib
import sqlite3
import subprocess
import unittest

from paddock import Daemon, SystemTest, wait_for

GRACE_S = 2
CONFIG = f"[network]\ndefault = none\n[limits]\nstray_grace = {GRACE_S}\n"


class Strays:
    """`paddockctl strays` with its answer as JSON."""

    def strays(self, *options, expect=(0, 1)):
        done = self.daemon.ctl("strays", "--json", *options)
        self.assertIn(done.returncode, expect, (done, self.daemon.log_tail()))
        answer = json.loads(done.stdout)
        self.assertEqual(done.returncode, 1 if answer["left"] else 0, answer)
        return answer

    def of(self, answer, **fields):
        return [s for s in answer["data"] if all(s[k] == v for k, v in fields.items())]

    def kinds(self, answer):
        return sorted(s["kind"] for s in answer["data"])

    def come_of_age(self, count=None):
        """Waits until nothing is young; the answer."""
        def is_old():
            answer = self.strays()
            return answer if answer["young"] == 0 and (count is None or len(answer["data"]) >= count) else None
        return wait_for(is_old, 30, lambda: f"strays come of age: {self.strays()}", pause=0.3)

    def forget(self, sandbox):
        """Its row is gone, as after the loss of a database."""
        with contextlib.closing(sqlite3.connect(self.daemon.state / "paddock.db")) as db, db:
            db.execute("DELETE FROM sandbox WHERE id = ?", (sandbox,))

    def domain_name(self, sandbox):
        return self.qemu_argument(self.daemon.qemu_pid(sandbox), "guest=").split(",")[0]

    def qemu_argument(self, pid, prefix):
        for argument in pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
            if argument.startswith(prefix):
                return argument[len(prefix):]
        raise AssertionError(f"{pid} has no {prefix}")


class DaemonDown(Strays, unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(CONFIG).start()
        self.addCleanup(self.daemon.close)
        self.client = self.daemon.client()

    def test_every_kind_is_listed_and_then_removed_and_the_living_stay(self):
        lives = self.client.create(name="lives")["id"]
        rowless = self.client.create()["id"]
        lost = self.client.create()["id"]
        account = self.daemon.accounts["tests"]
        root = self.daemon.state / "libvirt"
        lost_name, lost_pid = self.domain_name(lost), self.daemon.qemu_pid(lost)
        instance = lost_name.split("-")[1]
        self.daemon.kill()
        self.forget(rowless)
        self.forget(lost)
        # libvirt forgets a domain whose status file it can't read.
        (root / f"run/qemu/{lost_name}.xml").write_text("<broken")
        dead = "sb_00000000000000000001"
        (self.daemon.state / f"sandboxes/{dead}/disk").mkdir(parents=True)
        (self.daemon.state / "run/00000000000000000002").mkdir()
        (root / f"log/qemu/paddock-{instance}-{dead}.log").write_text("")
        (root / f"lib/qemu/domain-77-paddock-{instance}-sb_").mkdir()
        (root / f"lib/qemu/channel/target/domain-77-paddock-{instance}-sb_").mkdir()
        (root / "lib/qemu/qmp-ABCDEF").mkdir()
        foreign = [root / "log/qemu/other.log", root / f"log/qemu/paddock-00000000-{dead}.log",
                   root / "lib/qemu/domain-78-paddock-00000000-sb_", self.daemon.state / "run/else",
                   self.daemon.state / "sandboxes/else"]
        for path in foreign:
            path.mkdir()

        before = set(self.daemon.qemu_pids())
        answer = self.come_of_age()
        self.assertEqual([s["id"] for s in self.of(answer, kind="domain")], [rowless])
        self.assertEqual([s["id"] for s in self.of(answer, kind="process")], [lost])
        self.assertEqual([s["id"] for s in self.of(answer, kind="disk")], [dead])
        self.assertEqual([s["what"] for s in self.of(answer, kind="sockets")], ["run/00000000000000000002"])
        self.assertIn(f"log/qemu/paddock-{instance}-{dead}.log", [s["what"] for s in self.of(answer, kind="log")])
        self.assertLessEqual({f"lib/qemu/domain-77-paddock-{instance}-sb_", "lib/qemu/qmp-ABCDEF",
                              f"lib/qemu/channel/target/domain-77-paddock-{instance}-sb_",
                              f"run/qemu/{lost_name}.xml"},
                             {s["what"] for s in self.of(answer, kind="leftover")})
        self.assertFalse(self.of(answer, id=lives), answer)
        for stray in answer["data"]:
            self.assertGreaterEqual(stray["age_seconds"], GRACE_S)
            self.assertTrue(stray["reason"])
        self.assertEqual(self.of(answer, kind="domain")[0]["account"], account)
        # Looking changed nothing.
        self.assertEqual(set(self.daemon.qemu_pids()), before)

        answer = self.strays("--reap", expect=(0,))
        self.assertEqual(answer["reaped"], len(answer["data"]), answer)
        # What became of age with its domain gone.
        wait_for(lambda: not self.strays("--reap")["data"] and self.strays()["young"] == 0, 30,
                 lambda: f"nothing is left: {self.strays()}", pause=0.5)
        self.assertTrue(self.daemon.is_gone(rowless), self.daemon.leftovers(rowless))
        self.assertTrue(self.daemon.is_gone(lost), self.daemon.leftovers(lost))
        self.assertFalse(pathlib.Path(f"/proc/{lost_pid}/cmdline").exists() and lost_pid in self.daemon.qemu_pids())
        self.assertFalse(self.daemon.leftovers(dead.replace("sb_", f"paddock-{instance}-sb_")))
        for path in foreign:
            self.assertTrue(path.exists(), path)

        self.daemon.start_again()
        self.client.port = self.daemon.port
        self.assertEqual(self.client.exec(lives, "echo", "still here")["stdout"], "still here\n")

    def test_an_expired_one_goes_while_no_daemon_runs(self):
        due = self.client.create(timeout_minutes=1)["id"]
        pid = self.daemon.qemu_pid(due)
        self.daemon.kill()
        with contextlib.closing(sqlite3.connect(self.daemon.state / "paddock.db")) as db, db:
            db.execute("UPDATE sandbox SET expires_at = created_at WHERE id = ?", (due,))
        wait_for(lambda: self.of(self.strays(), id=due, reason="it has expired"), 30, "it is listed", pause=0.3)
        self.assertIn(pid, self.daemon.qemu_pids())
        self.assertEqual(self.strays("--reap", expect=(0,))["reaped"], 1)
        self.assertTrue(self.daemon.is_gone(due), self.daemon.leftovers(due))
        self.daemon.start_again()
        self.client.port = self.daemon.port
        self.assertEqual((self.client.get(due)["status"], self.client.get(due)["reason"]), ("deleted", "expired"))

    def test_looking_without_a_daemon_takes_the_lock_and_makes_no_instance(self):
        run = [self.daemon.build / "controlplane/daemon/paddockd", "--strays"]
        with_daemon = subprocess.run([*run, "--config", self.daemon.config_path], capture_output=True, timeout=60)
        self.assertEqual((with_daemon.returncode, with_daemon.stdout), (73, b""))
        self.assertIn(b"another paddockd", with_daemon.stderr)
        nowhere = self.daemon.directory / "nowhere"
        done = subprocess.run([*run, "--set", f"state.dir={nowhere}"], capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 66, done)
        self.assertFalse(nowhere.exists())


class DaemonUp(Strays, SystemTest):
    config = CONFIG
    waits = True  # for the daemon's own passes

    def test_strays_are_found_beside_a_daemon_and_it_removes_them_by_itself(self):
        lives = self.client.create()["id"]
        root = self.daemon.state / "libvirt"
        instance = self.domain_name(lives).split("-")[1]
        dead = "sb_00000000000000000001"
        leftovers = [self.daemon.state / f"sandboxes/{dead}/disk", self.daemon.state / "run" / dead[3:],
                     root / f"lib/qemu/domain-77-paddock-{instance}-sb_"]
        for path in leftovers:
            path.mkdir(parents=True)
        log = root / f"log/qemu/paddock-{instance}-{dead}.log"
        log.write_text("x")
        self.assertGreaterEqual(self.strays()["young"], 3)
        self.assertTrue(all(p.exists() for p in leftovers))
        # Without being asked: with the pass after the grace period.
        wait_for(lambda: not any(p.exists() for p in [*leftovers, log]), 45, "the daemon removes them")
        self.assertEqual(self.strays()["data"], [])
        self.assertEqual(self.client.exec(lives, "echo", "here")["stdout"], "here\n")
        self.client.destroy(lives)
        self.assertTrue(self.daemon.is_gone(lives), self.daemon.leftovers(lives))

    def test_a_qemu_that_libvirt_has_lost_ends_with_its_sandbox(self):
        lost = self.client.create()["id"]
        name, pid = self.domain_name(lost), self.daemon.qemu_pid(lost)
        self.daemon.kill()
        (self.daemon.state / f"libvirt/run/qemu/{name}.xml").write_text("<broken")
        self.daemon.start_again()
        self.client.port = self.daemon.port
        wait_for(lambda: self.client.get(lost)["status"] == "deleted", 30, "its record has ended")
        self.assertEqual(self.client.get(lost)["reason"], "lost")
        wait_for(lambda: pid not in self.daemon.qemu_pids(), 10, "its process is gone")
        wait_for(lambda: self.daemon.is_gone(lost), 60, lambda: self.daemon.leftovers(lost))

    def test_an_orphaned_probe_is_ended_and_others_are_not(self):
        root = self.daemon.state / "libvirt"
        orphans = []
        for path in (root, pathlib.Path(f"{root}2"), pathlib.Path(f"{root}/../libvirt-old")):
            directory = path / "lib/qemu/qmp-ABCDEF"
            directory.mkdir(parents=True)
            # As libvirt asks QEMU what it can do.
            orphans.append(subprocess.Popen(
                ["qemu-system-x86_64", "-S", "-no-user-config", "-nodefaults", "-nographic", "-machine",
                 "none,accel=tcg", "-qmp", f"unix:{directory}/qmp.monitor,server=on,wait=off"],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            self.addCleanup(orphans[-1].wait)
            self.addCleanup(orphans[-1].kill)
        self.assertGreater(self.strays()["young"], 0)
        self.assertIsNone(orphans[0].poll())
        self.assertEqual(wait_for(orphans[0].poll, 45, "the orphan is ended"), -9)
        wait_for(lambda: not (root / "lib/qemu/qmp-ABCDEF").exists(), 45, "its directory goes")
        self.assertEqual([o.poll() for o in orphans[1:]], [None, None])
        self.assertEqual(self.strays()["data"], [])


if __name__ == "__main__":
    unittest.main()
