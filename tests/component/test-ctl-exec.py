#!/usr/bin/env python3
"""paddockctl's commands in a sandbox, against a scripted service. usage: test-ctl-exec.py PROGRAM"""
import base64
import json
import os
import select
import signal
import subprocess
import threading
import time
import unittest

from ctl_service import PROGRAM, CtlTest

END = {"id": "ex_1", "exit_code": 0, "signal": None, "timed_out": False, "truncated": False,
       "duration_ms": 1, "stdout_bytes": 0, "stderr_bytes": 0}


def text(data):
    return {"text": data}


def binary(data):
    return {"base64": base64.b64encode(data).decode()}


class Exec(CtlTest):
    def streams(self, *events, **end):
        """Scripts a command that starts, has these events, and ends."""
        def script(exchange):
            exchange.read_body()
            exchange.start_events()
            exchange.send_event("start", {"id": "ex_1"})
            for name, content in events:
                exchange.send_event(name, content)
            exchange.send_event("exit", {**END, **end})
            exchange.end_events()
        self.server.script = script

    def breaks_off(self, *pieces):
        def script(exchange):
            exchange.read_body()
            exchange.start_events()
            for piece in pieces:
                exchange.send_piece(piece)
        self.server.script = script

    def runs_until_killed(self):
        """Scripts a command that ends by the signals it gets; their names, and an event for its start."""
        signals, started, ended = [], threading.Event(), threading.Event()

        def run(exchange):
            exchange.start_events()
            exchange.send_event("start", {"id": "ex_1"})
            exchange.send_event("stdout", text("up\n"))
            started.set()
            ended.wait(30)
            exchange.send_event("exit", {**END, "exit_code": 128 + self.number, "signal": self.number})

        def kill(exchange):
            name = json.loads(exchange.read_body())["signal"]
            signals.append(name)
            self.number = {"INT": 2, "KILL": 9}[name]
            exchange.send(200, {})
            if name in self.dies_of:
                ended.set()
        self.dies_of, self.number = ("INT", "KILL"), 0
        self.server.script = run
        self.server.routes["/sb_1/exec/ex_1/kill"] = kill
        self.addCleanup(ended.set)
        return signals, started

    # -- what is asked for

    def test_a_command_is_asked_for_as_a_stream(self):
        self.streams()
        done = self.ctl("exec", "sb_1", "--", "ls", "-l")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))
        self.assertEqual(self.last["headers"]["Accept"], "text/event-stream")
        self.assertEqual((self.last["method"], self.last["path"]), ("POST", "/v1/sandboxes/sb_1/exec"))
        self.assertEqual(json.loads(self.last["body"]), {"args": ["ls", "-l"]})

    def test_exec_keeps_the_commands_own_options(self):
        self.streams()
        self.ctl("exec", "--cwd", "/tmp", "sb_1", "ls", "--json", "-l", "--", "x")
        self.assertEqual(json.loads(self.last["body"]),
                         {"cwd": "/tmp", "args": ["ls", "--json", "-l", "--", "x"]})
        self.ctl("exec", "--no-stdin", "sb_1", "ls", "--json")
        self.assertEqual(json.loads(self.last["body"]), {"args": ["ls", "--json"]})
        self.ctl("exec", "sb_1", "--", "ls", "--cwd")
        self.assertEqual(json.loads(self.last["body"]), {"args": ["ls", "--cwd"]})

    def test_times_and_limits_have_short_names(self):
        self.streams()
        for given, ms in (("90", 90000), ("1.5", 1500), ("500ms", 500), ("2m", 120000), ("1h", 3600000)):
            self.ctl("exec", "--timeout", given, "--shell=/bin/bash", "--output-limit=1000", "--command", "x", "sb_1")
            self.assertEqual(json.loads(self.last["body"]), {
                "command": "x", "timeout_ms": ms, "shell": "/bin/bash", "output_limit_bytes": 1000})
        before = len(self.server.seen)
        for option in ("--timeout=x", "--timeout=", "--timeout=0", "--timeout=-1", "--timeout=nan", "--timeout=inf",
                       "--timeout=1d", "--output-limit=1k", "--output-limit=0", "--output-limit="):
            self.assertEqual(self.ctl("exec", option, "sb_1", "x").returncode, 2, option)
        self.assertEqual(len(self.server.seen), before)

    # -- output

    def test_ends_of_pipes_that_do_not_block_are_waited_for(self):
        """As node and others make those that they share with us."""
        content = b"0123456789" * 30000
        self.streams(*[("stdout", text(content.decode()))] * 3)
        ends = (os.pipe(), os.pipe())
        for end in (ends[0][0], ends[1][1]):
            os.set_blocking(end, False)
        with os.fdopen(ends[0][1], "wb") as to:
            to.write(b"in")
            to.flush()
            process = self.start("exec", "--command", "x" * 30000, "sb_1", stdin=ends[0][0], stdout=ends[1][1])
            self.wait_for(lambda: not select.select([ends[0][0]], [], [], 0)[0])
            to.write(b"put")
        os.close(ends[0][0])
        os.close(ends[1][1])
        with os.fdopen(ends[1][0], "rb") as out:
            self.assertEqual(out.read(), content * 3)
        self.assertEqual((process.stderr.read(), process.wait()), (b"", 0))
        self.assertEqual(base64.b64decode(json.loads(self.last["body"])["stdin_base64"]), b"input")

    def test_outputs_are_apart_and_exact(self):
        self.streams(("stdout", text("ü\n")), ("stderr", text("err\n")), ("stdout", binary(b"\x00\xff")),
                     ("later", {}), ("stdout", text("")), ("stderr", binary(b"\xfe")))
        done = self.ctl("exec", "sb_1", "x")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"\xc3\xbc\n\x00\xff", b"err\n\xfe"))

    def test_output_comes_while_the_command_runs(self):
        _, started = self.runs_until_killed()
        process = self.start("exec", "sb_1", "x")
        self.assertTrue(started.wait(20))
        self.assertEqual(process.stdout.readline(), b"up\n")
        self.assertIsNone(process.poll())

    def test_a_reader_that_leaves_ends_it_quietly(self):
        def script(exchange):
            exchange.start_events()
            exchange.send_event("start", {"id": "ex_1"})
            left = exchange.has_left
            with self.assertRaises(OSError):
                while True:
                    exchange.send_event("stdout", text("y\n" * 1000))
            self.left = left()
        self.server.script = script
        process = self.start("exec", "sb_1", "yes")
        self.assertEqual(process.stdout.read(2), b"y\n")
        process.stdout.close()
        self.assertEqual(process.wait(20), -signal.SIGPIPE)
        self.assertEqual(process.stderr.read(), b"")

    def test_an_output_that_can_not_be_written_is_a_failure(self):
        self.streams(("stdout", text("x")))
        with open("/dev/full", "r+b", buffering=0) as full:
            done = subprocess.run([PROGRAM, "exec", "sb_1", "x"], stdin=subprocess.DEVNULL, stdout=full,
                                  stderr=subprocess.PIPE, env=self.environment(), timeout=60)
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"output", done.stderr)

    # -- the end

    def test_exec_ends_with_the_commands_status(self):
        for code in (0, 1, 7, 126, 127, 255):
            self.streams(exit_code=code)
            self.assertEqual(self.ctl("exec", "sb_1", "--", "x").returncode, code)

    def test_exec_tells_what_was_cut(self):
        self.streams(exit_code=124, timed_out=True, truncated=True)
        done = self.ctl("exec", "sb_1", "x")
        self.assertEqual(done.returncode, 124)
        self.assertIn(b"out of time", done.stderr)
        self.assertIn(b"cut", done.stderr)

    def test_an_exit_code_that_is_none_is_no_success(self):
        for code in (256, -1, 2**40, "0", None, 0.0):
            self.streams(exit_code=code)
            self.assertEqual(self.ctl("exec", "sb_1", "x").returncode, 125, code)

    def test_a_failure_of_ours_is_never_the_commands_status(self):
        self.fail_with("not_found", "no such sandbox", 404)
        done = self.ctl("exec", "sb_1", "x")
        self.assertEqual((done.returncode, done.stderr), (125, b"paddockctl: no such sandbox\n"))
        self.script({"exit_code": 0})  # an answer, but no stream
        self.assertEqual(self.ctl("exec", "sb_1", "x").returncode, 125)

    def test_a_cut_stream_is_a_failure(self):
        start = b"event: start\ndata: {\"id\":\"ex_1\"}\n\n"
        end = b"event: exit\ndata: {\"exit_code\":0}\n"
        for pieces in ((), (start,), (start, b"event: stdout\ndata: {\"text\":\"x\"}\n\n"), (start, end),
                       (start, b": heartbeat\n\n"), (start, b"")):
            self.breaks_off(*pieces)
            done = self.ctl("exec", "sb_1", "x")
            self.assertEqual(done.returncode, 125, pieces)
            self.assertTrue(done.stderr, pieces)

    def test_a_stream_that_fails_says_why(self):
        self.breaks_off(b"event: start\ndata: {\"id\":\"ex_1\"}\n\nevent: error\n"
                        b"data: {\"error\":{\"type\":\"unavailable\",\"message\":\"the guest\\u001b[2J was lost\"}}\n\n")
        done = self.ctl("exec", "sb_1", "x")
        self.assertEqual((done.returncode, done.stderr), (125, b"paddockctl: the guest\\x1b[2J was lost\n"))

    def test_a_stream_of_nonsense_is_a_failure(self):
        for event in (b"event: stdout\ndata: {\n\n", b"event: stdout\ndata: []\n\n", b"event: exit\ndata: null\n\n",
                      b"event: stdout\ndata: {\"base64\":\"?\"}\n\n", b"data: " + b"x" * 5000000):
            self.breaks_off(event)
            done = self.ctl("exec", "sb_1", "x")
            self.assertEqual(done.returncode, 125, event[:50])
            self.assertTrue(done.stderr, event[:50])

    # -- stdin

    def test_stdin_streams_both_ways(self):
        def cat(exchange):
            exchange.start_events()
            exchange.send_event("start", {"id": "ex_1"})
            while piece := exchange.read_chunk():
                exchange.send_event("stdout", binary(piece))
            exchange.send_event("exit", END)
        self.server.script = cat
        process = self.start("exec", "--env", "A=b c", "sb_1", "cat", "-u", stdin=subprocess.PIPE)
        for piece in (b"one\n", b"\x00\xff\n", b"two\n"):
            process.stdin.write(piece)
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), piece)
        process.stdin.close()
        self.assertEqual(process.wait(20), 0)
        self.assertEqual(self.last["query"], {"args": ["cat", "-u"], "env.A": ["b c"]})
        self.assertEqual(self.last["headers"]["Content-Type"], "application/octet-stream")

    def test_a_large_stdin_passes_whole(self):
        self.streams()
        data = os.urandom(20 * 1024 * 1024)
        self.assertEqual(self.ctl("exec", "sb_1", "cat", stdin=data).returncode, 0)
        self.assertEqual(self.last["body"], data)

    def test_a_command_that_ends_does_not_wait_for_stdin(self):
        for option in (["--no-json"], ["--json"]):
            def script(exchange):
                if exchange.headers["Accept"] == "application/json":
                    exchange.close_connection = True
                    exchange.send(200, END)
                else:
                    exchange.start_events()
                    exchange.send_event("exit", {**END, "exit_code": 3})
            self.server.script = script
            options = [o for o in option if o != "--no-json"]
            process = self.start("exec", *options, "sb_1", "true", stdin=subprocess.PIPE)
            self.assertEqual(process.wait(20), 0 if options else 3)

    def test_an_empty_stdin_is_none(self):
        self.streams()
        process = self.start("exec", "sb_1", "cat")
        self.assertEqual(process.wait(20), 0)
        self.assertEqual(json.loads(self.last["body"]), {"args": ["cat"]})
        self.ctl("exec", "--no-stdin", "sb_1", "cat", stdin=b"in")
        self.assertEqual(json.loads(self.last["body"]), {"args": ["cat"]})

    def test_given_stdin_is_not_replaced_by_ours(self):
        self.streams()
        self.ctl("exec", "--stdin-base64", "aGk=", "sb_1", "cat", stdin=b"ours")
        self.assertEqual(json.loads(self.last["body"])["stdin_base64"], "aGk=")
        self.ctl("exec", "--stdin", "hi", "sb_1", "cat", stdin=b"ours")
        self.assertEqual(json.loads(self.last["body"]), {"stdin": "hi", "args": ["cat"]})

    def test_beside_a_long_command_stdin_goes_into_the_body(self):
        self.streams()
        command = "x" * 100000
        self.ctl("exec", "--command", command, "sb_1", stdin=b"in\xfe")
        body = json.loads(self.last["body"])
        self.assertEqual((body["command"], base64.b64decode(body["stdin_base64"])), (command, b"in\xfe"))
        before = len(self.server.seen)
        done = self.ctl("exec", "--command", command, "sb_1", stdin=bytes(12 * 1024 * 1024))
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"push", done.stderr)
        self.assertEqual(len(self.server.seen), before)

    # -- signals

    def test_ctrl_c_goes_to_the_command(self):
        signals, started = self.runs_until_killed()
        process = self.start("exec", "sb_1", "sleep", "100")
        self.assertEqual(process.stdout.readline(), b"up\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), 130)
        self.assertEqual(signals, ["INT"])

    def test_a_second_ctrl_c_kills(self):
        signals, started = self.runs_until_killed()
        self.dies_of = ("KILL",)
        process = self.start("exec", "sb_1", "stubborn")
        self.assertEqual(process.stdout.readline(), b"up\n")
        process.send_signal(signal.SIGINT)
        self.wait_for(lambda: signals)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), 137)
        self.assertEqual(signals, ["INT", "KILL"])

    def test_a_later_ctrl_c_is_another_first_one(self):
        signals, started = self.runs_until_killed()
        self.dies_of = ("KILL",)
        process = self.start("exec", "sb_1", "interactive")
        self.assertEqual(process.stdout.readline(), b"up\n")
        process.send_signal(signal.SIGINT)
        self.wait_for(lambda: signals)
        time.sleep(1.6)
        process.send_signal(signal.SIGINT)
        self.wait_for(lambda: len(signals) == 2)
        self.assertEqual(signals, ["INT", "INT"])

    def test_a_termination_kills(self):
        signals, started = self.runs_until_killed()
        process = self.start("exec", "sb_1", "sleep", "100")
        self.assertEqual(process.stdout.readline(), b"up\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 137)
        self.assertEqual(signals, ["KILL"])

    def test_a_kill_that_does_not_end_it_does_not_hold_us(self):
        signals, started = self.runs_until_killed()
        self.dies_of = ()
        process = self.start("exec", "sb_1", "x")
        self.assertEqual(process.stdout.readline(), b"up\n")
        process.send_signal(signal.SIGTERM)
        self.wait_for(lambda: signals)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), -signal.SIGTERM)

    def test_a_signal_that_can_not_be_sent_is_told(self):
        _, started = self.runs_until_killed()
        self.server.routes["/sb_1/exec/ex_1/kill"] = (503, {"error": {"type": "unavailable", "message": "not now"}}, 0)
        process = self.start("exec", "sb_1", "x")
        self.assertEqual(process.stdout.readline(), b"up\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), 125)
        self.assertIn(b"not now", process.stderr.read())

    def test_a_signal_behind_the_end_is_no_failure(self):
        def script(exchange):
            exchange.start_events()
            exchange.send_event("start", {"id": "ex_1"})
            exchange.send_event("stdout", text("up\n"))
            self.killed.wait(30)
            exchange.send_event("exit", END)

        def kill(exchange):
            exchange.read_body()
            exchange.send(409, {"error": {"type": "conflict", "message": "it has ended"}})
            self.killed.set()
        self.killed = threading.Event()
        self.server.script = script
        self.server.routes["/kill"] = kill
        process = self.start("exec", "sb_1", "x")
        self.assertEqual(process.stdout.readline(), b"up\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual((process.wait(20), process.stderr.read()), (0, b""))

    def test_before_its_start_a_signal_ends_us_and_the_call(self):
        left = []

        def script(exchange):
            exchange.read_body()
            exchange.start_events()
            left.append(exchange.has_left())
        self.server.script = script
        process = self.start("exec", "sb_1", "x")
        self.wait_for(lambda: self.server.seen)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), -signal.SIGINT)
        self.wait_for(lambda: left)
        self.assertEqual(left, [True])

    def test_what_nohup_ignores_stays_ignored(self):
        signals, started = self.runs_until_killed()
        process = subprocess.Popen([PROGRAM, "exec", "sb_1", "x"], env=self.environment(),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        self.addCleanup(self.end, process)
        self.assertEqual(process.stdout.readline(), b"up\n")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 137)
        self.assertEqual(signals, ["KILL"])

    # -- one answer

    def test_json_is_one_answer(self):
        answer = {**END, "stdout": "out\n", "stderr": "", "exit_code": 7}
        self.script(answer)
        done = self.ctl("exec", "--json", "sb_1", "x", stdin=b"in")
        self.assertEqual((done.returncode, json.loads(done.stdout)), (7, answer))
        self.assertEqual(self.last["headers"]["Accept"], "application/json")
        self.assertEqual(self.last["body"], b"in")
        self.script({"exit_code": 0}, cut=50)
        self.assertEqual(self.ctl("exec", "--json", "sb_1", "x").returncode, 125)

    # -- in the background

    def test_a_command_in_the_background_is_its_id(self):
        answer = {"id": "ex_7", "status": "running"}
        self.script(answer, 202)
        done = self.ctl("exec", "--background", "--keep-stdin", "sb_1", "x", stdin=b"ours")
        self.assertEqual((done.returncode, done.stdout), (0, b"ex_7\n"))
        self.assertEqual(json.loads(self.last["body"]),
                         {"background": True, "keep_stdin": True, "args": ["x"]})
        done = self.ctl("--json", "exec", "--background", "sb_1", "x")
        self.assertEqual(json.loads(done.stdout), answer)
        self.fail_with("rate_limited", "at most 16 commands", 429)
        self.assertEqual(self.ctl("exec", "--background", "sb_1", "x").returncode, 125)

    def test_ps_shows_what_runs_and_how_the_rest_ended(self):
        row = {"background": True, "tty": False, "started_at": "2026-01-02T03:04:05Z", "ended_at": None,
               "exit_code": None, "signal": None, "timed_out": False, "error": None}
        self.script({"data": [
            {**row, "id": "ex_3", "status": "running", "command": "sleep\x1b 9"},
            {**row, "id": "ex_2", "status": "exited", "command": "ls", "exit_code": 2, "background": False},
            {**row, "id": "ex_1", "status": "lost", "command": "x", "error": "the service ended"}]})
        lines = self.ctl("ps", "sb_1").stdout.decode().splitlines()
        for line, pattern in zip(lines, (r"ID +STATE +BACKGROUND +STARTED +COMMAND$",
                                         r"ex_3 +running +true +2026-01-02T03:04:05Z +sleep\\x1b 9$",
                                         r"ex_2 +exit 2 +false +\S+ +ls$",
                                         r"ex_1 +lost +true +\S+ +x$"), strict=True):
            self.assertRegex(line, pattern)
        self.assertEqual([r["id"] for r in json.loads(self.ctl("--json", "ps", "sb_1").stdout)["data"]],
                         ["ex_3", "ex_2", "ex_1"])

    def page(self, data, offset, end=False, **more):
        return {"id": "ex_1", "status": "running", "offset": offset, "next_offset": offset + len(data),
                "stdout": data, "stderr": "", "dropped_bytes": 0, "is_end": end, **more}

    def pages(self, *pages):
        left = list(pages)
        self.server.script = lambda exchange: (exchange.read_body(), exchange.send(200, left.pop(0)))

    def test_output_is_all_there_is_by_now(self):
        self.pages(self.page("one", 0, stderr="err", dropped_bytes=5), self.page("two", 3), self.page("", 6))
        done = self.ctl("output", "sb_1", "ex_1", "--limit", "3", "--wait-ms=5")
        self.assertEqual((done.returncode, done.stdout), (0, b"onetwo"))
        self.assertEqual(done.stderr, b"paddockctl: 5 bytes that came before are no longer kept\nerr")
        self.assertEqual([seen["query"] for seen in self.server.seen], [
            {"limit": ["3"], "wait_ms": ["5"]}, {"limit": ["3"], "offset": ["3"]},
            {"limit": ["3"], "offset": ["6"]}])
        self.assertEqual(self.last["path"], "/v1/sandboxes/sb_1/exec/ex_1/output")
        self.pages(self.page("x", 7, True))
        self.assertEqual(self.ctl("output", "sb_1", "ex_1", "--offset", "7").stdout, b"x")
        self.pages(self.page("?", 0, True, stdout_base64="AP8="))
        self.assertEqual(self.ctl("output", "sb_1", "ex_1").stdout, b"\x00\xff")
        self.pages({"stdout": "x"})
        self.assertEqual(self.ctl("output", "sb_1", "ex_1").returncode, 125)

    def test_output_follows_to_the_end(self):
        def script(exchange):
            exchange.start_events()
            exchange.send_event("stdout", text("one\n"), 4)
            exchange.send_event("gap", {"dropped_bytes": 100}, 104)
            exchange.send_event("stderr", text("two\n"), 108)
            exchange.send_event("exit", {**END, "exit_code": 9})
        self.server.script = script
        done = self.ctl("output", "--follow", "--offset=0", "sb_1", "ex_1")
        self.assertEqual((done.returncode, done.stdout), (0, b"one\n"))
        self.assertRegex(done.stderr, rb"100\ntwo\n$")
        self.assertEqual(self.last["query"], {"offset": ["0"]})

    def test_a_cut_output_says_how_to_go_on(self):
        def script(exchange):
            exchange.start_events()
            exchange.send_event("stdout", text("one\n"), 4)
        self.server.script = script
        done = self.ctl("output", "--follow", "sb_1", "ex_1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"paddockctl output --follow --offset 4 sb_1 ex_1\n", done.stderr)

    def test_input_goes_on_as_it_comes(self):
        pieces = []

        def script(exchange):
            while piece := exchange.read_chunk():
                pieces.append(piece)
            exchange.send(200, {})
        self.server.script = script
        process = self.start("input", "sb_1", "ex_1", "--close", stdin=subprocess.PIPE)
        for piece in (b"one\n", b"two\n"):
            process.stdin.write(piece)
            process.stdin.flush()
            self.wait_for(lambda: b"".join(pieces).endswith(piece))
        process.stdin.close()
        self.assertEqual(process.wait(20), 0)
        self.assertEqual(self.last["query"], {"close": ["true"]})
        self.assertEqual(self.last["path"], "/v1/sandboxes/sb_1/exec/ex_1/stdin")

    def test_input_may_be_given_or_empty(self):
        for args, body in ((["--data", "x\n"], {"data": "x\n"}), (["--close"], {"close": True}),
                           (["--data-base64=AA==", "--close"], {"data_base64": "AA==", "close": True})):
            process = self.start("input", "sb_1", "ex_1", *args)
            self.assertEqual(process.wait(20), 0)
            self.assertEqual(json.loads(self.last["body"]), body)

    def test_kill_names_the_signal(self):
        for args, body in (([], {}), (["--signal", "TERM"], {"signal": "TERM"})):
            self.assertEqual(self.ctl("kill", "sb_1", "ex_1", *args).returncode, 0)
            self.assertEqual((self.last["path"], json.loads(self.last["body"])),
                             ("/v1/sandboxes/sb_1/exec/ex_1/kill", body))
        self.fail_with("not_found", "there is no such command", 404)
        self.assertEqual(self.ctl("kill", "sb_1", "ex_1").returncode, 66)

    def test_wait_ends_with_the_commands_status(self):
        self.pages({"id": "ex_1", "status": "running"}, {"id": "ex_1", "status": "running"},
                   {**END, "status": "exited", "exit_code": 7})
        self.assertEqual(self.ctl("wait", "sb_1", "ex_1").returncode, 7)
        self.assertEqual([seen["query"] for seen in self.server.seen], [{"wait_ms": ["60000"]}] * 3)
        self.assertEqual(self.last["path"], "/v1/sandboxes/sb_1/exec/ex_1")
        self.pages({"id": "ex_1", "status": "lost", "exit_code": None, "error": "the service ended"})
        done = self.ctl("wait", "sb_1", "ex_1")
        self.assertEqual((done.returncode, done.stderr),
                         (125, b"paddockctl: there is no result: the service ended\n"))
        self.pages({"id": "ex_1", "status": "running"})
        self.assertEqual(self.ctl("wait", "--wait-ms", "1", "sb_1", "ex_1").returncode, 124)
        self.fail_with("not_found", "there is no such command", 404)
        self.assertEqual(self.ctl("wait", "sb_1", "ex_1").returncode, 125)

    def test_jobs_want_both_ids(self):
        for verb in ("output", "input", "kill", "wait"):
            self.assertEqual(self.ctl(verb, "sb_1").returncode, 2, verb)
            self.assertNotEqual(self.ctl(verb, "sb_1", "").returncode, 0, verb)
        self.assertEqual(self.server.seen, [])


if __name__ == "__main__":
    unittest.main()
