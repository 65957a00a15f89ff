"""SYNC, HELLO, hunting, hang-ups: PROTOCOL.md section 2."""

import os
import select
import socket
import struct
import subprocess
import time

from harness import AGENT, AgentTest, cpu_seconds, main
from paddock_proto import *


class Session(AgentTest):
    syncs = False

    def test_hello_says_who_it_is(self):
        hello = self.host.sync()
        self.assertEqual(hello["version"], 1)
        self.assertRegex(hello["software"], r"^paddock-agent/\d")
        self.assertRegex(hello["boot_id"], r"^[0-9a-f]{32}$")
        self.assertEqual(bool(hello["features"] & 1), self.agent.cgroup is not None)

    def test_the_nonce_comes_back(self):
        nonce = os.urandom(16)
        self.host.send(frame(SYNC, 0, MAGIC + nonce))
        got = self.host.read()
        self.assertEqual((got.kind, got.payload), (SYNC_ACK, MAGIC + nonce))

    def test_sync_is_found_behind_garbage(self):
        for garbage in (b"\0" * 70000, os.urandom(5000), MAGIC, frame(SYNC, 0, MAGIC + bytes(16))[:20],
                        frame(DATA, 5, b"x" * 100, IN), frame(EXEC, 1, b"")[:7]):
            self.host.sync(before=garbage)
            self.assertEqual(self.host.run("true").exit_code, 0)

    def test_half_a_frame_before_sync_is_given_up(self):
        self.host.sync()
        self.host.send(frame(EXEC, 1, body(("arg", "x" * 5000)))[:500])
        got = self.host.read()
        self.assertEqual(got.kind, ABORT)
        self.assert_usable()

    def test_half_a_frame_does_not_swallow_a_sync_for_ever(self):
        self.host.sync()
        self.host.send(struct.pack("<IHHI", 60000, EXEC, 0, 1))
        start = time.monotonic()
        nonce = os.urandom(16)
        want = frame(SYNC_ACK, 0, MAGIC + nonce)
        # One SYNC alone looks like part of the request; the pause after it gives it away.
        self.host.send(frame(SYNC, 0, MAGIC + nonce))
        while want not in self.host.buffer:
            self.host._more(start + 30)
        self.assertLess(time.monotonic() - start, 25)
        self.assert_usable()

    def test_a_slow_frame_is_not_given_up(self):
        self.host.sync()
        data = frame(EXEC, self.host.new_id(), body(("arg", "true")))
        for byte in data[:6]:
            self.host.send(bytes([byte]))
            time.sleep(0.3)
        self.host.send(data[6:])
        self.assertEqual(self.host.finish(1).exit_code, 0)

    def test_each_sync_starts_over(self):
        for _ in range(5):
            self.host.sync()
            self.host.sync(hello=False)
            self.host.sync()
            self.assertEqual(self.host.run("true").exit_code, 0)

    def test_calls_may_follow_hello_at_once(self):
        self.host.sync(hello=False)
        self.host.send(frame(HELLO, 0, body(("version", 1))) +
                       frame(EXEC, 1, body(("arg", "echo"), ("arg", "hi"))))
        self.assertEqual(self.host.finish(1).out, b"hi\n")

    def test_a_call_before_hello_is_an_abort(self):
        self.host.sync(hello=False)
        self.host.send(frame(EXEC, 1, body(("arg", "true"))))
        self.assertEqual(self.host.read().kind, ABORT)
        self.assertTrue(self.host.is_quiet(0.3))
        self.assert_usable()

    def test_a_second_hello_and_an_old_version_are_aborts(self):
        self.host.sync()
        self.host.send(frame(HELLO, 0, body(("version", 1))))
        self.assertEqual(self.host.read().kind, ABORT)
        self.host.sync(hello=False)
        self.host.send(frame(HELLO, 0, body(("version", 0))))
        self.assertEqual(self.host.read().kind, ABORT)
        self.host.sync(hello=False)
        self.host.send(frame(HELLO, 0, body(("version", 7), ("features", 1 << 63), (999, b"new"))))
        self.assertEqual(self.host.run("true").exit_code, 0)

    def test_after_abort_the_agent_says_nothing(self):
        self.host.sync()
        stream = self.host.call(EXEC, ("command", "sleep 0.2; echo late"))
        self.host.send(frame(ABORT, 0, body(("status", INTERNAL), ("text", "bye"))))
        deadline = time.monotonic() + 0.8
        seen = []
        while time.monotonic() < deadline:
            if not self.host.is_quiet(0.2):
                seen.append(1)
        self.assertLessEqual(len(seen), 1)  # STARTED may have been on its way
        self.assert_usable()
        self.assertEqual(stream, 1)

    def test_ping(self):
        self.host.sync()
        for data in (b"", b"x", os.urandom(64)):
            self.host.send(frame(PING, 0, data))
            got = self.host.read()
            self.assertEqual((got.kind, got.payload), (PONG, data))

    def test_sync_ends_what_ran_and_spares_what_was_left(self):
        self.host.sync()
        self.assertEqual(self.host.run(command="sleep 3001 & echo $!").exit_code, 0)
        stream = self.host.call(EXEC, ("command", "setsid sleep 3002 & sleep 3003"))
        self.wait_for(lambda: "sleep 3003" in self.agent.commands(), "it never started")
        self.assertEqual(self.host.read().stream, stream)
        self.host.sync()
        gone = ("sleep 3002", "sleep 3003") if self.agent.cgroup else ("sleep 3003",)
        self.wait_for(lambda: not any(c in self.agent.commands() for c in gone), "still there")
        self.wait_for(lambda: "sleep 3001" in self.agent.commands(), "it was killed too")
        self.assert_usable()

    def test_shutdown_answers_and_ends(self):
        self.host.sync()
        self.assertEqual(self.host.finish(self.host.call(SHUTDOWN)).status, OK)
        self.assertEqual(self.agent.process.wait(20), 0)

    def test_the_dead_man_fires_unless_it_is_put_off(self):
        self.host.sync()
        start = time.monotonic()
        for ms in (300, 0, 300, 60000, 700):
            self.assertEqual(
                self.host.finish(self.host.call(CONFIGURE, ("deadline_ms", ms))).status, OK)
        self.assertEqual(self.agent.process.wait(20), 0)
        self.assertGreaterEqual(time.monotonic() - start, 0.65)

    def test_configure_sets_the_environment(self):
        self.host.sync()
        configure = lambda *fields: self.host.finish(self.host.call(CONFIGURE, *fields)).status
        show = lambda **k: self.host.run(command="echo $A-$B", **k).out
        self.assertEqual(configure(("env", "A=1"), ("env", "B=2")), OK)
        self.assertEqual(show(), b"1-2\n")
        self.assertEqual(configure(("env", "A=3")), OK)
        self.assertEqual(show(env=["B=call"]), b"3-call\n")
        self.assertEqual(configure(("env", "B=new"), ("env_reset", 1)), OK)
        self.assertEqual(show(), b"-new\n")

    def test_configure_applies_all_or_nothing_where_it_can(self):
        self.host.sync()
        for fields in ([("env", "A=1"), ("hostname", "-bad-")], [("env", "A=1"), ("env", "=x")],
                       [("env", "A=1"), ("entropy", bytes(513))], [("env", "A=1"), ("ca", bytes(524289))],
                       [("env", "A=1"), (51, b"123")], [("env", "A=1"), ("hostname", "a" * 64)]):
            result = self.host.finish(self.host.call(CONFIGURE, *fields))
            self.assertEqual(result.status, INVALID, fields[1])
        self.assertEqual(self.host.run(command="echo $A").out, b"\n")

    def test_configure_tells_the_time(self):
        self.host.sync()
        for fields in ((), (("realtime_ns", time.time_ns()),), (("clock_shift_ns", 2**64 - 7),),
                       (("clock_shift_ns", 1 << 63),), (("clock_shift_ns", (1 << 63) - 1),)):
            before = time.time_ns()
            result = self.host.finish(self.host.call(CONFIGURE, *fields))
            self.assertEqual(result.status, OK)
            self.assertTrue(before <= result.realtime_ns <= time.time_ns())
        result = self.host.finish(self.host.call(CONFIGURE, ("hostname", "-bad-")))
        self.assertEqual(result.realtime_ns, 0)

    def test_unknown_fields_are_skipped_and_critical_ones_refused(self):
        self.host.sync()
        for kind, fields in ((EXEC, [("arg", "true")]), (CONFIGURE, []), (FILE_LIST, [("path", ".")])):
            self.assertEqual(
                self.host.finish(self.host.call(kind, *fields, (999, b"new"))).status, OK)
            self.assertEqual(
                self.host.finish(self.host.call(kind, *fields, (0x8000 | 999, b"new"))).status,
                UNSUPPORTED)
        self.assertEqual(self.host.finish(self.host.call(EXEC, (0x8000 | 16, b"true"))).status, OK)


class Reconnect(AgentTest):
    """A named socket: the host may go and come back."""

    syncs = False

    def setUp(self):
        super().setUp()
        self.path = str(self.agent.directory / "port")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(4)
        self.second = subprocess.Popen(
            [AGENT, "--test", "--port", self.path, "--no-cgroup", "--user-id", str(os.getuid()),
             "--home", str(self.agent.home), "--workspace", str(self.agent.workspace)],
            stderr=subprocess.DEVNULL)

    def tearDown(self):
        self.second.terminate()
        self.assertEqual(self.second.wait(20), 0)
        self.listener.close()
        super().tearDown()

    def accept(self):
        self.assertTrue(select.select([self.listener], [], [], 30)[0], "the agent doesn't come back")
        return Host(self.listener.accept()[0])

    def test_the_agent_comes_back_after_every_hang_up(self):
        for cut in (b"", frame(EXEC, 9, b"")[:5], frame(SYNC, 0, MAGIC + bytes(16))[:30]):
            host = self.accept()
            host.sync()
            self.assertEqual(host.run("echo", "hi").out, b"hi\n")
            host.send(cut)
            host.sock.close()

    def test_an_absent_host_costs_nothing(self):
        host = self.accept()
        host.sync()
        self.listener.close()
        os.unlink(self.path)
        host.sock.close()
        time.sleep(0.3)
        before = cpu_seconds(self.second.pid)
        time.sleep(2)
        self.assertLessEqual(cpu_seconds(self.second.pid) - before, 0.1, "it spins")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(4)
        host = self.accept()
        host.sync()
        self.assertEqual(host.run("true").exit_code, 0)
        host.sock.close()

    def test_calls_of_a_lost_session_run_on_for_a_minute_and_no_longer(self):
        host = self.accept()
        host.sync()
        host.call(EXEC, ("command", "exec sleep 3004"))
        put = host.call(FILE_PUT, ("path", "never"))
        host.send(frame(DATA, put, b"x", IN))
        pid = unbody(host.read().payload)["pid"]
        lost = time.monotonic()
        host.sock.close()
        # Whoever comes and goes without SYNC doesn't put it off.
        host = self.accept()
        time.sleep(30)
        host.sock.close()
        host = self.accept()
        self.assertTrue(os.path.exists(f"/proc/{pid}"))
        self.wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "it runs on", 50)
        self.assertGreaterEqual(time.monotonic() - lost, 59)
        host.sync()
        self.assertEqual(host.run("ls").out, b"")
        host.sock.close()


if __name__ == "__main__":
    main()
