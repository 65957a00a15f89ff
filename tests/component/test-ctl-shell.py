#!/usr/bin/env python3
"""paddockctl's shell on a terminal of its own, against a scripted service. usage: test-ctl-shell.py PROGRAM"""
import base64
import hashlib
import json
import os
import pathlib
import queue
import signal
import struct
import subprocess
import sys
import termios
import threading
import unittest

from ctl_service import PROGRAM, CtlTest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from terminal import Terminal  # noqa: E402

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Conversation:
    """The service's end of a WebSocket."""

    def __init__(self, exchange, protocol="paddock.pty.v1"):
        self.exchange, self.heard = exchange, queue.Queue()
        key = exchange.headers["Sec-WebSocket-Key"].encode()
        proof = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        exchange.close_connection = True
        exchange.send_response(101)
        for name, value in (("Upgrade", "websocket"), ("Connection", "Upgrade"),
                            ("Sec-WebSocket-Accept", base64.b64encode(proof).decode()),
                            ("Sec-WebSocket-Protocol", protocol)):
            exchange.send_header(name, value)
        exchange.end_headers()

    @staticmethod
    def frame(opcode, data):
        length = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack(">H", len(data))
        return bytes([0x80 | opcode]) + length + data

    def send(self, opcode, data):
        self.exchange.wfile.write(self.frame(opcode, data))

    def say(self, **message):
        self.send(TEXT, json.dumps(message).encode())

    def start(self):
        self.say(start={"id": "ex_1", "offset": 0})

    def exit(self, code, **more):
        end = json.dumps({"exit": {"exit_code": code, "signal": None, "timed_out": False, **more}}).encode()
        # In one piece: the client leaves once it has heard that.
        self.exchange.wfile.write(self.frame(TEXT, end) + self.frame(CLOSE, struct.pack(">H", 1000)))

    def read_frames(self):
        """Until the client leaves; (opcode, data) go into self.heard, None at the end."""
        while len(head := self.exchange.rfile.read(2)) == 2:
            length = head[1] & 0x7f
            if length == 126:
                length, = struct.unpack(">H", self.exchange.rfile.read(2))
            mask = self.exchange.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.exchange.rfile.read(length)))
            self.heard.put((head[0] & 0x0f, data))
        self.heard.put(None)

    def next(self):
        return self.heard.get(timeout=20)

    def keys(self, count):
        """So many bytes that were typed; what else was said meanwhile is dropped."""
        data = b""
        while len(data) < count:
            opcode, piece = self.next()
            data += piece if opcode == BINARY else b""
        return data


class Shell(CtlTest):
    def setUp(self):
        super().setUp()
        self.opened = queue.Queue()

        def script(exchange):
            talk = Conversation(exchange)
            self.opened.put(talk)
            talk.read_frames()
        self.server.routes["/pty"] = script

    def terminal(self, *args, env=None, **more):
        terminal = Terminal([PROGRAM, "shell", *args], self.environment(env), **more)
        self.addCleanup(terminal.close)
        return terminal

    def open(self, *args, **more):
        """A terminal with a shell that has started: both ends."""
        terminal = self.terminal(*args, **more)
        talk = self.opened.get(timeout=20)
        talk.start()
        talk.send(BINARY, b"$ ")
        self.assert_shows(terminal, b"$ ")
        self.wait_for(lambda: terminal.is_raw)
        return terminal, talk

    def settle(self, terminal, status):
        """The program has ended, and left the terminal as it was."""
        self.assertEqual(terminal.process.wait(20), status)
        self.assertTrue(terminal.is_as_before)

    def assert_shows(self, terminal, text):
        self.wait_for(lambda: text in terminal.shown)

    # -- opening

    def test_a_shell_has_the_terminals_size(self):
        self.open("sb_1", rows=33, cols=111)
        self.assertEqual(self.last["path"], "/v1/sandboxes/sb_1/pty")
        self.assertEqual(self.last["query"], {"rows": ["33"], "cols": ["111"]})
        self.open("sb_1", "--rows=5", "--env", "A=b", env={"TERM": "xterm"}, rows=33, cols=111)
        self.assertEqual(self.last["query"],
                         {"rows": ["5"], "cols": ["111"], "env.A": ["b"], "env.TERM": ["xterm"]})
        self.open("--env", "TERM=vt100", "sb_1", env={"TERM": "xterm"})
        self.assertEqual(self.last["query"]["env.TERM"], ["vt100"])
        self.assertEqual(self.last["headers"]["Sec-WebSocket-Protocol"], "paddock.pty.v1")
        self.assertEqual(self.last["headers"]["Authorization"], "Bearer pdk_test")

    def test_a_command_keeps_its_words(self):
        self.open("--cwd", "/tmp", "sb_1", "--", "ls", "a b", "it's", "$x", "--json")
        self.assertEqual(self.last["query"]["command"], [r"""'ls' 'a b' 'it'\''s' '$x' '--json'"""])
        self.assertEqual(self.last["query"]["cwd"], ["/tmp"])
        self.open("--attach", "ex_1", "sb_1", env={"TERM": "xterm"})
        self.assertEqual(self.last["query"], {"exec": ["ex_1"], "rows": ["30"], "cols": ["100"]})

    def test_a_refusal_leaves_the_terminal_alone(self):
        self.server.routes["/pty"] = (429, {"error": {"type": "rate_limited", "message": "too many"}}, 0)
        terminal = self.terminal("sb_1")
        self.settle(terminal, 125)
        self.assert_shows(terminal, b"paddockctl: too many\r\n")
        self.server.routes["/pty"] = lambda exchange: Conversation(exchange, "other")
        self.settle(self.terminal("sb_1"), 125)

    # -- both ways

    def test_keys_and_screen_pass_as_they_are(self):
        terminal, talk = self.open("sb_1")
        keys = bytes(b for b in range(256) if b != 0x10)
        terminal.type(keys)
        self.assertEqual(talk.keys(255), keys)
        talk.send(BINARY, b"\x1b[2Jscreen\r\n\xff")
        talk.send(PING, b"?")
        self.assert_shows(terminal, b"\x1b[2Jscreen\r\n\xff")
        self.assertEqual(talk.next(), (PONG, b"?"))

    def test_ctrl_c_is_the_guests(self):
        terminal, talk = self.open("sb_1")
        terminal.type(b"\x03\x1a\x1c\x04")
        self.assertEqual(talk.keys(4), b"\x03\x1a\x1c\x04")
        self.assertIsNone(terminal.process.poll())

    def test_a_resize_is_told(self):
        terminal, talk = self.open("sb_1")
        terminal.resize(50, 132)
        self.assertEqual(talk.next(), (TEXT, b'{"resize":{"rows":50,"cols":132}}'))

    def test_a_flood_does_not_keep_keys_away(self):
        terminal, talk = self.open("sb_1")
        goes_on = True

        def flood():
            while goes_on:
                talk.send(BINARY, b"y\r\n" * 10000)
        thread = threading.Thread(target=flood, daemon=True)
        thread.start()
        self.assert_shows(terminal, b"y\r\n" * 1000)
        terminal.type(b"\x03")
        self.assertEqual(talk.keys(1), b"\x03")
        goes_on = False
        thread.join(20)

    # -- the end

    def test_the_shells_status_is_ours(self):
        for code in (0, 1, 130, 255):
            terminal, talk = self.open("sb_1")
            talk.send(BINARY, b"bye\r\n")
            talk.exit(code)
            self.settle(terminal, code)
            self.assert_shows(terminal, b"bye\r\n")

    def test_the_key_detaches(self):
        terminal, talk = self.open("sb_1")
        terminal.type(b"ls\x10")
        terminal.type(b"\x11x")
        self.assertEqual(talk.keys(2), b"ls")
        self.assertEqual(talk.next()[0], CLOSE)
        talk.send(CLOSE, struct.pack(">H", 1000))
        self.settle(terminal, 0)
        self.assert_shows(terminal, b"paddockctl shell sb_1 --attach ex_1\r\n")

    def test_half_a_key_goes_on(self):
        terminal, talk = self.open("sb_1")
        terminal.type(b"\x10")
        self.assertEqual(talk.keys(1), b"\x10")
        terminal.type(b"\x10a\x10\x10")
        self.assertEqual(talk.keys(4), b"\x10a\x10\x10")
        terminal.type(b"\x11")  # half a second later it is another one
        self.assertEqual(talk.keys(1), b"\x11")

    def test_a_lost_connection_says_how_to_come_back(self):
        for end in (lambda talk: talk.exchange.connection.shutdown(2),
                    lambda talk: talk.send(CLOSE, struct.pack(">H", 1001) + b"the service\x1b[2J stops")):
            terminal, talk = self.open("sb_1")
            end(talk)
            self.settle(terminal, 125)
            self.assert_shows(terminal, b"paddockctl shell sb_1 --attach ex_1\r\n")
            self.assertNotIn(b"\x1b[2J", terminal.shown)

    def test_what_fails_later_is_told(self):
        terminal, talk = self.open("sb_1")
        talk.say(error={"type": "sandbox_ended", "message": "the sandbox\x1b has ended"})
        self.settle(terminal, 125)
        self.assert_shows(terminal, b"paddockctl: the sandbox\\x1b has ended\r\n")

    def test_an_end_without_a_status_is_a_failure(self):
        terminal, talk = self.open("sb_1")
        talk.exit(None, error="the guest was lost")
        self.settle(terminal, 125)
        self.assert_shows(terminal, b"the guest was lost")

    # -- signals

    def test_a_hang_up_is_passed_on(self):
        terminal, talk = self.open("sb_1")
        terminal.process.send_signal(signal.SIGHUP)
        self.assertEqual(talk.next(), (TEXT, b'{"signal":"HUP"}'))
        self.assertEqual(talk.next()[0], CLOSE)
        talk.send(CLOSE, struct.pack(">H", 1000))
        self.settle(terminal, -signal.SIGHUP)

    def test_a_terminal_that_goes_is_a_hang_up(self):
        master, slave = os.openpty()
        process = subprocess.Popen([PROGRAM, "shell", "sb_1"], env=self.environment(), stdin=slave,
                                   stdout=slave, stderr=slave, start_new_session=True)
        self.addCleanup(self.end, process)
        talk = self.opened.get(timeout=20)
        talk.start()
        self.wait_for(lambda: not termios.tcgetattr(slave)[3] & termios.ICANON)
        os.close(slave)
        os.close(master)  # it isn't the controlling one: there is no signal
        self.assertEqual(talk.next(), (TEXT, b'{"signal":"HUP"}'))
        self.assertEqual(talk.next()[0], CLOSE)
        self.assertEqual(process.wait(20), -signal.SIGHUP)

    def test_a_termination_leaves_the_shell_alone(self):
        for number in (signal.SIGTERM, signal.SIGQUIT):
            terminal, talk = self.open("sb_1", env={"ASAN_OPTIONS": None})
            terminal.process.send_signal(number)
            self.assertEqual(talk.next()[0], CLOSE)
            talk.send(CLOSE, struct.pack(">H", 1000))
            self.settle(terminal, -number)
            self.assert_shows(terminal, b"paddockctl shell sb_1 --attach ex_1\r\n")

    def test_an_interrupt_from_elsewhere_is_passed_on(self):
        terminal, talk = self.open("sb_1")
        terminal.process.send_signal(signal.SIGINT)
        self.assertEqual(talk.next(), (TEXT, b'{"signal":"INT"}'))

    def is_stopped(self, process):
        return pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(") ", 1)[1][0] == "T"

    def test_a_stop_gives_the_terminal_back(self):
        terminal, talk = self.open("sb_1")
        terminal.process.send_signal(signal.SIGTSTP)
        self.wait_for(lambda: self.is_stopped(terminal.process))
        self.assertTrue(terminal.is_as_before)
        terminal.resize(40, 90)
        terminal.process.send_signal(signal.SIGCONT)
        self.wait_for(lambda: terminal.is_raw)
        self.assertEqual(talk.next(), (TEXT, b'{"resize":{"rows":40,"cols":90}}'))
        terminal.type(b"x")
        self.assertEqual(talk.keys(1), b"x")
        talk.exit(0)
        self.settle(terminal, 0)

    def test_a_stop_that_can_not_be_caught_is_made_good(self):
        terminal, talk = self.open("sb_1")
        terminal.process.send_signal(signal.SIGSTOP)
        self.wait_for(lambda: self.is_stopped(terminal.process))
        termios.tcsetattr(terminal.slave, termios.TCSANOW, terminal.before)  # as shells do
        terminal.process.send_signal(signal.SIGCONT)
        self.wait_for(lambda: terminal.is_raw)
        talk.exit(0)
        self.settle(terminal, 0)

    def test_a_fault_leaves_the_terminal_as_it_was(self):
        terminal, talk = self.open("sb_1", env={"ASAN_OPTIONS": None})
        terminal.process.send_signal(signal.SIGABRT)
        self.settle(terminal, -signal.SIGABRT)

    # -- without a terminal

    def test_without_a_terminal_a_shell_is_a_plain_pipe(self):
        def script(exchange):
            exchange.start_events()
            exchange.send_event("start", {"id": "ex_1"})
            while piece := exchange.read_chunk():
                exchange.send_event("stdout", {"text": piece.decode().upper()})
            exchange.send_event("exit", {"exit_code": 7})
        self.server.routes = {"/exec": script, "/service": (200, {"limits": {"exec_timeout_max_ms": 5000}}, 0)}
        done = self.ctl("shell", "sb_1", stdin=b"ls\n")
        self.assertEqual((done.returncode, done.stdout), (7, b"LS\n"), done)
        self.assertEqual(self.last["query"]["timeout_ms"], ["5000"])
        self.assertIn("bash -l", self.last["query"]["command"][0])
        self.assertNotIn("rows", self.last["query"])
        self.ctl("shell", "sb_1", "--", "cat", "a b", stdin=b"x")
        self.assertEqual(self.last["query"]["args"], ["cat", "a b"])
        self.assertNotIn("command", self.last["query"])

    def test_an_attached_shell_takes_a_pipe(self):
        process = self.start("shell", "--attach", "ex_1", "sb_1", stdin=subprocess.PIPE)
        talk = self.opened.get(timeout=20)
        talk.start()
        self.assertEqual(self.last["query"], {"exec": ["ex_1"]})
        process.stdin.write(b"a\x10\x11")
        process.stdin.close()
        self.assertEqual(talk.keys(3), b"a\x10\x11")
        talk.send(BINARY, b"out\r\n")
        self.assertEqual(process.stdout.readline(), b"out\r\n")
        self.assertIsNone(process.poll())
        talk.exit(3)
        self.assertEqual(process.wait(20), 3)


if __name__ == "__main__":
    unittest.main()
