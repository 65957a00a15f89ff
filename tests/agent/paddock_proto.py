"""The host's side of the guest protocol, for tests: small, blocking and free to break every rule.

PROTOCOL.md is the contract; the numbers here are written out again rather than read from the
headers, so that a number changed by mistake makes a test fail.
"""

import os
import select
import socket
import struct
import time

MAGIC = bytes([0xff, 0x50, 0x44, 0x4b, 0x9d, 0x1c, 0xe2, 0x77,
               0x05, 0xb8, 0x63, 0xfa, 0x31, 0xce, 0x8a, 0x0e])

SYNC, SYNC_ACK, HELLO, ABORT, PING, PONG = 1, 2, 3, 4, 5, 6
EXEC, FILE_PUT, FILE_GET, FILE_LIST, CONFIGURE, SHUTDOWN = 16, 17, 18, 19, 20, 21
SIGNAL, JOB_START, JOB_WAIT, JOB_READ, JOB_INPUT, JOB_RESIZE, JOB_LIST, JOB_FORGET = range(22, 30)
DATA, CLOSE, WINDOW, CANCEL, STARTED, END, GAP = 32, 33, 34, 35, 36, 37, 38
IN, OUT, ERR = 0, 1, 2
MORE = 0x100

TAGS = {
    "version": (1, "u32"), "features": (2, "u64"), "software": (3, "text"),
    "boot_id": (4, "text"), "image": (5, "text"),
    "arg": (16, "text"), "command": (17, "text"), "cwd": (18, "text"), "env": (19, "text"),
    "timeout_ms": (20, "u64"), "grace_ms": (21, "u64"), "output_cap": (22, "u64"),
    "exec_flags": (23, "u32"), "id": (24, "text"), "shell": (25, "text"), "tail_cap": (26, "u64"),
    "rows": (27, "u32"), "cols": (28, "u32"),
    "path": (32, "bytes"), "mode": (33, "u32"), "file_flags": (34, "u32"), "offset": (35, "u64"),
    "length": (36, "u64"), "size": (37, "u64"), "mtime_ns": (38, "u64"), "limit": (39, "u32"),
    "realtime_ns": (48, "u64"), "entropy": (49, "bytes"), "hostname": (50, "text"),
    "deadline_ms": (51, "u64"), "ca": (52, "bytes"), "env_reset": (53, "u32"),
    "clock_shift_ns": (54, "u64"),
    "pid": (64, "u32"),
    "status": (80, "u32"), "errno": (81, "u32"), "text": (82, "text"), "exit_code": (83, "u32"),
    "signal": (84, "u32"), "end_flags": (85, "u32"), "out_bytes": (86, "u64"),
    "err_bytes": (87, "u64"), "duration_us": (88, "u64"), "bytes": (89, "u64"),
    "out_tail": (90, "u64"), "err_tail": (91, "u64"),
    "wait_ms": (96, "u64"), "job_flags": (97, "u32"), "first_offset": (98, "u64"),
    "end_offset": (99, "u64"),
}
NAMES = {number: (name, kind) for name, (number, kind) in TAGS.items()}

OK, INVALID, NOT_FOUND, PERMISSION, EXISTS, IS_DIRECTORY, NOT_DIRECTORY, NO_SPACE = range(8)
READ_ONLY, NAME_TOO_LONG, LOOP, NOT_REGULAR, BUSY, UNSUPPORTED, CANCELLED, IO, INTERNAL = range(8, 17)
LIMIT = 17

FEATURE_CGROUP, FEATURE_RESIZE, FEATURE_JOBS, FEATURE_PTY = 1, 2, 4, 8
EXEC_STDIN, EXEC_ROOT, EXEC_TTY = 1, 2, 4
JOB_FOLLOW, JOB_CLOSE, JOB_RUNNING, JOB_TTY = 1, 2, 4, 8
FILE_PARENTS, FILE_RECURSIVE, FILE_APPEND = 1, 2, 4
TIMED_OUT, TRUNCATED, WAS_CANCELLED = 1, 2, 4

WINDOW_INITIAL = 256 * 1024
WINDOW_MAX = 4 * 1024 * 1024
PAYLOAD_MAX = 65536
STREAMS_MAX = 64


def frame(kind, stream=0, payload=b"", flags=0):
    return struct.pack("<IHHI", len(payload), kind, flags, stream) + payload


def body(*fields):
    """body(("arg", "ls"), (raw_tag, b"..")): names by TAGS, numbers as they are."""
    out = b""
    for tag, value in fields:
        kind = "bytes"
        if isinstance(tag, str):
            tag, kind = TAGS[tag]
        if kind == "u32":
            value = struct.pack("<I", value)
        elif kind == "u64":
            value = struct.pack("<Q", value)
        elif isinstance(value, str):
            value = os.fsencode(value)
        out += struct.pack("<HHI", tag, 0, len(value)) + value
    return out


def unbody(data):
    fields = {}
    while data:
        tag, zero, length = struct.unpack_from("<HHI", data)
        assert zero == 0 and length <= len(data) - 8, "malformed field"
        value, data = data[8:8 + length], data[8 + length:]
        name, kind = NAMES.get(tag, (tag, "bytes"))
        if kind == "u32":
            value, = struct.unpack("<I", value)
        elif kind == "u64":
            value, = struct.unpack("<Q", value)
        elif kind == "text":
            value = value.decode()
        fields[name] = value
    return fields


def entries(data):
    found = []
    while data:
        length, mode, size, mtime_ns, kind = struct.unpack_from("<IIQQB", data)
        assert 28 < length <= len(data), "an entry crosses the end of its frame"
        found.append((os.fsdecode(data[28:length]), chr(kind), mode, size, mtime_ns))
        data = data[length:]
    return found


def jobs(data):
    found = []
    while data:
        length, = struct.unpack_from("<I", data)
        assert 4 < length <= len(data), "an entry crosses the end of its frame"
        found.append(unbody(data[4:length]))
        data = data[length:]
    return found


class Frame:
    def __init__(self, kind, flags, stream, payload):
        self.kind, self.flags, self.stream, self.payload = kind, flags, stream, payload

    @property
    def channel(self):
        return self.flags & 0xff

    def __repr__(self):
        return f"Frame({self.kind}, {self.flags:#x}, {self.stream}, {self.payload[:60]!r})"


class Closed(Exception):
    pass


class Aborted(Exception):
    pass


class Result(dict):
    """Fields of END, with what came before."""

    out = err = b""
    started = None
    frames = ()
    seconds = 0.0

    def __getattr__(self, name):
        return self.get(name, 0)


class Host:
    """One connection. Keeps the rules unless told otherwise."""

    def __init__(self, sock, timeout=60):
        self.sock = sock
        self.timeout = timeout
        self.buffer = b""
        self.next_id = 1
        self.hello = None

    def send(self, data):
        self.sock.settimeout(self.timeout)
        self.sock.sendall(data)

    def _more(self, deadline):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([self.sock], [], [], left)[0]:
            raise TimeoutError("the agent says nothing")
        data = self.sock.recv(1 << 18)
        if not data:
            raise Closed()
        self.buffer += data

    def read(self, timeout=None):
        deadline = time.monotonic() + (timeout or self.timeout)
        while len(self.buffer) < 12:
            self._more(deadline)
        length, kind, flags, stream = struct.unpack_from("<IHHI", self.buffer)
        assert length <= PAYLOAD_MAX, "oversize frame from the agent"
        while len(self.buffer) < 12 + length:
            self._more(deadline)
        payload, self.buffer = self.buffer[12:12 + length], self.buffer[12 + length:]
        return Frame(kind, flags, stream, payload)

    def is_quiet(self, seconds):
        try:
            return self.read(seconds) is None
        except TimeoutError:
            return True

    def sync(self, hello=True, before=b""):
        """SYNC, then everything up to our nonce is thrown away."""
        nonce = os.urandom(16)
        self.send(before + frame(SYNC, 0, MAGIC + nonce))
        want = frame(SYNC_ACK, 0, MAGIC + nonce)
        deadline = time.monotonic() + self.timeout
        while want not in self.buffer:
            self._more(deadline)
        self.buffer = self.buffer[self.buffer.index(want) + len(want):]
        got = self.read()
        assert got.kind == HELLO, got
        self.hello = unbody(got.payload)
        self.next_id = 1
        if hello:
            self.send(frame(HELLO, 0, body(("version", 1), ("features", 0),
                                           ("software", "test/1"))))
        return self.hello

    def new_id(self):
        self.next_id += 1
        return self.next_id - 1

    def call(self, kind, *fields):
        """Sends a request, in parts when it has to; returns the stream."""
        stream, data = self.new_id(), body(*fields)
        while len(data) > PAYLOAD_MAX:
            self.send(frame(kind, stream, data[:PAYLOAD_MAX], MORE))
            data = data[PAYLOAD_MAX:]
        self.send(frame(kind, stream, data))
        return stream

    def finish(self, stream, stdin=None, timeout=None):
        """Feeds stdin and collects until END, giving credit as it goes."""
        result, out, start = Result(), {OUT: [], ERR: []}, time.monotonic()
        result.order, result.gaps = [], []
        credit, sent, frames = WINDOW_INITIAL, 0, []
        if stdin is not None and not stdin:
            self.send(frame(CLOSE, stream, b"", IN))
            stdin = None
        while True:
            while stdin is not None and credit > 0 and sent < len(stdin):
                piece = stdin[sent:sent + min(credit, PAYLOAD_MAX)]
                self.send(frame(DATA, stream, piece, IN))
                sent += len(piece)
                credit -= len(piece)
                if sent == len(stdin):
                    self.send(frame(CLOSE, stream, b"", IN))
            got = self.read(timeout)
            if got.kind == ABORT:
                raise Aborted(unbody(got.payload))
            if got.stream != stream:
                continue
            frames.append(got.kind)
            if got.kind == DATA:
                out[got.channel].append(got.payload)
                if result.order and result.order[-1][0] == got.channel:
                    result.order[-1][1] += got.payload
                else:
                    result.order.append([got.channel, bytearray(got.payload)])
                self.send(frame(WINDOW, stream, struct.pack("<I", len(got.payload)), got.channel))
            elif got.kind == WINDOW:
                credit += struct.unpack("<I", got.payload)[0]
                assert credit <= WINDOW_MAX
            elif got.kind == GAP:
                result.gaps.append(struct.unpack("<Q", got.payload)[0])
            elif got.kind == STARTED:
                result.started = unbody(got.payload)
            elif got.kind == END:
                result.update(unbody(got.payload))
                result.pieces = out[OUT]
                result.out, result.err = b"".join(out[OUT]), b"".join(out[ERR])
                result.frames, result.seconds = frames, time.monotonic() - start
                return result

    def run(self, *args, stdin=None, timeout=None, **options):
        """run("ls", "-l") or run(command="ls -l")."""
        fields = [("arg", a) for a in args]
        for name, value in options.items():
            values = value if isinstance(value, list) else [value]
            fields += [(name, v) for v in values]
        if stdin is not None:
            fields.append(("exec_flags", options.get("exec_flags", 0) | EXEC_STDIN))
        return self.finish(self.call(EXEC, *fields), stdin, timeout)

    def put(self, path, data, timeout=None, **options):
        return self.finish(self.call(FILE_PUT, ("path", path), *options.items()), data, timeout)

    def get(self, path, timeout=None, **options):
        return self.finish(self.call(FILE_GET, ("path", path), *options.items()), None, timeout)

    def list(self, path, timeout=None, **options):
        result = self.finish(self.call(FILE_LIST, ("path", path), *options.items()), None, timeout)
        result.entries = [e for piece in result.pieces for e in entries(piece)]
        return result

    def short(self, kind, timeout=None, stdin=None, **options):
        """A call by its fields: short(JOB_WAIT, id="ex_1")."""
        return self.finish(self.call(kind, *options.items()), stdin, timeout)

    def start(self, id, *args, timeout=None, **options):
        """JOB_START: start("ex_1", "ls", "-l") or start("ex_1", command="ls -l")."""
        fields = [("id", id)] + [("arg", a) for a in args]
        for name, value in options.items():
            values = value if isinstance(value, list) else [value]
            fields += [(name, v) for v in values]
        return self.finish(self.call(JOB_START, *fields), None, timeout)

    def wait(self, id, timeout=None):
        return self.short(JOB_WAIT, timeout, id=id)

    def output(self, id, timeout=None, **options):
        return self.short(JOB_READ, timeout, id=id, **options)

    def jobs(self):
        result = self.short(JOB_LIST)
        assert result.status == OK, result
        return [job for piece in result.pieces for job in jobs(piece)]
