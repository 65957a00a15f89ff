#!/usr/bin/env python3
"""paddockctl against a scripted service. usage: test-ctl.py PROGRAM"""
import base64
import http.server
import json
import os
import pathlib
import socketserver
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else "paddockctl"
KEY = "pdk_test"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "-"

    def log_message(self, *_):
        pass

    def answer(self):
        length = self.headers.get("Content-Length")
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while True:
                size = int(self.rfile.readline(), 16)
                body += self.rfile.read(size)
                self.rfile.readline()
                if size == 0:
                    break
        else:
            body = self.rfile.read(int(length)) if length else b""
        path, _, query = self.path.partition("?")
        self.server.seen.append({"method": self.command, "path": path, "body": body,
                                 "query": urllib.parse.parse_qs(query, keep_blank_values=True),
                                 "headers": dict(self.headers)})
        status, content, cut = self.server.script
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("X-Request-Id", "rq_0123")
        self.send_header("Content-Length", str(len(raw) + cut))
        self.end_headers()
        self.wfile.write(raw)
        if cut:
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_DELETE = answer


class TcpServer(http.server.ThreadingHTTPServer):
    daemon_threads = True


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def get_request(self):
        request, _ = super().get_request()
        return request, ("-", 0)


class Ctl(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)
        self.server = self.serve(TcpServer(("127.0.0.1", 0), Handler))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def serve(self, server):
        server.seen, server.script = [], (200, {}, 0)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def ctl(self, *args, stdin=b"", env=None):
        environment = {"PATH": os.environ["PATH"], "PADDOCK_URL": self.url, "PADDOCK_API_KEY": KEY}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
            if name in os.environ:
                environment[name] = os.environ[name]
        environment.update(env or {})
        return subprocess.run([PROGRAM, *args], input=stdin, capture_output=True, timeout=60,
                              env={k: v for k, v in environment.items() if v is not None})

    def script(self, content, status=200, cut=0):
        self.server.script = (status, content, cut)

    def fail_with(self, kind, message, status):
        self.script({"error": {"type": kind, "message": message}}, status)

    @property
    def last(self):
        return self.server.seen[-1]

    def exec_answer(self, **changes):
        self.script({"id": "ex_1", "stdout": "", "stderr": "", "exit_code": 0, "signal": None,
                     "timed_out": False, "truncated": False, **changes})

    # -- requests

    def test_create_sends_typed_fields(self):
        self.script({"id": "sb_1", "status": "running"}, 201)
        done = self.ctl("create", "box", "--size=tiny", "--timeout-minutes", "5", "--env", "A=x=y",
                        "--env", "B=", "--no-wait", "--metadata", "k=ü")
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(json.loads(self.last["body"]), {
            "name": "box", "size": "tiny", "timeout_minutes": 5, "env": {"A": "x=y", "B": ""},
            "wait": False, "metadata": {"k": "ü"}})
        self.assertEqual(self.last["headers"]["Authorization"], f"Bearer {KEY}")
        self.assertIn(b"status: running\n", done.stdout)

    def test_the_url_may_end_in_v1_or_a_slash(self):
        self.script({"data": []})
        for suffix in ("", "/", "/v1", "/v1/"):
            self.assertEqual(self.ctl("list", env={"PADDOCK_URL": self.url + suffix}).returncode, 0)
            self.assertEqual(self.last["path"], "/v1/sandboxes")

    def test_paths_and_queries_are_encoded(self):
        self.script(b"content")
        name = "/workspace/a b&c=d?#%ü"
        self.assertEqual(self.ctl("pull", "a/../b", name).stdout, b"content")
        self.assertEqual(self.last["path"], "/v1/sandboxes/a%2F..%2Fb/files")
        self.assertEqual(self.last["query"]["path"], [name])

    def test_list_filters_go_into_the_query(self):
        self.script({"data": []})
        self.assertEqual(self.ctl("list", "--status", "all", "--metadata", "team=a b").returncode, 0)
        self.assertEqual(self.last["query"], {"status": ["all"], "metadata.team": ["a b"]})

    def test_administration_goes_through_the_socket_without_a_key(self):
        path = str(self.dir / "admin.sock")
        server = self.serve(UnixServer(path, Handler))
        server.script = (200, {"data": [{"name": "minimal", "version": "ab", "status": "good",
                                         "default": True, "problem": None}]}, 0)
        done = self.ctl("images", env={"PADDOCK_ADMIN_SOCKET": path})
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout.decode(), r"NAME +VERSION +STATUS +DEFAULT +PROBLEM\nminimal +ab +good +true +-\n")
        self.assertNotIn("Authorization", server.seen[0]["headers"])
        self.assertEqual(self.server.seen, [])
        self.assertEqual(self.ctl("--socket", path, "list").returncode, 0)

    # -- exec

    def test_exec_ends_with_the_commands_status(self):
        for code in (0, 1, 7, 126, 127, 255):
            self.exec_answer(exit_code=code)
            self.assertEqual(self.ctl("exec", "sb_1", "--", "x").returncode, code)

    def test_exec_keeps_the_commands_own_options(self):
        self.exec_answer()
        self.ctl("exec", "--cwd", "/tmp", "sb_1", "ls", "--json", "-l", "--", "x")
        self.assertEqual(json.loads(self.last["body"]),
                         {"cwd": "/tmp", "args": ["ls", "--json", "-l", "--", "x"]})
        self.ctl("exec", "sb_1", "--", "ls", "--cwd")
        self.assertEqual(json.loads(self.last["body"]), {"args": ["ls", "--cwd"]})

    def test_exec_passes_binary_stdin_and_outputs_apart(self):
        out = b"\x00\xff out"
        self.exec_answer(stdout="?", stdout_base64=base64.b64encode(out).decode(), stderr="err\n")
        done = self.ctl("exec", "sb_1", "cat", stdin=b"in\x00\xfe")
        self.assertEqual((done.stdout, done.stderr), (out, b"err\n"))
        body = json.loads(self.last["body"])
        self.assertEqual(base64.b64decode(body["stdin_base64"]), b"in\x00\xfe")
        self.ctl("exec", "--no-stdin", "sb_1", "cat", stdin=b"in")
        self.assertNotIn("stdin_base64", json.loads(self.last["body"]))

    def test_exec_tells_what_was_cut(self):
        self.exec_answer(exit_code=124, timed_out=True, truncated=True)
        done = self.ctl("exec", "sb_1", "x")
        self.assertEqual(done.returncode, 124)
        self.assertIn(b"out of time", done.stderr)
        self.assertIn(b"cut", done.stderr)

    def test_a_failure_of_ours_is_never_the_commands_status(self):
        self.fail_with("not_found", "no such sandbox", 404)
        self.assertEqual(self.ctl("exec", "sb_1", "x").returncode, 125)
        self.script({"id": "ex_1"})
        self.assertEqual(self.ctl("exec", "sb_1", "x").returncode, 125)
        self.script({"exit_code": 0}, cut=50)
        self.assertEqual(self.ctl("exec", "sb_1", "x").returncode, 125)

    # -- files

    def test_push_sends_bytes_and_mode(self):
        self.script({"path": "/x", "size_bytes": 3})
        local = self.dir / "f"
        local.write_bytes(b"\x00\x01\x02")
        local.chmod(0o750)
        self.assertEqual(self.ctl("push", "sb_1", str(local), "/x").returncode, 0)
        self.assertEqual(self.last["body"], b"\x00\x01\x02")
        self.assertEqual(self.last["query"], {"path": ["/x"], "mode": ["0750"]})
        self.assertEqual(self.ctl("push", "sb_1", "-", "/x", stdin=b"piped").returncode, 0)
        self.assertEqual(self.last["body"], b"piped")
        self.assertEqual(self.ctl("push", "sb_1", str(self.dir), "/x").returncode, 125)
        self.assertEqual(self.ctl("push", "sb_1", str(self.dir / "none"), "/x").returncode, 125)

    def test_a_broken_download_leaves_no_file(self):
        self.script(b"half", cut=4)
        local = self.dir / "out"
        self.assertNotEqual(self.ctl("pull", "sb_1", "/x", str(local)).returncode, 0)
        self.assertEqual(list(self.dir.iterdir()), [])
        self.assertNotEqual(self.ctl("pull", "sb_1", "/x").returncode, 0)
        self.fail_with("not_found", "no such file", 404)
        done = self.ctl("pull", "sb_1", "/x")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, b"")

    def test_names_from_a_guest_can_not_drive_the_terminal(self):
        self.script({"entries": [{"name": "x", "path": "/w/\x1b[2J\x07\"q\"", "type": "file",
                                  "size_bytes": 1, "mode": "0644", "modified_at": "2026"}],
                     "truncated": True})
        done = self.ctl("ls", "sb_1")
        self.assertIn(b"/w/\\x1b[2J\\x07\"q\"\n", done.stdout)
        self.assertIn(b"--limit", done.stderr)

    # -- failures

    def test_errors_are_the_services_words_on_stderr(self):
        self.fail_with("quota_exceeded", "at most 5 sandboxes", 429)
        done = self.ctl("create")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual((done.stdout, done.stderr), (b"", b"paddockctl: at most 5 sandboxes\n"))
        self.fail_with("internal", "internal error", 500)
        self.assertIn(b"rq_0123", self.ctl("create").stderr)

    def test_what_can_not_be_reached_is_named(self):
        done = self.ctl("list", env={"PADDOCK_URL": "http://127.0.0.1:1"})
        self.assertIn(b"http://127.0.0.1:1", done.stderr)
        self.assertIn(b"PADDOCK_URL", done.stderr)
        self.assertEqual(self.ctl("list", env={"PADDOCK_URL": "ftp://x"}).returncode, 2)
        self.assertEqual(self.ctl("list", env={"PADDOCK_API_KEY": None}).returncode, 2)
        self.script(b"<html>")
        self.assertIn(b"JSON", self.ctl("list").stderr)

    def test_bad_usage_says_how(self):
        for args in (["nonsense"], ["create", "--nonsense", "1"], ["get"], ["extend", "sb_1", "x"],
                     ["create", "--size"], ["create", "--env", "novalue"], ["--nonsense", "list"]):
            done = self.ctl(*args)
            self.assertEqual(done.returncode, 2, args)
            self.assertTrue(done.stderr, args)
        self.assertEqual(self.server.seen, [])

    def test_several_are_destroyed_and_one_failure_shows(self):
        self.script({"id": "sb_1", "status": "deleted"})
        self.assertEqual(self.ctl("destroy", "a", "b").stdout, b"sb_1 deleted\n" * 2)
        self.assertEqual([s["path"] for s in self.server.seen],
                         ["/v1/sandboxes/a", "/v1/sandboxes/b"])
        self.fail_with("not_found", "no such sandbox", 404)
        self.assertNotEqual(self.ctl("destroy", "a", "b").returncode, 0)

    def test_json_is_one_line(self):
        self.script({"id": "sb_1", "metadata": {"a": "b"}})
        for args in (["--json", "get", "sb_1"], ["get", "--json", "sb_1"], ["get", "sb_1", "--json"]):
            self.assertEqual(self.ctl(*args).stdout, b'{"id":"sb_1","metadata":{"a":"b"}}\n', args)

    def test_the_doctors_verdict_is_the_exit_status(self):
        path = str(self.dir / "admin.sock")
        server = self.serve(UnixServer(path, Handler))
        for level, status in (("ok", 0), ("warning", 0), ("error", 1)):
            server.script = (200, {"findings": [{"check": "disk", "level": level, "text": "t",
                                                 "fix": "mend it"}]}, 0)
            done = self.ctl("doctor", env={"PADDOCK_ADMIN_SOCKET": path})
            self.assertEqual(done.returncode, status)
            self.assertIn(b"fix: mend it", done.stdout)


if __name__ == "__main__":
    unittest.main()
