"""A scripted service for tests of paddockctl, and what these share.

A script is (status, content, cut): the content is JSON or bytes, `cut` bytes less than was promised are sent. Or it
is a function that gets the Exchange and answers by itself, piece by piece.
"""
import http.server
import json
import os
import pathlib
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else "paddockctl"
KEY = "pdk_test"


class Exchange(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "-"

    def log_message(self, *_):
        pass

    # -- the body

    @property
    def is_chunked(self):
        return self.headers.get("Transfer-Encoding") == "chunked"

    def read_chunk(self):
        """The next chunk of a chunked body; b"" is its end."""
        size = int(self.rfile.readline(), 16)
        data = self.rfile.read(size)
        self.rfile.readline()
        self.seen["body"] += data
        return data

    def read_body(self):
        if self.is_chunked:
            while self.read_chunk():
                pass
        else:
            self.seen["body"] = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return self.seen["body"]

    # -- the answer

    def answer(self):
        path, _, query = self.path.partition("?")
        self.seen = {"method": self.command, "path": path, "body": b"",
                     "query": urllib.parse.parse_qs(query, keep_blank_values=True),
                     "headers": dict(self.headers)}
        self.server.seen.append(self.seen)
        script = next((s for end, s in self.server.routes.items() if path.endswith(end)), self.server.script)
        if callable(script):
            script(self)
            return
        self.read_body()
        status, content, cut = script
        self.send(status, content, cut)
        self.server.resume.wait(60)
        if cut:
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def send(self, status, content, cut=0):
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("X-Request-Id", "rq_0123")
        self.send_header("Content-Length", str(len(raw) + cut))
        self.end_headers()
        self.wfile.write(raw)
        self.wfile.flush()

    def start_events(self):
        self.close_connection = True  # a body that isn't read to its end can't be followed by a request
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def send_piece(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def send_event(self, name, content, number=None):
        ident = f"id: {number}\n" if number is not None else ""
        self.send_piece(f"{ident}event: {name}\ndata: {json.dumps(content)}\n\n".encode())

    def end_events(self):
        self.send_piece(b"")

    def has_left(self):
        """Waits until the client closes the connection."""
        self.connection.settimeout(30)
        try:
            while self.connection.recv(65536):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
        return True


class TcpServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):  # clients leave
            super().handle_error(request, client_address)


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def get_request(self):
        request, _ = super().get_request()
        return request, ("-", 0)


class CtlTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)
        self.server = self.serve(TcpServer(("127.0.0.1", 0), Exchange))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def serve(self, server):
        server.seen, server.script, server.resume = [], (200, {}, 0), threading.Event()
        server.routes = {}  # scripts by the end of the path, before the one above
        server.resume.set()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def environment(self, env=None):
        environment = {"PATH": os.environ["PATH"], "PADDOCK_URL": self.url, "PADDOCK_API_KEY": KEY}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
            if name in os.environ:
                environment[name] = os.environ[name]
        environment.update(env or {})
        return {k: v for k, v in environment.items() if v is not None}

    def ctl(self, *args, stdin=None, env=None):
        source = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        return subprocess.run([PROGRAM, *args], capture_output=True, timeout=60, env=self.environment(env), **source)

    def start(self, *args, **streams):
        """paddockctl in the background; killed at the end of the test if it hasn't ended."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        process = subprocess.Popen([PROGRAM, *args], env=self.environment(), **streams)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()

    def admin(self, content):
        """A scripted admin socket, and the environment that leads there."""
        server = self.serve(UnixServer(str(self.dir / "admin.sock"), Exchange))
        server.script = (200, content, 0)
        return server, {"PADDOCK_STATE_DIR": str(self.dir), "PADDOCK_API_KEY": None}

    def script(self, content, status=200, cut=0):
        self.server.script = (status, content, cut)

    def fail_with(self, kind, message, status):
        self.script({"error": {"type": kind, "message": message}}, status)

    @property
    def last(self):
        return self.server.seen[-1]

    def wait_for(self, condition, seconds=20):
        until = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
