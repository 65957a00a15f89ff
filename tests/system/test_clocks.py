"""The guest's wall clock is the host's, whatever happened to either."""
import contextlib
import os
import signal
import socket
import sys
import time
import unittest

from paddock import LONG, ROOT, SystemTest, wait_for

sys.path.insert(0, str(ROOT / "tests/agent"))
import paddock_proto  # noqa: E402

CLOSE_S = 0.1
# adjtimex() with ADJ_OFFSET_SS_READ; struct timex begins with its modes and the offset.
ADJTIME_LEFT = 'my $t = pack("I x4 q x256", 0xa001, 0); syscall(159, $t); print unpack("x8 q", $t)'
STOP_S = 61 if LONG else 12


class Clocks(SystemTest):
    waits = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.client.create(name="clock", temporary=False)["id"]

    def assert_close(self):
        ahead, doubt = self.client.clock_ahead(self.sandbox)
        print(f"      {ahead * 1e3:+.1f} ms, give or take {doubt * 1e3:.1f}", flush=True)
        self.assertLess(abs(ahead), CLOSE_S + doubt)

    def answers(self):
        return self.client.call("POST", f"/v1/sandboxes/{self.sandbox}/exec", {"args": ["/bin/true"]}).status == 200

    def test_clocks_agree_from_the_start_on(self):
        self.assert_close()
        time.sleep(5)
        self.assert_close()

    def test_clocks_agree_after_the_guest_was_stopped(self):
        pid = self.daemon.qemu_pid(self.sandbox)
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(STOP_S)
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_for(self.answers, 30, "it answers", pause=0.2)
        self.assert_close()

    @contextlib.contextmanager
    def in_place_of_paddockd(self):
        """A conversation with the agent; paddockd is back after it."""
        self.daemon.terminate()
        try:
            with socket.socket(socket.AF_UNIX) as channel:
                channel.connect(str(next(self.daemon.state.rglob("agent"))))
                host = paddock_proto.Host(channel)
                host.sync()
                yield host
        finally:
            self.daemon.start_again()
            self.client.port = self.daemon.port
            wait_for(self.answers, 30, "it answers", pause=0.2)

    def test_a_clock_that_went_wrong_is_set_right(self):
        with self.in_place_of_paddockd() as host:
            def configure(*fields):
                return host.finish(host.call(paddock_proto.CONFIGURE, *fields))

            def still_to_slew():
                """In microseconds: what adjtime(3) has left to do."""
                return int(host.run("perl", "-e", ADJTIME_LEFT).out)

            def ahead():
                """At least and at most: the best of several, as the way there and back takes its time."""
                looks = []
                for _ in range(10):
                    asked = time.time_ns()
                    guest = configure().realtime_ns
                    looks.append(((guest - time.time_ns()) / 1e9, (guest - asked) / 1e9))
                return max(low for low, _ in looks), min(high for _, high in looks)

            def assert_ahead(wanted, delta):
                low, high = ahead()
                self.assertLess(low, wanted + delta)
                self.assertGreater(high, wanted - delta)

            low, high = ahead()
            was = (low + high) / 2
            configure(("clock_shift_ns", 300 * 10**9))
            assert_ahead(was + 300, 0.05)
            configure(("clock_shift_ns", 2**64 - 301 * 10**9))
            assert_ahead(was - 1, 0.05)
            # Little by little, so that nobody sees time go back.
            configure(("clock_shift_ns", 2**64 - 40 * 10**6))
            assert_ahead(was - 1, 0.02)
            self.assertTrue(-40_000 <= still_to_slew() <= -30_000)
            # A time that is off by what its way here may have taken isn't set.
            low, high = ahead()
            now = time.time_ns() + round((low + high) / 2 * 1e9)
            configure(("realtime_ns", now - 20 * 10**6))
            assert_ahead((low + high) / 2, 0.01)
        self.assert_close()


if __name__ == "__main__":
    unittest.main()
