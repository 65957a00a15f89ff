"""kill -9 and other faults at the named points of every plan (controlplane/base/fault.h), with real QEMU.

A sample in every run, all points in the long form. tests/component/test-sandbox-faults.c does the same with fakes.
"""
import contextlib
import http.client
import json
import re
import time
import unittest

from paddock import HOOKS_BUILD, Daemon, long_form, wait_for

CONFIG = "[network]\ndefault = none\n[limits]\nstray_grace = 1\n[log]\nlevel = debug\n"
NAME = "it"
KEY = {"Idempotency-Key": "once"}
BODY = {"size": "tiny", "image": "minimal", "name": NAME, "temporary": False}
# What each does, and a fault that makes it turn round on the way.
ACTS = ("create", "restart", "reset", "destroy")
TURNS = {"create": ("create.configure:fail",), "restart": ("restart.configure:fail",),
         "reset": ("reset.prepare:fail", "reset.configure:fail"), "destroy": ()}
# Without having passed these nothing of an act is done, and a failure changes nothing.
BEGINNINGS = ("row.insert", "row.provisioning", "row.deleting", "reset.prepare")
SAMPLE = (("create", "create.domain.done"), ("create", "create.configure"), ("create", "row.running.done"),
          ("restart", "restart.stop.done"), ("reset", "reset.swap"), ("destroy", "row.deleting.done"),
          ("destroy", "destroy.domain"))


class Rig:
    """A daemon, and the one sandbox that things are done to."""

    def __init__(self):
        self.daemon = Daemon(CONFIG, HOOKS_BUILD).start()
        self.client = self.daemon.client()
        self.key = 0

    def restart_daemon(self, faults):
        if self.daemon.pid_file.exists():
            self.daemon.terminate()
        self.daemon.set_faults(faults)
        self.daemon.start_again()
        self.client.port = self.daemon.port

    def act(self, act):
        """Its answer; None where the daemon died of it."""
        calls = {"create": ("POST", "", BODY, {"Idempotency-Key": f"once-{self.key}"}),
                 "restart": ("POST", f"/{NAME}/restart", {}, None),
                 "reset": ("POST", f"/{NAME}/reset", {}, None),
                 "destroy": ("DELETE", f"/{NAME}", None, None)}
        method, path, body, headers = calls[act]
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.client.call(method, f"/v1/sandboxes{path}", body, headers=headers)
        return None

    def find(self):
        """The live record of the sandbox, or None."""
        answer = self.client.call("GET", f"/v1/sandboxes/{NAME}")
        return answer.json if answer.status == 200 and answer.json["status"] not in ("deleted", "failed") else None

    def make(self):
        """A sandbox with a file that has reached its disk."""
        self.key += 1
        if not self.find():
            answer = self.act("create")
            if not answer or answer.status != 201:
                raise AssertionError(f"create: {answer}")
        if self.find()["status"] == "stopped":
            self.again("restart")
        self.client.shell(NAME, "echo kept >/workspace/mark; sync")

    def again(self, act):
        answer = self.act(act)
        if not answer or answer.status != 200:
            raise AssertionError(f"{act}: {answer}")

    def settle(self):
        """Waits until nothing goes on; the record that is left."""
        def is_settled():
            record = self.find()
            return not record or record["status"] in ("running", "stopped")
        wait_for(is_settled, 60, lambda: f"it settles: {self.find()} {self.daemon.log_tail(30)}", pause=0.1)
        return self.find()

    def has_mark(self):
        return self.client.shell(NAME, "cat /workspace/mark")["stdout"] == "kept\n"

    def check_real(self, record):
        """Just what the record says is there: processes, disks, sockets, and nothing astray."""
        ids = [record["id"]] if record else []
        runs = ids if record and record["status"] == "running" else []
        wait_for(lambda: len(self.daemon.qemu_pids()) == len(runs), 10,
                 lambda: f"processes: {self.daemon.qemu_pids()} for {runs}")
        for sandbox in runs:
            if not self.daemon.qemu_pid(sandbox):
                raise AssertionError(f"{sandbox} has no process")
        listed = self.client.call("GET", "/v1/sandboxes?status=live").json["data"]
        if [row["id"] for row in listed] != ids:
            raise AssertionError(f"listed: {listed}")

        def names(directory):
            return sorted(entry.name for entry in (self.daemon.state / directory).iterdir() if entry.is_dir())
        wait_for(lambda: names("sandboxes") == ids, 10, lambda: f"disks: {names('sandboxes')} for {ids}")
        bare = [{i.removeprefix("sb_") for i in some} for some in (runs, ids)]
        wait_for(lambda: bare[0] <= set(names("run")) <= bare[1], 10, lambda: f"sockets: {names('run')}")

        def strays():
            return json.loads(self.daemon.ctl("strays", "--json").stdout)
        wait_for(lambda: strays()["left"] + strays()["young"] == 0, 30, lambda: f"strays: {strays()}", pause=0.3)

    def check_usable(self, record):
        """Whatever has been interrupted: it can be gone on with."""
        if record and record["status"] == "stopped":
            self.again("restart")
        if record:
            self.assert_runs()

    def assert_runs(self):
        if self.client.exec(NAME, "echo", "here")["stdout"] != "here\n":
            raise AssertionError("exec")


class Faults(unittest.TestCase):
    waits = True

    @classmethod
    def setUpClass(cls):
        cls.rig = Rig()

    @classmethod
    def tearDownClass(cls):
        cls.rig.daemon.close()

    # -- what must hold

    def prepare(self, act):
        """As it is before the act."""
        rig = self.rig
        if act == "create":
            rig.key += 1
            if rig.find():
                rig.again("destroy")
        else:
            rig.make()

    def check_after_kill(self, act, point, turned):
        """Nothing stranded, nothing lost, nothing twice."""
        rig = self.rig
        record = rig.settle()
        began = point not in BEGINNINGS[:3]
        if act == "create":
            # Answered or not: what once was running stays, anything else was taken back.
            self.assertEqual(record is not None, point in ("row.running.done", "create.record.done"), record)
            replay = rig.act("create")
            self.assertIn(replay.status, (200, 201), replay)
            if record:
                self.assertEqual((replay.status, replay.json["id"]), (200, record["id"]))
            record = rig.find()
        elif act == "destroy":
            self.assertEqual(record is None, began, record)
        else:
            self.assertIsNotNone(record)
            if not turned:
                self.assertEqual(record["status"], "running", record)
        rig.check_real(record)
        rig.check_usable(record)
        if act == "restart" or (record and act != "create" and not began):
            self.assertTrue(rig.has_mark())
        elif act == "reset" and not turned:
            self.assertFalse(rig.has_mark())

    def die_at(self, act, point, turn=None):
        rig = self.rig
        self.prepare(act)
        rig.restart_daemon(f"{point}:kill" + (f",{turn}" if turn else ""))
        rig.act(act)
        rig.daemon.wait_dead(60)
        rig.restart_daemon("")
        self.check_after_kill(act, point, turn)

    def trace(self, act, faults=""):
        """The points that it passes."""
        rig = self.rig
        self.prepare(act)
        rig.restart_daemon(faults)
        begin = rig.daemon.log_path.stat().st_size
        rig.act(act)
        rig.settle()
        points = re.findall(r"fault point(?: rq=\S+)? point=(\S+)", rig.daemon.log_since(begin))
        self.assertGreater(len(points), 3, points)
        return list(dict.fromkeys(points))

    # -- the tests

    def test_a_kill_is_repaired(self):
        for act, point in SAMPLE:
            with self.subTest(act=act, point=point):
                started = time.monotonic()
                self.die_at(act, point)
                print(f"      {act} killed at {point}: {time.monotonic() - started:.1f} s")

    @long_form
    def test_a_kill_at_any_point_is_repaired(self):
        for act in ACTS:
            for turn in (None, *TURNS[act]):
                points = self.trace(act, turn or "")
                print(f"      {act} {turn or ''}: {len(points)} points")
                for point in points:
                    with self.subTest(act=act, point=point, turn=turn):
                        self.die_at(act, point, turn)

    def fail_at(self, act, fault):
        rig = self.rig
        self.prepare(act)
        rig.restart_daemon(fault)
        begin = rig.daemon.log_path.stat().st_size
        answer = rig.act(act)
        self.assertIsNotNone(answer, fault)
        point = re.escape(fault.partition(":")[0])
        self.assertRegex(rig.daemon.log_since(begin), rf"fault(?: rq=\S+)? point={point}\s")
        if answer.status >= 400:
            self.assertIn(answer.error[0], ("internal", "timeout", "unavailable"), answer)
        record = rig.settle()
        if act == "create":
            self.assertEqual(record is not None, answer.status == 201, answer)
        if act in ("restart", "reset"):
            self.assertIsNotNone(record, answer)
            # Or it never began.
            is_fine = record["status"] == "running" and not record["reason"]
            self.assertEqual(answer.status == 200 or fault.startswith(BEGINNINGS), is_fine, f"{answer} {record}")
        if act == "destroy":
            wait_for(lambda: not rig.find(), 30, "it is removed all the same")
            record = None
        rig.check_real(record)
        rig.check_usable(record)
        if act == "restart":
            self.assertTrue(rig.has_mark())

    def test_what_fails_or_hangs_leaves_nothing(self):
        faults = [("create", "create.domain:fail"), ("create", "create.configure:hang"),
                  ("restart", "restart.domain:hang"), ("reset", "reset.swap:fail"),
                  ("destroy", "destroy.domain:hang"), ("create", "create.domain.done:fail"),
                  ("destroy", "destroy.disk:fail")]
        for act, fault in faults:
            with self.subTest(act=act, fault=fault):
                self.fail_at(act, fault)

    @long_form
    def test_what_fails_or_hangs_anywhere_leaves_nothing(self):
        for act in ACTS:
            for point in self.trace(act):
                for action in ("fail", "hang"):
                    # Only a step itself can hang, and once the row says running all is told and over.
                    if action == "hang" and re.search(r"^row|\.done$|\.record$", point):
                        continue
                    if point.endswith("record.done"):
                        continue
                    with self.subTest(act=act, point=point, action=action):
                        self.fail_at(act, f"{point}:{action}")


if __name__ == "__main__":
    unittest.main()
