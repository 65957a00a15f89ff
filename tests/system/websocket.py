"""A small WebSocket client (RFC 6455) for tests: handshake, masking, fragments, ping."""
import base64
import hashlib
import json
import os
import socket
import struct
import time

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


class Refused(Exception):
    def __init__(self, status, body):
        super().__init__(f"{status} {body[:300]!r}")
        self.status, self.body = status, body


class WebSocket:
    """Messages in order; read() keeps what a terminal showed apart from what the service said."""

    def __init__(self, port, target, key, protocol="paddock.pty.v1", timeout=30):
        self.timeout = timeout
        self.deadline = time.monotonic() + timeout
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.pending = b""
        self.shown = b""
        self.words = []
        self.close_code = None
        nonce = base64.b64encode(os.urandom(16))
        self.socket.sendall(
            f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {nonce.decode()}\r\n"
            f"Sec-WebSocket-Protocol: {protocol}\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
        while b"\r\n\r\n" not in self.pending:
            self._fill()
        head, self.pending = self.pending.split(b"\r\n\r\n", 1)
        status = int(head.split(b" ", 2)[1])
        if status != 101:
            length = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
            while length and len(self.pending) < length[0]:
                self._fill()
            self.socket.close()
            raise Refused(status, self.pending)
        wanted = base64.b64encode(hashlib.sha1(nonce + GUID).digest())
        if wanted not in head or protocol.encode() not in head:
            raise AssertionError(f"a bad handshake: {head!r}")

    def _fill(self):
        # Pings keep a silent conversation alive for ever.
        if time.monotonic() > self.deadline:
            raise AssertionError(f"nothing within {self.timeout} s: {self.shown[-300:]!r} {self.words}")
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the service closed the connection")
        self.pending += data

    def _take(self, count):
        while len(self.pending) < count:
            self._fill()
        data, self.pending = self.pending[:count], self.pending[count:]
        return data

    def _frame(self):
        first, second = self._take(2)
        length = second & 127
        if second & 128:
            raise AssertionError("a service masks nothing")
        if length == 126:
            (length,) = struct.unpack(">H", self._take(2))
        elif length == 127:
            (length,) = struct.unpack(">Q", self._take(8))
        return first & 128, first & 15, self._take(length)

    def _send(self, opcode, data):
        mask = os.urandom(4)
        head = bytes([128 | opcode])
        if len(data) < 126:
            head += bytes([128 | len(data)])
        elif len(data) < 65536:
            head += bytes([128 | 126]) + struct.pack(">H", len(data))
        else:
            head += bytes([128 | 127]) + struct.pack(">Q", len(data))
        whole = int.from_bytes(data, "big") ^ int.from_bytes((mask * (len(data) // 4 + 1))[:len(data)], "big")
        self.socket.sendall(head + mask + whole.to_bytes(len(data), "big"))

    def type(self, text):
        self._send(BINARY, text if isinstance(text, bytes) else text.encode())

    def say(self, **words):
        self._send(TEXT, json.dumps(words).encode())

    def read(self):
        """One message; False: the conversation is over."""
        kind, data = None, b""
        self.deadline = time.monotonic() + self.timeout
        while True:
            is_last, opcode, part = self._frame()
            if opcode == PING:
                self._send(PONG, part)
                continue
            if opcode == CLOSE:
                self.close_code = struct.unpack(">H", part[:2])[0] if part else None
                return False
            if opcode in (TEXT, BINARY):
                kind = opcode
            data += part
            if is_last:
                break
        if kind == TEXT:
            self.words.append(json.loads(data))
        else:
            self.shown += data
        return True

    def until(self, text):
        """Reads until the terminal has shown this; what it showed before is gone then."""
        wanted = text if isinstance(text, bytes) else text.encode()
        while wanted not in self.shown:
            if not self.read():
                raise AssertionError(f"closed before {wanted!r} came: {self.shown!r} {self.words}")
        before, self.shown = self.shown.split(wanted, 1)
        return before

    def word(self, name):
        """The next thing that the service says by this name."""
        while True:
            for words in self.words:
                if name in words:
                    self.words.remove(words)
                    return words[name]
            if not self.read():
                raise AssertionError(f"closed before {name!r} was said: {self.words} {self.shown[-300:]!r}")

    def close(self):
        """Without a goodbye, as when a laptop is shut."""
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
