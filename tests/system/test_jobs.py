"""Background commands and terminals on a real guest: what they promise over restarts, losses and ends."""
import contextlib
import json
import sqlite3
import threading
import time
import unittest
import urllib.parse

from paddock import HOOKS_BUILD, Daemon, SystemTest, wait_for
from websocket import Refused, WebSocket


class Jobs:
    """What the classes here do with commands."""

    def start(self, command, **body):
        answer = self.client.call("POST", f"/v1/sandboxes/{self.sandbox}/exec",
                                  {"command": command, "background": True, **body})
        self.assertEqual(answer.status, 202, answer)
        return answer.json["id"]

    def get(self, eid, rest=""):
        answer = self.client.call("GET", f"/v1/sandboxes/{self.sandbox}/exec/{eid}{rest}")
        self.assertEqual(answer.status, 200, answer)
        return answer.json

    def post(self, eid, what, expect=200, **body):
        answer = self.client.call("POST", f"/v1/sandboxes/{self.sandbox}/exec/{eid}/{what}", body)
        self.assertEqual(answer.status, expect, answer)
        return answer.json

    def output(self, eid, offset=0):
        """All that there is from there on."""
        text = ""
        while True:
            piece = self.get(eid, f"/output?offset={offset}")
            text += piece["stdout"]
            if piece["next_offset"] == offset or piece["is_end"]:
                return text
            offset = piece["next_offset"]

    def ended(self, eid):
        record = self.get(eid, "?wait_ms=60000")
        self.assertNotEqual(record["status"], "running", record)
        return record

    def runs(self, what):
        """A process of that command line is there."""
        answer = self.client.shell(self.sandbox, f"pgrep -f '[{what[0]}]{what[1:]}' >/dev/null || "
                                   f"grep -lsa '^{what.split()[0]}' /proc/[0-9]*/cmdline")
        return answer["exit_code"] == 0

    def wait_shown(self, eid, text):
        wait_for(lambda: text in self.output(eid), 30, lambda: f"{text!r} in {self.output(eid)[-300:]!r}", 0.2)


class BackgroundTest(Jobs, SystemTest):
    config = "[network]\ndefault = none\n"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = cls.daemon.client()
        cls.sandbox = cls.client.create()["id"]

    def test_output_exit_and_record(self):
        eid = self.start("printf 'one\\n'; printf 'two\\n' >&2; exit 7")
        record = self.ended(eid)
        self.assertEqual((record["status"], record["exit_code"], record["background"]), ("exited", 7, True))
        piece = self.get(eid, "/output")
        self.assertEqual((piece["stdout"], piece["stderr"], piece["is_end"]), ("one\n", "two\n", True))
        listed = self.client.call("GET", f"/v1/sandboxes/{self.sandbox}/exec").json["data"]
        self.assertIn(eid, [row["id"] for row in listed])

    def test_input_goes_in_until_it_is_closed(self):
        eid = self.start("cat; echo end", keep_stdin=True)
        self.post(eid, "stdin", data="first\n")
        self.assertEqual(self.get(eid, "/output?wait_ms=30000")["stdout"], "first\n")
        raw = bytes(range(256)) * 4096
        answer = self.client.call("POST", f"/v1/sandboxes/{self.sandbox}/exec/{eid}/stdin?close=true", raw=raw)
        self.assertEqual(answer.status, 200, answer)
        self.assertEqual(self.ended(eid)["stdout_bytes"], 6 + len(raw) + 4)

    def test_a_signal_reaches_the_whole_tree(self):
        eid = self.start("trap 'echo got it; exit 3' USR1; echo ready; while :; do sleep 0.1; done")
        self.wait_shown(eid, "ready")
        self.post(eid, "kill", signal="USR1")
        self.assertEqual(self.ended(eid)["exit_code"], 3)
        self.assertIn("got it", self.output(eid))
        eid = self.start("setsid sleep 4321 & sleep 4321")
        wait_for(lambda: self.runs("sleep 4321"), 20, "it runs", 0.3)
        self.post(eid, "kill")
        self.assertEqual(self.ended(eid)["signal"], 9)
        wait_for(lambda: not self.runs("sleep 4321"), 20, "nothing of it is left", 0.3)

    def test_a_flood_without_a_reader_is_bounded_and_counted(self):
        eid = self.start("yes")
        wait_for(lambda: self.get(eid, "/output?limit=1")["dropped_bytes"] > 4 << 20, 60, "drops are counted", 0.5)
        before = self.cpu_seconds()
        time.sleep(3)
        # It goes on in the guest; here nothing does.
        self.assertLess(self.cpu_seconds() - before, 0.5)
        piece = self.get(eid, "/output?limit=1000")
        self.assertEqual(piece["dropped_bytes"], piece["offset"])
        self.post(eid, "kill")
        end = self.ended(eid)["stdout_bytes"]
        piece = self.get(eid, "/output")
        self.assertLessEqual(end - piece["offset"], 1 << 20)
        self.assertEqual(set(piece["stdout"].strip("\n")), {"y", "\n"})

    def cpu_seconds(self):
        with open(f"/proc/{self.daemon.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def test_many_readers_see_the_same(self):
        eid = self.start("for i in $(seq 60); do echo line $i; sleep 0.05; done")
        wanted = "".join(f"line {i}\n" for i in range(1, 61))
        seen = [None] * 6

        def follow(n):
            time.sleep(n * 0.2)  # late ones, too
            answer = self.client.call("GET", f"/v1/sandboxes/{self.sandbox}/exec/{eid}/output",
                                      headers={"Accept": "text/event-stream"})
            events = [block.split("\n") for block in answer.body.decode().split("\n\n")]
            lines = [dict(line.split(": ", 1) for line in event if ": " in line) for event in events]
            seen[n] = ("".join(json.loads(e["data"])["text"] for e in lines if e.get("event") == "stdout"),
                       [json.loads(e["data"])["exit_code"] for e in lines if e.get("event") == "exit"])

        threads = [threading.Thread(target=follow, args=(n,)) for n in range(len(seen))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        self.assertEqual(seen, [(wanted, [0])] * len(seen))

    def test_a_time_limit_is_its_own(self):
        eid = self.start("echo begun; sleep 600", timeout_ms=4000)
        record = self.ended(eid)
        self.assertEqual((record["timed_out"], record["exit_code"]), (True, 124))
        self.assertEqual(self.output(eid), "begun\n")

    def test_no_more_than_the_limit_run(self):
        first = [self.start("sleep 600") for _ in range(32)]
        answer = self.client.call("POST", f"/v1/sandboxes/{self.sandbox}/exec",
                                  {"command": "true", "background": True})
        self.assertEqual(answer.status, 429, answer)
        self.assertIn("kill one", answer.error[1])
        self.assertEqual(self.client.shell(self.sandbox, "echo still")["stdout"], "still\n")
        for eid in first:
            self.post(eid, "kill")
        for eid in first:
            self.ended(eid)


class RestartTest(Jobs, unittest.TestCase):
    """The service is killed and comes back."""

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon("[network]\ndefault = none\n", HOOKS_BUILD).start()
        cls.addClassCleanup(cls.daemon.close)
        cls.client = cls.daemon.client()

    def setUp(self):
        self.sandbox = self.client.create(temporary=False)["id"]
        self.addCleanup(lambda: self.client.call("DELETE", f"/v1/sandboxes/{self.sandbox}"))

    def back(self, faults=""):
        self.daemon.set_faults(faults)
        self.daemon.start_again()
        self.client.port = self.daemon.port
        wait_for(lambda: self.client.call("POST", f"/v1/sandboxes/{self.sandbox}/exec",
                                          {"command": "true"}).status == 200, 60, "the agent answers", 0.2)

    def test_kill_9_of_the_service_ends_no_command(self):
        goes_on = self.start("i=0; while :; do echo $((i += 1)); sleep 0.2; done")
        ends = self.start("echo before; sleep 2; echo after; exit 5")
        self.wait_shown(goes_on, "3\n")
        answers = []
        foreground = threading.Thread(target=lambda: answers.append(self.lost_call()))
        foreground.start()
        listed = wait_for(lambda: [row for row in self.list() if not row["background"] and row["status"] == "running"],
                          20, "the foreground command runs", 0.2)
        wait_for(lambda: self.is_stored(listed[0]["id"]), 20, "its row is written")
        shown = len(self.output(goes_on).split())
        self.daemon.kill()
        foreground.join(60)
        self.assertEqual(answers, [None])
        time.sleep(3)
        self.back()
        # The same one, with all it wrote meanwhile.
        text = self.output(goes_on).split()
        self.assertGreater(len(text), shown)
        self.assertEqual(text, [str(i + 1) for i in range(len(text))])
        before = len(text)
        wait_for(lambda: len(self.output(goes_on).split()) > before + 3, 30, "it goes on", 0.3)
        record = self.ended(ends)
        self.assertEqual((record["status"], record["exit_code"]), ("exited", 5))
        self.assertEqual(self.output(ends), "before\nafter\n")
        record = self.get(listed[0]["id"])
        self.assertEqual(record["status"], "lost")
        self.assertIn("service was restarted", record["error"])
        wait_for(lambda: not self.runs("sleep 7654"), 90, "the foreground command is gone from the guest", 1)
        self.post(goes_on, "kill")
        self.assertEqual(self.ended(goes_on)["signal"], 9)

    def is_stored(self, eid):
        with contextlib.closing(sqlite3.connect(self.daemon.state / "paddock.db")) as db:
            return db.execute("SELECT 1 FROM exec WHERE id = ?", (eid,)).fetchone()

    def lost_call(self):
        try:
            return self.client.call("POST", f"/v1/sandboxes/{self.sandbox}/exec", {"command": "sleep 7654"})
        except OSError:
            return None

    def list(self):
        return self.client.call("GET", f"/v1/sandboxes/{self.sandbox}/exec").json["data"]

    def test_killed_at_each_point_of_a_start_the_record_is_true(self):
        for n, point in enumerate(("job.row", "job.row.done", "job.start.done")):
            with self.subTest(point):
                self.daemon.terminate()
                self.back(f"{point}:kill")
                marker = f"sleep 98{n}"
                try:
                    self.client.call("POST", f"/v1/sandboxes/{self.sandbox}/exec",
                                     {"command": marker, "background": True})
                    self.fail("the service lived on")
                except OSError:
                    pass
                self.daemon.wait_dead(10)
                self.back()
                rows = [row for row in self.list() if row["command"] == marker]
                if point == "job.row":
                    self.assertEqual(rows, [])
                    self.assertFalse(self.runs(marker))
                    continue
                settled = wait_for(lambda: self.settled(rows[0]["id"], marker), 30, "record and guest agree", 0.3)
                self.assertEqual(settled, "lost" if point == "job.row.done" else "running")

    def test_killed_as_a_command_ends_its_result_is_found(self):
        self.daemon.terminate()
        self.back("job.end:kill")
        eid = self.start("read x; echo bye; exit 6", keep_stdin=True)
        with contextlib.suppress(OSError):  # it may die before it answers
            self.post(eid, "stdin", data="now\n")
        self.daemon.wait_dead(30)
        self.back()
        record = self.ended(eid)
        self.assertEqual((record["status"], record["exit_code"], record["stdout_tail"]), ("exited", 6, "bye\n"))
        self.assertEqual(self.output(eid), "bye\n")

    def settled(self, eid, marker):
        """Its status, once that is what is to be seen in the guest."""
        status = self.get(eid)["status"]
        return status if (status == "running") == self.runs(marker) else None

    def test_the_end_of_the_sandbox_is_told_and_tails_stay(self):
        eid = self.start("echo said; exit 4")
        running = self.start("echo so far; sleep 600")
        self.ended(eid)
        self.wait_shown(running, "so far")
        self.client.destroy(self.sandbox)
        record = self.get(running)
        self.assertEqual(record["status"], "lost")
        self.assertIn("has ended: deleted", record["error"])
        self.assertEqual(self.get(running, "/output")["stdout"], "so far\n")
        piece = self.get(eid, "/output")
        self.assertEqual((piece["stdout"], piece["exit_code"], piece["is_end"]), ("said\n", 4, True))
        self.post(running, "kill", expect=409)

    def test_a_restart_of_the_sandbox_loses_them(self):
        eid = self.start("echo so far; sleep 600")
        self.wait_shown(eid, "so far")
        self.assertEqual(self.client.call("POST", f"/v1/sandboxes/{self.sandbox}/restart", {}).status, 200)
        record = self.get(eid)
        self.assertEqual(record["status"], "lost")
        self.assertIn("restarted", record["error"])
        self.assertFalse(self.runs("sleep 600"))
        self.assertEqual(self.get(eid, "/output")["stdout"], "so far\n")


class TerminalTest(Jobs, SystemTest):
    config = "[network]\ndefault = none\n"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = cls.daemon.client()
        cls.sandbox = cls.client.create()["id"]

    def open(self, query=""):
        socket = WebSocket(self.daemon.port, f"/v1/sandboxes/{self.sandbox}/pty{query}", self.client.key)
        self.addCleanup(socket.close)
        return socket

    def test_a_shell_that_is_resized_interrupted_and_left(self):
        with self.open("?rows=31&cols=101&env.PS1=$%20&shell=sh") as shell:
            eid = shell.word("start")["id"]
            shell.type("stty size; echo do''ne\n")
            self.assertIn(b"31 101", shell.until("done"))
            shell.say(resize={"rows": 44, "cols": 132})
            shell.type("stty size; echo ag''ain\n")
            self.assertIn(b"44 132", shell.until("again"))
            shell.type("sleep 600\n")
            wait_for(lambda: self.runs("sleep 600"), 20, "it runs", 0.3)
            shell.type("\x03")
            shell.type("echo stat''us $?\n")
            shell.until("status 130")
            shell.type("id -un; tty; echo who''am\n")
            self.assertIn(b"sandbox", shell.until("whoam"))
            shell.type("KEPT=here; echo be''fore\n")
            shell.until("before")
        # It is there while nobody is.
        record = self.get(eid)
        self.assertEqual((record["status"], record["tty"], record["background"]), ("running", True, True))
        with self.open(f"?exec={eid}") as shell:
            shell.until("before")
            shell.type("echo $KEPT and ba''ck\n")
            shell.until("here and back")
            with self.open(f"?exec={eid}&replay_bytes=0&rows=20&cols=60") as other:
                other.word("start")
                other.type("stty size; echo to''gether\n")
                self.assertIn(b"20 60", other.until("together"))
                shell.until("together")
                shell.type("exit 3\n")
                for socket in (shell, other):
                    self.assertEqual(socket.word("exit")["exit_code"], 3)
                    self.assertFalse(socket.read())
                    self.assertEqual(socket.close_code, 1000)
        self.assertEqual(self.ended(eid)["exit_code"], 3)

    def test_a_login_shell_is_what_comes_unasked(self):
        with self.open() as shell:
            shell.word("start")
            shell.type("shopt -q login_shell 2>/dev/null && echo lo''gin; pwd; echo en''d\n")
            shown = shell.until("end")
            self.assertIn(b"/workspace", shown)
            shell.type("exit\n")
            self.assertEqual(shell.word("exit")["exit_code"], 0)

    def test_signals_and_kill(self):
        command = urllib.parse.quote("trap 'echo caught' HUP; echo ready; while :; do sleep 0.1; done")
        with self.open(f"?command={command}") as shell:
            eid = shell.word("start")["id"]
            shell.until("ready")
            shell.say(signal="HUP")
            shell.until("caught")
            self.post(eid, "kill")
            self.assertEqual(shell.word("exit")["signal"], 9)

    def test_a_client_that_does_not_read_holds_it_up(self):
        with self.open("?command=yes%200123456789abcdef") as shell:
            eid = shell.word("start")["id"]
            before = self.memory_mib()
            # Blocked, once all that lies between is full: nothing more is dropped.
            wait_for(lambda: self.stands(eid), 60, "it is held up", 0.2)
            self.assertLess(self.memory_mib() - before, 16)
            total = 0
            while total < 20 << 20:
                self.assertTrue(shell.read())
                total += len(shell.shown)
                shell.shown = b""
            self.assertEqual([w for w in shell.words if "gap" in w], [])
        # Without a reader it runs free.
        wait_for(lambda: self.get(eid, "/output?limit=1")["dropped_bytes"] > total + (4 << 20), 60, "it goes on", 0.5)
        self.post(eid, "kill")

    def memory_mib(self):
        with open(f"/proc/{self.daemon.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1024

    def stands(self, eid):
        """It writes nothing for a second."""
        before = self.get(eid, "/output?limit=1")["dropped_bytes"]
        time.sleep(1)
        return before and self.get(eid, "/output?limit=1")["dropped_bytes"] == before

    def test_what_is_refused(self):
        plain = self.start("sleep 600")
        for query, status in ((f"?exec={plain}", 409), ("?exec=ex_00000000000000000000", 404), ("?rows=0", 400),
                              (f"?exec={plain}&command=x", 400)):
            with self.assertRaises(Refused) as refused:
                self.open(query)
            self.assertEqual(refused.exception.status, status, query)
        self.post(plain, "kill")
        answer = self.client.call("GET", f"/v1/sandboxes/{self.sandbox}/pty")
        self.assertEqual(answer.status // 100, 4, answer)


if __name__ == "__main__":
    unittest.main()
