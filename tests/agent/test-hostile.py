"""A host that breaks the rules, or is broken: the agent aborts and hunts; it never dies or grows."""

import os
import random
import struct
import threading
import time

from harness import AgentTest, main
from paddock_proto import *


class Hostile(AgentTest):
    def expect_abort(self, *frames):
        """ABORT comes, then nothing until the next SYNC."""
        self.host.send(b"".join(frames))
        deadline = time.monotonic() + 30
        while True:
            got = self.host.read(max(deadline - time.monotonic(), 0.1))
            if got.kind == ABORT:
                fields = unbody(got.payload)
                self.assertEqual(fields["status"], INVALID)
                self.assertNotEqual(fields["text"], "")
                break
        self.assertTrue(self.host.is_quiet(0.1))
        self.assert_usable()

    def test_malformed_frames(self):
        header = lambda length, kind, stream=0, flags=0: struct.pack("<IHHI", length, kind, flags, stream)
        for data in (header(PAYLOAD_MAX + 1, EXEC, 1), header(0xffffffff, EXEC, 1),
                     header(0, 0), header(0, 7), header(0, 15), header(0, 22, 1), header(0, 31, 1),
                     header(0, 38, 1), header(0, 0xffff, 1), header(0, END, 1), header(0, STARTED, 1),
                     header(0, SYNC_ACK), header(0, PONG), header(0, EXEC, 0), header(0, HELLO, 1),
                     header(31, SYNC), header(33, SYNC), header(65, PING), header(3, WINDOW, 1, OUT),
                     header(1, CLOSE, 1, IN), header(1, CANCEL, 1), header(0, DATA, 1, IN),
                     header(1, DATA, 1, OUT), header(1, DATA, 1, 3), header(1, DATA, 1, 255),
                     header(4, WINDOW, 1, IN), header(1, EXEC, 1, 1), header(1, EXEC, 1, 0x8000),
                     header(0, HELLO, 0, MORE), frame(SYNC, 0, bytes(32))):
            with self.subTest(data=data):
                self.expect_abort(data)

    def test_frames_for_streams_that_never_were(self):
        for data in (frame(DATA, 9, b"x", IN), frame(CLOSE, 9, b"", IN), frame(CANCEL, 9),
                     frame(WINDOW, 9, struct.pack("<I", 1), OUT), frame(CANCEL, 0xffffffff)):
            self.expect_abort(data)

    def test_stream_numbers_must_rise(self):
        request = body(("arg", "true"))
        for numbers in ((1, 1), (1, 2, 1), (1, 2, 3, 2)):
            self.expect_abort(*[frame(EXEC, number, request) for number in numbers])

    def test_stream_numbers_are_not_skipped(self):
        request = body(("arg", "true"))
        for numbers in ((2,), (0xffffffff,), (1, 3), (1, 2, 4)):
            self.expect_abort(*[frame(EXEC, number, request) for number in numbers])

    def test_a_number_of_an_ended_call_is_not_used_again(self):
        self.host.run("true")
        self.expect_abort(frame(EXEC, 1, body(("arg", "true"))))

    def test_data_beyond_the_window(self):
        request = body(("command", "sleep 100"), ("exec_flags", EXEC_STDIN))
        self.expect_abort(frame(EXEC, 1, request), *[frame(DATA, 1, bytes(PAYLOAD_MAX), IN)] * 4,
                          frame(DATA, 1, b"x", IN), frame(DATA, 1, bytes(PAYLOAD_MAX), IN))

    def test_data_after_close(self):
        request = body(("command", "sleep 100"), ("exec_flags", EXEC_STDIN))
        self.expect_abort(frame(EXEC, 1, request), frame(CLOSE, 1, b"", IN), frame(DATA, 1, b"x", IN))

    def test_a_window_beyond_its_maximum(self):
        for credit in (WINDOW_MAX - WINDOW_INITIAL + 1, 0xffffffff):
            self.expect_abort(frame(EXEC, 1, body(("command", "sleep 100"))),
                              frame(WINDOW, 1, struct.pack("<I", credit), OUT))
        self.host.sync()
        self.host.send(frame(EXEC, 1, body(("command", "echo x"))) +
                       frame(WINDOW, 1, struct.pack("<I", WINDOW_MAX - WINDOW_INITIAL), OUT))
        self.assertEqual(self.host.finish(1).out, b"x\n")

    def test_floods_of_calls_are_answered_busy(self):
        count = 500
        self.host.send(b"".join(frame(EXEC, i, body(("command", "sleep 2"))) for i in range(1, count + 1)))
        ends = {}
        while len(ends) < count:
            got = self.host.read()
            if got.kind == END:
                self.assertNotIn(got.stream, ends)
                ends[got.stream] = unbody(got.payload)["status"]
        self.assertEqual(list(ends.values()).count(OK), STREAMS_MAX)
        self.assertEqual(list(ends.values()).count(BUSY), count - STREAMS_MAX)
        self.assert_usable()

    def test_data_for_a_refused_call_is_ignored(self):
        for i in range(1, STREAMS_MAX + 2):
            self.host.send(frame(EXEC, i, body(("command", "sleep 1"), ("exec_flags", EXEC_STDIN))))
        self.host.send(frame(DATA, STREAMS_MAX + 1, b"x", IN) + frame(CANCEL, STREAMS_MAX + 1))
        self.host.send(frame(PING, 0, b"p"))
        while (got := self.host.read()).kind != PONG:
            self.assertNotEqual(got.kind, ABORT)
        self.assert_usable()

    def test_requests_in_part(self):
        big = body(("command", "v=" + "x" * 200000 + "; echo ${#v}"))
        parts = [big[i:i + 1000] for i in range(0, len(big), 1000)]
        self.host.send(b"".join(frame(EXEC, 1, p, MORE) for p in parts[:-1]) + frame(EXEC, 1, parts[-1]))
        self.assertEqual(self.host.finish(1).out, b"200000\n")
        # Cut anywhere, several at once.
        small = body(("arg", "echo"), ("arg", "hi"))
        for i, byte in enumerate(small):
            more = MORE if i + 1 < len(small) else 0
            self.host.send(b"".join(frame(EXEC, s, bytes([byte]), more) for s in (2, 3, 4, 5)))
        ends = {}
        out = {}
        while len(ends) < 4:
            got = self.host.read()
            if got.kind == DATA:
                out[got.stream] = out.get(got.stream, b"") + got.payload
            if got.kind == END:
                ends[got.stream] = got
        self.assertEqual(out, {s: b"hi\n" for s in (2, 3, 4, 5)})

    def test_a_cancelled_part_is_ended(self):
        self.host.send(frame(EXEC, 1, b"abc", MORE) + frame(CANCEL, 1))
        self.assert_status(self.host.finish(1), CANCELLED)
        self.host.next_id = 2
        self.assertEqual(self.host.run("true").exit_code, 0)

    def test_too_many_and_too_large_parts(self):
        self.expect_abort(*[frame(EXEC, i, b"abc", MORE) for i in range(1, 6)])
        self.expect_abort(*[frame(EXEC, 1, bytes(PAYLOAD_MAX), MORE)] * 17)
        self.expect_abort(frame(EXEC, 1, b"abc", MORE), frame(FILE_GET, 1, b"abc"))
        self.expect_abort(frame(EXEC, 1, b"abc", MORE), frame(DATA, 1, b"abc", IN))

    def test_the_largest_request_is_taken(self):
        size = 1 << 20
        fixed = body(("command", ""))
        request = body(("command", ":" + " " * (size - len(fixed) - 1)))
        self.assertEqual(len(request), size)
        self.host.send(b"".join(frame(EXEC, 1, request[i:i + PAYLOAD_MAX],
                                      MORE if i + PAYLOAD_MAX < size else 0)
                                for i in range(0, size, PAYLOAD_MAX)))
        self.assertEqual(self.host.finish(1).exit_code, 0)

    def test_malformed_bodies(self):
        for kind, numbers in ((EXEC, (20, 21, 22, 23)), (FILE_PUT, (33, 34, 35, 37)), (FILE_GET, (35, 36)),
                              (FILE_LIST, (34, 39)), (CONFIGURE, (48, 51, 53))):
            good = {EXEC: [("arg", "true")], CONFIGURE: []}.get(kind, [("path", "x")])
            for data in (b"\x01", bytes(7), b"\x10\0\1\0\0\0\0\0", struct.pack("<HHI", 16, 0, 0xffffffff),
                         struct.pack("<HHI", 32, 0, 9) + b"short", body((51, bytes(8)), ("arg", "true"))[:-1],
                         *[body(*good, (number, b"abc")) for number in numbers],
                         *[body(*good, (number, bytes(9))) for number in numbers]):
                with self.subTest(kind=kind, data=data):
                    stream = self.host.new_id()
                    self.host.send(frame(kind, stream, data))
                    self.assert_status(self.host.finish(stream), INVALID)
        self.assert_usable()

    def test_a_host_that_never_reads(self):
        self.host.send(frame(EXEC, 1, body(("command", "yes"))))
        self.host.sock.setblocking(False)
        sent = 0
        ping = frame(PING, 0, bytes(64)) * 1000
        deadline = time.monotonic() + 3
        quiet_since = time.monotonic()
        while time.monotonic() < deadline and time.monotonic() - quiet_since < 1:
            try:
                sent += self.host.sock.send(ping)
                quiet_since = time.monotonic()
            except BlockingIOError:
                time.sleep(0.02)
        self.assertGreater(time.monotonic() - quiet_since, 0.9, "it takes requests without end")
        self.assertLess(self.agent.rss_kib(), 100000)
        self.assertEqual(self.agent.process.poll(), None)
        # Reads at last: everything that was taken is answered. The last ping may have been cut.
        self.host.sock.setblocking(True)
        while not self.host.is_quiet(0.5):
            pass
        self.assert_usable()

    def test_a_host_that_pauses_in_the_middle_is_waited_for(self):
        """Requests that wait for room to be answered aren't an unfinished frame."""
        count = 30000
        pings = b"".join(frame(PING, 0, struct.pack("<I", i) + bytes(60)) for i in range(count))
        writer = threading.Thread(target=self.host.send, args=(pings,))
        writer.start()
        time.sleep(2)  # longer than half a frame may take
        for i in range(count):
            got = self.host.read()
            self.assertEqual((got.kind, got.payload[:4]), (PONG, struct.pack("<I", i)))
        writer.join()

    def test_random_bytes(self):
        random.seed(1)
        for _ in range(30):
            self.host.send(random.randbytes(random.randrange(1, 60000)))
        self.assert_usable()

    def test_mutated_conversations(self):
        """Valid sessions with a few bytes changed: deeper than noise comes."""
        random.seed(2)
        hello = frame(HELLO, 0, body(("version", 1)))
        talk = [frame(EXEC, 1, body(("command", "cat; echo x"), ("exec_flags", EXEC_STDIN), ("cwd", "/"),
                                    ("env", "A=b"), ("timeout_ms", 2000), ("output_cap", 100))),
                frame(DATA, 1, b"hello" * 10, IN), frame(CLOSE, 1, b"", IN),
                frame(WINDOW, 1, struct.pack("<I", 100), OUT),
                frame(FILE_PUT, 2, body(("path", "f"), ("mode", 0o600), ("size", 3))),
                frame(DATA, 2, b"abc", IN), frame(CLOSE, 2, b"", IN),
                frame(FILE_GET, 3, body(("path", "f"), ("offset", 1), ("length", 5))),
                frame(FILE_LIST, 4, body(("path", "."), ("file_flags", 2), ("limit", 9))),
                frame(CONFIGURE, 5, body(("env", "X=y"), ("entropy", b"x"), ("hostname", "h"))),
                frame(PING, 0, b"ping"), frame(CANCEL, 4), frame(EXEC, 6, body(("arg", "true")))]
        for _ in range(300):
            data = bytearray(b"".join(talk))
            for _ in range(random.randrange(1, 5)):
                data[random.randrange(len(data))] = random.choice((0, 1, 0xff, random.randrange(256)))
            nonce = os.urandom(16)
            self.host.send(frame(SYNC, 0, MAGIC + nonce) + hello + bytes(data))
            self.host.buffer = b""
            while not self.host.is_quiet(0.005):
                pass
        self.assert_usable()
        self.assertLess(self.agent.rss_kib(), 300000)

    def test_sync_floods(self):
        self.host.send(frame(EXEC, 1, body(("command", "sleep 100"))))
        for _ in range(100):
            self.host.send(frame(SYNC, 0, MAGIC + os.urandom(16)) * 20)
            while not self.host.is_quiet(0.001):
                pass
        self.assert_usable()

    def test_nothing_grows_over_many_lost_sessions(self):
        def lose():
            self.host.sync()
            self.host.send(frame(EXEC, 1, body(("command", "cat"), ("exec_flags", EXEC_STDIN))) +
                           frame(FILE_PUT, 2, body(("path", "f"))) + frame(DATA, 2, bytes(1000), IN) +
                           frame(EXEC, 3, bytes(5000), MORE) + frame(DATA, 1, bytes(60000), IN) * 4)
        for _ in range(10):
            lose()
        self.host.sync()
        descriptors, rss = self.agent.descriptors(), self.agent.rss_kib()
        for _ in range(100):
            lose()
        self.host.sync()
        self.wait_for(lambda: self.agent.descriptors() <= descriptors + 12, "descriptors leak")
        self.assertLess(self.agent.rss_kib(), rss + 30000)
        self.assert_usable()


if __name__ == "__main__":
    main()
