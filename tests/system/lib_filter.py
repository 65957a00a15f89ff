"""The host filter by itself, for tests that need no daemon."""
import os
import selectors
import subprocess
import time

from paddock import HOOKS_BUILD

INSTANCE = "00112233445566aa"
TABLE = f"paddock_{INSTANCE}"
FIRST, COUNT = 310000, 100


class Watch:
    """A running filter-watch and the states that it told."""

    def __init__(self, net, resolv_conf, *allow, env=None):
        self.process = subprocess.Popen(
            net.host_command([f"{HOOKS_BUILD}/tests/system/filter-watch", INSTANCE, str(FIRST),
                              str(COUNT), str(resolv_conf), *allow]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **(env or {})})
        os.set_blocking(self.process.stdout.fileno(), False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.text = ""
        self.seen = 0

    def expect(self, state, seconds=20):
        """The next state told is this one; returns (its time, reason)."""
        end = time.monotonic() + seconds
        while self.text.count("\n") <= self.seen:
            left = end - time.monotonic()
            if left <= 0:
                raise AssertionError(f"{state} not within {seconds} s; told: {self.text!r}")
            if self.selector.select(left):
                piece = self.process.stdout.read()
                if piece == b"":
                    raise AssertionError(f"ended with {self.process.wait()}: {self.text!r}")
                self.text += piece.decode()
        at, name, reason = self.text.splitlines()[self.seen].split(" ", 2)
        self.seen += 1
        if name != state:
            raise AssertionError(f"{name} ({reason}), not {state}")
        return int(at), reason

    def close(self, last_word=b""):
        if self.process.poll() is None:
            try:
                self.process.stdin.write(last_word)
                self.process.stdin.close()
            except OSError:
                pass
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self.selector.close()
        return self.process.returncode
