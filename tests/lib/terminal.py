"""A terminal of a test's own, and a program in front of it. What it shows is kept up to KEPT bytes, the last ones."""
import fcntl
import os
import struct
import subprocess
import termios
import threading

KEPT = 65536


class Terminal:
    def __init__(self, command, environment, rows=30, cols=100):
        self.master, self.slave = os.openpty()
        self.resize(rows, cols)
        self.before = termios.tcgetattr(self.slave)
        self.shown, self.lock = b"", threading.Lock()
        self.process = subprocess.Popen(command, env=environment, stdin=self.slave, stdout=self.slave,
                                        stderr=self.slave, preexec_fn=self._take)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _take(self):
        os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

    def _read(self):
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            with self.lock:
                self.shown = (self.shown + data)[-KEPT:]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.slave)
        self.reader.join(20)
        os.close(self.master)

    def resize(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, data):
        os.write(self.master, data)

    def forget(self):
        """What was shown until now."""
        with self.lock:
            self.shown = b""

    @property
    def is_raw(self):
        return not termios.tcgetattr(self.slave)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

    @property
    def is_as_before(self):
        return termios.tcgetattr(self.slave) == self.before
