"""Jobs, SIGNAL, and the head and tail of an EXEC's output: PROTOCOL.md sections 5.1 and 5.7."""

import hashlib
import os
import random
import resource
import signal
import struct
import time
import unittest

from harness import AgentTest, main
from paddock_proto import *

RING = 1 << 20
TAIL = 64 << 10
RUNNING_MAX, ENDED_MAX = 32, 64


class Job(AgentTest):
    def start(self, id, *args, **options):
        self.assert_status(self.host.start(id, *args, **options), OK)

    def test_hello_announces_them(self):
        self.assertTrue(self.host.hello["features"] & FEATURE_JOBS)

    def test_a_job_has_its_result_and_its_output_in_order(self):
        # The order is that of reading: each is read before the next is written.
        self.start("ex_1", command="echo one; read x; echo two >&2; read x; echo three; sleep 0.2; exit 7",
                   exec_flags=EXEC_STDIN)
        for end in 4, 8:
            self.wait_for(lambda: self.host.jobs()[0]["end_offset"] == end, "it doesn't write")
            self.host.short(JOB_INPUT, id="ex_1", stdin=b"\n")
        result = self.host.wait("ex_1")
        self.assertEqual((result.status, result.exit_code), (OK, 7))
        self.assertEqual((result.out_bytes, result.err_bytes), (10, 4))
        self.assertGreater(result.duration_us, 200_000)
        got = self.host.output("ex_1")
        self.assertEqual(got.order, [[OUT, b"one\n"], [ERR, b"two\n"], [OUT, b"three\n"]])
        self.assertEqual(got.offset, 14)
        self.assertEqual(got.started["job_flags"], 0)
        self.assertEqual((got.started["exit_code"], got.started["offset"]), (7, 0))

    def test_it_survives_sync_and_the_end_of_a_session(self):
        self.start("ex_1", command="echo before; sleep 1; echo after")
        for _ in range(3):
            self.host.sync()
        self.host.send(frame(200, 0, b"rubbish"))
        time.sleep(0.1)
        self.host.sync()
        self.assertEqual([j["id"] for j in self.host.jobs()], ["ex_1"])
        self.assertEqual(self.host.wait("ex_1").exit_code, 0)
        self.assertEqual(self.host.output("ex_1").out, b"before\nafter\n")

    def test_a_foreground_command_does_not_survive_and_a_job_beside_it_does(self):
        self.host.call(EXEC, ("arg", "sleep"), ("arg", "1111"))
        self.start("ex_1", "sleep", "2222")
        self.host.sync()
        self.wait_for(lambda: self.agent.commands() == ["sleep 2222"], "the tree was not killed")

    def test_ids(self):
        self.start("ex_1", "true")
        self.assert_status(self.host.start("ex_1", "true"), EXISTS)
        for id in ("", "a b", "a/b", "é", "x" * 64, b"a\0b"):
            self.assert_status(self.host.start(id, "true"), INVALID)
        self.assert_status(self.host.finish(self.host.call(JOB_START, ("arg", "true"))), INVALID, "id")
        self.start("x" * 63, "true")
        self.host.call(EXEC, ("id", "ex_2"), ("arg", "sleep"), ("arg", "100"))
        self.assert_status(self.host.start("ex_2", "true"), EXISTS)
        self.assert_status(self.host.run("true", id="ex_1"), EXISTS)
        for kind in (JOB_WAIT, JOB_READ, JOB_RESIZE, JOB_FORGET, JOB_INPUT):
            self.assert_status(self.host.short(kind, id="ex_2", stdin=b""), NOT_FOUND)
            self.assert_status(self.host.short(kind, id="", stdin=b""), NOT_FOUND)

    def test_a_missing_program_is_a_job_that_ended(self):
        self.start("ex_1", "no-such-program")
        self.assertEqual(self.host.wait("ex_1").exit_code, 127)
        self.assertIn(b"not found", self.host.output("ex_1").err)
        self.assert_status(self.host.start("ex_2", "true", cwd="/no/such"), INVALID, "cwd")
        self.assertEqual(len(self.host.jobs()), 1)

    def test_a_command_longer_than_a_frame_and_than_an_argument(self):
        self.start("ex_1", command="echo ok #" + "x" * 300000, env=[f"V{i}={i}" for i in range(1000)])
        self.assertEqual(self.host.wait("ex_1").exit_code, 0)
        self.assertEqual(self.host.output("ex_1").out, b"ok\n")

    def test_it_ends_with_its_first_process_and_lets_the_rest_run(self):
        self.start("ex_1", command="sleep 3333 & echo started")
        result = self.host.wait("ex_1", timeout=10)
        self.assertEqual((result.exit_code, result.out_bytes), (0, 8))
        self.wait_for(lambda: self.agent.commands() == ["sleep 3333"], "not what it left")

    def test_list_is_oldest_first_and_forget_drops(self):
        for i in range(5):
            self.start(f"ex_{i}", command=f"echo {i}")
            self.host.wait(f"ex_{i}")
        self.start("ex_run", "sleep", "100")
        self.assertEqual([j["id"] for j in self.host.jobs()],
                         ["ex_0", "ex_1", "ex_2", "ex_3", "ex_4", "ex_run"])
        last = self.host.jobs()[-1]
        self.assertEqual(last["job_flags"], JOB_RUNNING)
        self.assertNotIn("exit_code", last)
        self.assert_status(self.host.short(JOB_FORGET, id="ex_run"), INVALID)
        self.assert_status(self.host.short(JOB_FORGET, id="ex_2"), OK)
        self.assert_status(self.host.short(JOB_FORGET, id="ex_2"), NOT_FOUND)
        self.assertNotIn("ex_2", [j["id"] for j in self.host.jobs()])

    def test_as_many_run_as_there_may_be(self):
        for i in range(RUNNING_MAX):
            self.start(f"ex_{i}", "sleep", "100")
        self.assert_status(self.host.start("ex_more", "true"), LIMIT, "32")
        self.assert_status(self.host.short(SIGNAL, id="ex_0", signal=9), OK)
        self.assertEqual(self.host.wait("ex_0").exit_code, 137)
        self.start("ex_more", "true")

    def test_the_oldest_ended_ones_make_room(self):
        descriptors = self.agent.descriptors()
        for i in range(ENDED_MAX + 10):
            self.start(f"ex_{i}", "echo", str(i))
            self.host.wait(f"ex_{i}")
        ids = [j["id"] for j in self.host.jobs()]
        self.assertEqual(ids, [f"ex_{i}" for i in range(10, ENDED_MAX + 10)])
        self.assertEqual(self.agent.descriptors(), descriptors)

    # ---- time-out, signals ----

    def test_a_time_out_ends_the_whole_tree(self):
        self.start("ex_1", command="setsid sh -c 'trap \"\" TERM; sleep 4444; sleep 4444' & sleep 4444",
                   timeout_ms=300, grace_ms=300)
        result = self.host.wait("ex_1", timeout=30)
        self.assertEqual(result.end_flags & TIMED_OUT, TIMED_OUT)
        if self.agent.cgroup:
            self.assertEqual(self.agent.commands(), [])

    def test_a_time_out_counts_while_nobody_is_connected(self):
        self.start("ex_1", "sleep", "5555", timeout_ms=300)
        self.host.send(frame(ABORT, 0, body(("status", 0))))
        self.wait_for(lambda: self.agent.commands() == [], "still there")
        self.host.sync()
        self.assertEqual(self.host.wait("ex_1").end_flags, TIMED_OUT)

    def test_a_signal_reaches_every_process_of_the_tree(self):
        for start in (lambda: self.start("ex_1", command=script), lambda: self.host.call(
                EXEC, ("id", "ex_1"), ("command", script))):
            log = self.agent.workspace / "log"
            log.unlink(missing_ok=True)
            script = ("trap 'echo outer >>log; exit 3' USR1; "
                      "sh -c 'trap \"echo inner >>log; exit\" USR1; echo up >>log; while :; do sleep 0.05; done' &"
                      "while :; do sleep 0.05; done")
            stream = start()
            self.wait_for(lambda: log.exists() and "up" in log.read_text(), "not up")
            self.assert_status(self.host.short(SIGNAL, id="ex_1", signal=signal.SIGUSR1), OK)
            result = self.host.finish(stream) if stream else self.host.wait("ex_1")
            self.assertEqual(result.exit_code, 3)
            self.wait_for(lambda: sorted(log.read_text().split()) == ["inner", "outer", "up"], log)
            self.assert_status(self.host.short(SIGNAL, id="ex_1", signal=15), NOT_FOUND)
            if not stream:
                self.host.short(JOB_FORGET, id="ex_1")

    def test_signals_that_are_none(self):
        self.start("ex_1", "sleep", "100")
        for number in (0, 65, 1 << 31):
            self.assert_status(self.host.short(SIGNAL, id="ex_1", signal=number), INVALID)
        self.assert_status(self.host.short(SIGNAL, id="ex_1"), INVALID)
        self.assert_status(self.host.short(SIGNAL, signal=9), NOT_FOUND)
        self.assert_status(self.host.short(SIGNAL, id="ex_1", signal=9), OK)
        result = self.host.wait("ex_1")
        self.assertEqual((result.exit_code, result.signal, result.end_flags), (137, 9, 0))

    # ---- the ring ----

    def test_without_a_reader_the_oldest_is_dropped_and_counted(self):
        self.start("ex_1", command="seq 1 400000")
        result = self.host.wait("ex_1")
        total = result.out_bytes
        whole = b"".join(b"%d\n" % i for i in range(1, 400001))
        self.assertEqual(total, len(whole))
        got = self.host.output("ex_1")
        self.assertEqual(got.started["end_offset"], total)
        self.assertGreaterEqual(len(got.out), RING)
        self.assertLessEqual(len(got.out), RING + (128 << 10))
        self.assertEqual(got.started["first_offset"], total - len(got.out))
        self.assertEqual(got.out, whole[-len(got.out):])
        part = self.host.output("ex_1", offset=total - 10, length=4)
        self.assertEqual((part.out, part.offset), (whole[-10:-6], total - 6))
        self.assert_status(self.host.output("ex_1", offset=total + 1), INVALID)
        self.assertEqual(self.host.output("ex_1", offset=total).out, b"")

    def test_a_follower_gets_every_byte_however_slow(self):
        self.start("ex_1", command="seq 1 600000; echo end >&2", )
        stream = self.host.call(JOB_READ, ("id", "ex_1"), ("job_flags", JOB_FOLLOW))
        # It takes no more than its window; the job fills its ring beyond that, and no further.
        self.wait_for(lambda: self.read_end("ex_1") == RING + WINDOW_INITIAL, "the ring never filled")
        time.sleep(0.3)
        self.assertEqual(self.read_end("ex_1"), RING + WINDOW_INITIAL)
        # What it had was thrown away by read_end(); another stream begins at the front.
        self.host.send(frame(CANCEL, stream))
        got = self.host.output("ex_1", job_flags=JOB_FOLLOW)
        first = got.started["offset"]
        whole = b"".join(b"%d\n" % i for i in range(1, 600001))
        self.assertEqual(got.gaps, [])
        self.assertEqual(got.out, whole[first:])
        self.assertEqual(got.err, b"end\n")
        self.assertEqual(self.host.wait("ex_1").out_bytes, len(whole))

    def read_end(self, id):
        return [j["end_offset"] for j in self.host.jobs() if j["id"] == id][0]

    def test_the_second_follower_may_lose_what_the_foremost_had(self):
        self.start("ex_1", command="read x; seq 1 600000", exec_flags=EXEC_STDIN)
        slow = self.host.call(JOB_READ, ("id", "ex_1"), ("job_flags", JOB_FOLLOW))
        self.assertEqual(self.host.read().kind, STARTED)
        go = self.host.call(JOB_INPUT, ("id", "ex_1"))
        self.host.send(frame(DATA, go, b"go\n", IN) + frame(CLOSE, go, b"", IN))
        fast = self.host.call(JOB_READ, ("id", "ex_1"), ("job_flags", JOB_FOLLOW))
        taken, gaps, offset, ends = [], [], 0, 0
        while ends < 2:
            got = self.host.read()
            if got.stream == fast and got.kind == DATA:
                self.host.send(frame(WINDOW, fast, struct.pack("<I", len(got.payload)), OUT))
            elif got.stream == fast and got.kind == GAP:
                self.fail("the foremost lost something")
            elif got.stream == slow and got.kind == GAP:
                gaps.append(struct.unpack("<Q", got.payload)[0])
                self.assertGreater(gaps[-1], offset)
                offset = gaps[-1]
            elif got.stream == slow and got.kind == DATA:
                taken.append((offset, got.payload))
                offset += len(got.payload)
            if got.kind == END and got.stream != go:
                ends += 1
                if got.stream == fast:
                    # Only now it goes on.
                    self.host.send(frame(WINDOW, slow, struct.pack("<I", 3 << 20), OUT))
        whole = b"".join(b"%d\n" % i for i in range(1, 600001))
        self.assertEqual(len(gaps), 1)
        self.assertEqual(offset, len(whole))
        for at, piece in taken:
            self.assertEqual(whole[at:at + len(piece)], piece)

    def test_a_gap_costs_credit_and_a_byte_follows_it(self):
        """Or a reader that takes nothing is told of gaps without end."""
        self.start("ex_1", command="read x; head -c %d /dev/zero; yes >&2" % (WINDOW_INITIAL - 100),
                   exec_flags=EXEC_STDIN)
        slow, fast = [self.host.call(JOB_READ, ("id", "ex_1"), ("job_flags", JOB_FOLLOW)) for _ in range(2)]
        go = self.host.call(JOB_INPUT, ("id", "ex_1"))
        self.host.send(frame(DATA, go, b"go\n", IN) + frame(CLOSE, go, b"", IN))

        def gaps_while_fast_takes(amount):
            seen = []
            while amount > 0:
                got = self.host.read()
                if got.stream == fast and got.kind == DATA:
                    amount -= len(got.payload)
                    self.host.send(frame(WINDOW, fast, struct.pack("<I", len(got.payload)), got.channel))
                elif got.stream == slow and seen and seen[-1] == GAP:
                    self.assertEqual((got.kind, got.channel), (DATA, ERR))
                    seen.append(len(got.payload))
                elif got.stream == slow and got.kind == GAP:
                    seen.append(GAP)
            return seen

        self.assertEqual(gaps_while_fast_takes(8 * RING), [])
        self.host.send(frame(WINDOW, slow, struct.pack("<I", 1), ERR))
        self.assertEqual(gaps_while_fast_takes(4 * RING), [GAP, 1])
        self.host.send(frame(WINDOW, slow, struct.pack("<I", 1), ERR))
        self.assertEqual(gaps_while_fast_takes(4 * RING), [])
        self.host.send(frame(WINDOW, slow, struct.pack("<I", 64), OUT))
        self.assertEqual(gaps_while_fast_takes(4 * RING), [GAP, 1])

    def test_a_follower_that_leaves_lets_the_job_go_on(self):
        self.start("ex_1", command="seq 1 600000")
        stream = self.host.call(JOB_READ, ("id", "ex_1"), ("job_flags", JOB_FOLLOW))
        self.wait_for(lambda: self.read_end("ex_1") >= RING, "the ring never filled")
        self.assertTrue(self.host.jobs()[0]["job_flags"] & JOB_RUNNING)
        self.host.send(frame(CANCEL, stream))
        self.assertEqual(self.host.wait("ex_1", timeout=30).exit_code, 0)

    def test_a_follower_that_stands_still_does_not_keep_a_job_from_ending(self):
        self.start("ex_1", command="yes")
        self.host.call(JOB_READ, ("id", "ex_1"), ("job_flags", JOB_FOLLOW))
        self.wait_for(lambda: self.read_end("ex_1") >= RING, "the ring never filled")
        self.host.short(SIGNAL, id="ex_1", signal=9)
        result = self.host.wait("ex_1", timeout=20)
        self.assertEqual(result.signal, 9)
        # Nothing was dropped but what it has been sent: its window.
        self.assertLessEqual(self.host.jobs()[0]["first_offset"], WINDOW_INITIAL)

    def test_late_readers_and_several_get_the_same(self):
        self.start("ex_1", command="echo a; read x; echo b; read x", exec_flags=EXEC_STDIN)
        followers = [self.host.call(JOB_READ, ("id", "ex_1"), ("job_flags", JOB_FOLLOW))
                     for _ in range(20)]
        self.host.short(JOB_INPUT, id="ex_1", stdin=b"1\n2\n")
        self.host.wait("ex_1")
        self.host.sync()
        for _ in range(5):
            self.assertEqual(self.host.output("ex_1", job_flags=JOB_FOLLOW).out, b"a\nb\n")

    def test_wait_ms(self):
        self.start("ex_1", command="read x; echo x; sleep 100", exec_flags=EXEC_STDIN)
        self.assertEqual(self.host.output("ex_1").out, b"")
        self.assertEqual(self.host.output("ex_1", wait_ms=50).out, b"")
        # Sooner than the host's patience, which is a minute.
        stream = self.host.call(JOB_READ, ("id", "ex_1"), ("wait_ms", 600000))
        typing = self.host.call(JOB_INPUT, ("id", "ex_1"))
        self.host.send(frame(DATA, typing, b"\n", IN) + frame(CLOSE, typing, b"", IN))
        got = self.host.finish(stream)
        self.assertEqual((got.out, got.offset), (b"x\n", 2))
        begin = time.monotonic()
        got = self.host.output("ex_1", offset=2, wait_ms=300)
        self.assertEqual(got.out, b"")
        self.assertGreaterEqual(time.monotonic() - begin, 0.29)
        stream = self.host.call(JOB_READ, ("id", "ex_1"), ("offset", 2), ("wait_ms", 60000))
        self.host.send(frame(SIGNAL, self.host.new_id(), body(("id", "ex_1"), ("signal", 15))))
        self.assert_status(self.host.finish(stream, timeout=10), OK)

    def test_one_byte_steps_of_both_streams(self):
        self.host.put("steps", b"import os\nfor i in range(60000): os.write(1 + i % 2, b'oe'[i % 2:i % 2 + 1])\n")
        self.start("ex_1", "/usr/bin/python3", "steps")
        result = self.host.wait("ex_1", timeout=60)
        self.assertEqual((result.out_bytes, result.err_bytes), (30000, 30000))
        got = self.host.output("ex_1", timeout=60)
        self.assertEqual(got.out.strip(b"o") + got.err.strip(b"e"), b"")
        self.assertEqual(len(got.out) + len(got.err) + got.started["offset"], 60000)

    def test_nul_and_every_byte(self):
        data = bytes(range(256)) * 500
        self.host.put("data", data)
        self.start("ex_1", command="cat data; cat data >&2")
        self.host.wait("ex_1")
        got = self.host.output("ex_1")
        self.assertEqual((got.out, got.err), (data, data))

    def test_memory_stays_bounded(self):
        self.host.run("true")
        for i in range(RUNNING_MAX):
            self.start(f"ex_{i}", command="head -c 3000000 /dev/zero")
        for i in range(RUNNING_MAX):
            self.host.wait(f"ex_{i}", timeout=60)
        held = sum(j["end_offset"] - j["first_offset"] for j in self.host.jobs())
        self.assertLessEqual(held, 8 << 20)
        for j in self.host.jobs():
            self.assertGreaterEqual(j["end_offset"] - j["first_offset"], TAIL)
        # The last ones still have all they can.
        self.assertGreaterEqual(self.host.jobs()[-1]["end_offset"] - self.host.jobs()[-1]["first_offset"], TAIL)

    def test_flooding_jobs_leave_the_agent_responsive(self):
        for i in range(4):
            self.start(f"ex_{i}", "yes", str(i))
        for _ in range(20):
            self.assertEqual(self.host.run("echo", "x", timeout=30).out, b"x\n")
        for i in range(4):
            self.host.short(SIGNAL, id=f"ex_{i}", signal=9)
            self.assertEqual(self.host.wait(f"ex_{i}").signal, 9)

    # ---- stdin ----

    def test_stdin_is_null_unless_kept(self):
        self.start("ex_1", "cat")
        self.assertEqual(self.host.wait("ex_1", timeout=10).exit_code, 0)
        self.start("ex_2", "sleep", "100")
        self.assert_status(self.host.short(JOB_INPUT, id="ex_2", stdin=b"x"), INVALID, "stdin")
        self.assert_status(self.host.short(JOB_INPUT, id="ex_1", stdin=b"x"), INVALID)

    def test_input_in_pieces_and_its_end(self):
        self.start("ex_1", "cat", exec_flags=EXEC_STDIN)
        for piece in (b"one ", b"two ", b""):
            self.assert_status(self.host.short(JOB_INPUT, id="ex_1", stdin=piece), OK)
        self.assertTrue(self.host.jobs()[0]["job_flags"] & JOB_RUNNING)
        self.host.sync()
        self.assert_status(self.host.short(JOB_INPUT, id="ex_1", stdin=b"three", job_flags=JOB_CLOSE), OK)
        self.assertEqual(self.host.wait("ex_1", timeout=10).exit_code, 0)
        self.assertEqual(self.host.output("ex_1").out, b"one two three")

    def test_a_mebibyte_of_input_with_back_pressure(self):
        data = os.urandom(3 << 20)
        self.start("ex_1", command="sleep 0.5; sha256sum", exec_flags=EXEC_STDIN)
        # Its stdin is opened anew for each piece, and every time the agent must hear of room in it.
        for i in range(8):
            self.assert_status(self.host.short(JOB_INPUT, id="ex_1", stdin=data[i:i + 1]), OK)
        self.assert_status(self.host.short(JOB_INPUT, id="ex_1", stdin=data[8:], job_flags=JOB_CLOSE, timeout=20), OK)
        self.host.wait("ex_1")
        self.assertIn(hashlib.sha256(data).hexdigest().encode(), self.host.output("ex_1").out)

    def test_input_waits_for_a_job_that_does_not_read_and_ends_with_it(self):
        self.start("ex_1", "sleep", "100", exec_flags=EXEC_STDIN)
        stream = self.host.call(JOB_INPUT, ("id", "ex_1"))
        self.host.send(frame(DATA, stream, b"x" * 65536, IN) * 4)
        self.host.send(frame(CLOSE, stream, b"", IN))
        time.sleep(0.3)
        self.assertEqual(self.host.run("echo", "x").out, b"x\n")
        self.host.send(frame(SIGNAL, self.host.new_id(), body(("id", "ex_1"), ("signal", 9))))
        self.assert_status(self.host.finish(stream), INVALID)

    def input_before_the_end(self, *after):
        self.start("ex_1", command="read x", exec_flags=EXEC_STDIN)
        stream = self.host.call(JOB_INPUT, ("id", "ex_1"))
        self.host.send(frame(DATA, stream, b"x\n", IN))
        self.assertEqual(self.host.wait("ex_1", timeout=20).exit_code, 0)
        self.host.send(b"".join(frame(kind, stream, data, IN) for kind, data in after))
        result = self.host.finish(stream, timeout=20)
        self.host.short(JOB_FORGET, id="ex_1")
        return result

    def test_input_that_ends_a_job_was_taken(self):
        """Whether its CLOSE comes before the end of the job or just after it."""
        self.assert_status(self.input_before_the_end((CLOSE, b"")), OK)
        self.assert_status(self.input_before_the_end((DATA, b"y"), (CLOSE, b"")), INVALID, "ended")
        self.assert_status(self.input_before_the_end(), INVALID, "ended")

    def test_a_job_that_closes_its_stdin(self):
        self.start("ex_1", command="exec 0<&-; sleep 100", exec_flags=EXEC_STDIN)
        def refuses():
            return self.host.short(JOB_INPUT, id="ex_1", stdin=b"x").status == INVALID
        self.wait_for(refuses, "it still takes input")

    def test_cancel_leaves_the_job_alone(self):
        self.start("ex_1", "cat", exec_flags=EXEC_STDIN)
        for kind in (JOB_WAIT, JOB_READ, JOB_INPUT):
            stream = self.host.call(kind, ("id", "ex_1"), ("job_flags", JOB_FOLLOW if kind == JOB_READ else 0))
            self.host.send(frame(CANCEL, stream))
            self.assert_status(self.host.finish(stream), CANCELLED)
        self.host.short(JOB_INPUT, id="ex_1", stdin=b"alive", job_flags=JOB_CLOSE)
        self.host.wait("ex_1", timeout=10)
        self.assertEqual(self.host.output("ex_1").out, b"alive")

    def test_forgetting_ends_its_readers(self):
        self.start("ex_1", command="head -c 900000 /dev/zero")
        self.host.wait("ex_1")
        stream = self.host.call(JOB_READ, ("id", "ex_1"))
        self.host.send(frame(JOB_FORGET, self.host.new_id(), body(("id", "ex_1"))))
        self.assertIn(self.host.finish(stream).status, (OK, NOT_FOUND))
        self.assertEqual(self.host.jobs(), [])

    # ---- EXEC ----

    def test_shell_of_the_call(self):
        result = self.host.run(command="echo $0", shell="sh")
        self.assertEqual(result.out, b"sh\n")
        self.assertEqual(self.host.run(command="echo $0", shell="/bin/sh").out, b"/bin/sh\n")
        self.assertEqual(self.host.run(command="print(1)", shell="python3").out, b"1\n")
        self.assertEqual(self.host.run(command="x", shell="no-such-shell").exit_code, 127)
        self.assert_status(self.host.run("true", shell="sh"), INVALID, "shell")
        self.assert_status(self.host.run(command="true", shell=""), INVALID)
        long = "echo ok #" + "x" * 200000
        self.assertEqual(self.host.run(command=long, shell="sh").out, b"ok\n")

    def test_head_and_tail(self):
        whole = b"".join(b"%d\n" % i for i in range(1, 100001))
        result = self.host.run(command="seq 1 100000", output_cap=1000, tail_cap=500)
        self.assertEqual((len(result.out), result.out_tail), (1500, 500))
        self.assertEqual(result.out[:1000], whole[:1000])
        self.assertEqual(result.out[1000:], whole[-500:])
        self.assertEqual(result.out_bytes, len(whole))
        self.assertTrue(result.end_flags & TRUNCATED)

    def test_a_tail_that_takes_all_the_rest_is_not_truncated(self):
        result = self.host.run(command="printf 0123456789; printf abc >&2", output_cap=4, tail_cap=100)
        self.assertEqual((result.out, result.err), (b"0123456789", b"abc"))
        self.assertEqual((result.out_tail, result.err_tail, result.end_flags), (6, 3, 0))

    def test_tails_of_both_streams_beyond_a_window(self):
        result = self.host.run(command="head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2",
                               output_cap=0, tail_cap=1 << 30)
        self.assertEqual((len(result.out), len(result.err)), (1 << 20, 1 << 20))
        self.assertEqual((result.out_tail, result.err_tail), (1 << 20, 1 << 20))
        self.assertEqual((result.out_bytes, result.err_bytes), (3000000, 2000000))

    def test_a_timed_out_command_has_its_tail_and_a_cancelled_one_none(self):
        script = "yes | head -c 100000; echo last; sleep 100"
        result = self.host.run(command=script, output_cap=10, tail_cap=5, timeout_ms=2000)
        self.assertEqual(result.out[-5:], b"last\n")
        self.assertTrue(result.end_flags & TIMED_OUT)
        stream = self.host.call(EXEC, ("command", script), ("output_cap", 10), ("tail_cap", 5))
        time.sleep(0.3)
        self.host.send(frame(CANCEL, stream))
        result = self.host.finish(stream)
        self.assertEqual(result.out_tail, 0)
        self.assertTrue(result.end_flags & WAS_CANCELLED)


@unittest.skipIf("asan" in os.environ.get("PADDOCK_AGENT", ""), "the sanitizer needs memory of its own")
class JobWithoutMemory(AgentTest):
    @staticmethod
    def prepare():
        resource.setrlimit(resource.RLIMIT_DATA, (8 << 20, 8 << 20))

    def test_rings_hold_less_and_the_agent_stays(self):
        for i in range(RUNNING_MAX):
            self.host.start(f"ex_{i}", command="head -c 3000000 /dev/zero; echo end >&2")
        for i in range(RUNNING_MAX):
            result = self.host.wait(f"ex_{i}", timeout=60)
            self.assertEqual((result.status, result.out_bytes, result.err_bytes), (OK, 3000000, 4))
            got = self.host.output(f"ex_{i}", timeout=60)
            self.assertEqual(got.status, OK)
            self.assertLessEqual(len(got.out), RING + (128 << 10))
        result = self.host.run(command="head -c 3000000 /dev/zero", output_cap=5, tail_cap=1 << 20)
        self.assertEqual((result.status, result.out_bytes), (OK, 3000000))
        self.assert_usable()


class JobWithoutCgroup(AgentTest):
    has_cgroup = False

    def test_time_out_and_signal(self):
        self.host.start("ex_1", command="sleep 6666 & sleep 6666", timeout_ms=300)
        self.assertEqual(self.host.wait("ex_1", timeout=30).end_flags, TIMED_OUT)
        self.host.start("ex_2", command="sleep 6666 & sleep 6666")
        self.wait_for(lambda: self.agent.commands().count("sleep 6666") == 2, "not up")
        self.host.short(SIGNAL, id="ex_2", signal=15)
        self.assertEqual(self.host.wait("ex_2", timeout=30).signal, 15)
        self.wait_for(lambda: self.agent.commands() == [], "some are left")


class Hostile(AgentTest):
    def test_malformed_bodies_end_the_call_alone(self):
        self.host.start("ex_1", "sleep", "100")
        for kind in (SIGNAL, JOB_START, JOB_WAIT, JOB_READ, JOB_INPUT, JOB_RESIZE, JOB_LIST, JOB_FORGET):
            for payload in (b"x", b"\xff" * 8, body((24, b"ex_1"), (35, b"123")), body(("id", b"a\0b")),
                            body(("id", "x" * 300))):
                stream = self.host.new_id()
                self.host.send(frame(kind, stream, payload))
                self.assertIn(self.host.finish(stream).status, (INVALID, NOT_FOUND), (kind, payload))
            stream = self.host.new_id()
            self.host.send(frame(kind, stream, body(("id", "ex_1"), (0x8000 | 777, b""))))
            self.assert_status(self.host.finish(stream), UNSUPPORTED)
        self.assert_status(self.host.output("ex_1", job_flags=1 << 7), UNSUPPORTED)
        self.assert_status(self.host.run("true", exec_flags=EXEC_TTY), UNSUPPORTED)
        self.assert_usable()

    def test_offsets_and_lengths_at_their_ends(self):
        self.host.start("ex_1", "echo", "hi")
        self.host.wait("ex_1")
        top = (1 << 64) - 1
        self.assertEqual(self.host.output("ex_1", length=top, wait_ms=top).out, b"hi\n")
        self.assertEqual(self.host.output("ex_1", offset=1, length=top, job_flags=JOB_FOLLOW).out, b"i\n")
        self.assertEqual(self.host.output("ex_1", length=0, job_flags=JOB_FOLLOW).out, b"")
        self.assert_status(self.host.output("ex_1", offset=top), INVALID)
        self.assert_usable()

    def test_many_readers_of_many_jobs_at_the_same_time(self):
        for i in range(8):
            self.host.start(f"ex_{i}", command="while ! [ -e go ]; do sleep 0.05; done; seq 1 30000")
        streams = [self.host.call(JOB_READ, ("id", f"ex_{i % 8}"), ("job_flags", JOB_FOLLOW))
                   for i in range(STREAMS_MAX)]
        refused = self.host.call(JOB_LIST)
        ends = {}
        while len(ends) < STREAMS_MAX + 1:
            got = self.host.read()
            if got.kind == END and got.stream == refused:
                (self.agent.workspace / "go").touch()
            if got.kind == DATA:
                self.host.send(frame(WINDOW, got.stream, struct.pack("<I", len(got.payload)), got.channel))
            elif got.kind == END:
                ends[got.stream] = unbody(got.payload)
        self.assertEqual(ends[refused]["status"], BUSY)
        whole = len(b"".join(b"%d\n" % i for i in range(1, 30001)))
        for stream in streams:
            self.assertEqual((ends[stream]["status"], ends[stream]["offset"]), (OK, whole))

    def test_random_calls_leave_nothing_behind(self):
        chance = random.Random(11)
        kinds = (JOB_START, JOB_START, JOB_START, SIGNAL, JOB_WAIT, JOB_READ, JOB_READ, JOB_INPUT,
                 JOB_RESIZE, JOB_LIST, JOB_FORGET, EXEC)
        commands = ("true", "cat", "seq 1 200000", "yes", "sleep 100", "sleep 0.05 & sleep 0.05",
                    "exec >&-; sleep 100", "printf x >&2; kill -9 $$")

        def pipes():
            fds = f"/proc/{self.agent.process.pid}/fd"
            links = [os.readlink(f"{fds}/{n}") for n in os.listdir(fds) if int(n) > 2]
            return [link for link in links if "pipe:" in link or "ptmx" in link]

        for _ in range(25):
            for _ in range(60):
                fields = [("id", f"ex_{chance.randrange(12)}"), ("command", chance.choice(commands)),
                          ("timeout_ms", chance.choice((0, 0, 50, 5000))),
                          ("exec_flags", chance.choice((0, EXEC_STDIN, EXEC_TTY))),
                          ("job_flags", chance.choice((0, 1, 2))), ("signal", chance.choice((1, 9, 15, 18, 19))),
                          ("offset", chance.choice((0, 5, 100000))), ("wait_ms", chance.choice((0, 20))),
                          ("length", chance.choice((0, 1, 5000, 1 << 40))), ("rows", chance.randrange(3)),
                          ("cols", chance.randrange(3))]
                stream = self.host.call(chance.choice(kinds), *fields)
                if chance.random() < 0.3:
                    self.host.send(frame(DATA, stream, b"x" * chance.randrange(1, 5000), IN))
                if chance.random() < 0.3:
                    self.host.send(frame(CLOSE, stream, b"", IN))
                if chance.random() < 0.3:
                    self.host.send(frame(CANCEL, stream))
            self.host.sync()
        while self.host.jobs():
            for job in self.host.jobs():
                self.host.short(SIGNAL, id=job["id"], signal=18)
                self.host.short(SIGNAL, id=job["id"], signal=9)
                self.assert_status(self.host.wait(job["id"], timeout=30), OK)
                self.assert_status(self.host.short(JOB_FORGET, id=job["id"]), OK)
        self.wait_for(lambda: pipes() == [], "descriptors leak")
        self.assert_usable()

    def test_gaps_do_not_overrun_the_port(self):
        """A slow reader beside a flood: each turn may drop bytes, and none may fill the reserve."""
        self.host.start("ex_1", "yes")
        streams = [self.host.call(JOB_READ, ("id", "ex_1"), ("job_flags", JOB_FOLLOW)) for _ in range(8)]
        fast, deadline = streams[0], time.monotonic() + 3
        while time.monotonic() < deadline:
            got = self.host.read()
            self.assertNotEqual(got.kind, ABORT)
            if got.kind == DATA:
                amount = len(got.payload) if got.stream == fast else 1
                self.host.send(frame(WINDOW, got.stream, struct.pack("<I", amount), got.channel))
        self.host.sync()
        self.assertTrue(self.host.jobs()[0]["job_flags"] & JOB_RUNNING)
        self.assert_usable()


if __name__ == "__main__":
    main()
