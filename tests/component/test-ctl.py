#!/usr/bin/env python3
"""paddockctl against a scripted service. usage: test-ctl.py PROGRAM"""
import json
import os
import resource
import signal
import socket
import subprocess
import unittest

import ctl_service
from ctl_service import KEY, PROGRAM, CtlTest, UnixServer


class Ctl(CtlTest):
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
        server = self.serve(UnixServer(path, ctl_service.Exchange))
        server.script = (200, {"data": [{"name": "minimal", "version": "ab", "status": "good",
                                         "default": True, "problem": None}]}, 0)
        done = self.ctl("images", env={"PADDOCK_ADMIN_SOCKET": path})
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout.decode(), r"NAME +VERSION +STATUS +DEFAULT +PROBLEM\nminimal +ab +good +true +-\n")
        self.assertNotIn("Authorization", server.seen[0]["headers"])
        self.assertEqual(self.server.seen, [])
        self.assertEqual(self.ctl("--socket", path, "list").returncode, 0)

    def test_keys_and_accounts_are_listed_by_the_services_names(self):
        server, env = self.admin({"data": [
            {"id": "ac_1", "name": "team", "created_at": "2026-01-02T03:04:05Z", "disabled": False}]})
        done = self.ctl("account", "list", env=env)
        self.assertRegex(done.stdout.decode(), r"ID +NAME +CREATED +DISABLED\n"
                         r"ac_1 +team +2026-01-02T03:04:05Z +false\n")
        server.script = (200, {"data": [
            {"id": "ky_1", "account": "ac_1", "name": None, "hint": "wxyz", "created_at": "C",
             "revoked_at": None, "last_used_at": "U"}]}, 0)
        done = self.ctl("key", "list", "team", env=env)
        self.assertRegex(done.stdout.decode(),
                         r"ID +ACCOUNT +NAME +ENDS IN +CREATED +LAST USED +REVOKED\n"
                         r"ky_1 +ac_1 +- +wxyz +C +U +-\n")
        self.assertEqual(server.seen[-1]["query"], {"account": ["team"]})

    def test_keys_and_accounts_are_made_and_revoked(self):
        server, env = self.admin({"id": "ky_1", "key": "pdk_once"})
        self.assertIn(b"key: pdk_once\n", self.ctl("key", "create", "team", "laptop", env=env).stdout)
        self.assertEqual(json.loads(server.seen[-1]["body"]), {"account": "team", "name": "laptop"})
        self.ctl("account", "create", "team", env=env)
        self.assertEqual(json.loads(server.seen[-1]["body"]), {"name": "team"})
        self.ctl("key", "revoke", "ky_1", env=env)
        self.assertEqual((server.seen[-1]["method"], server.seen[-1]["path"]),
                         ("DELETE", "/v1/admin/keys/ky_1"))

    def test_an_extension_is_a_number_of_minutes(self):
        self.script({"id": "sb_1", "expires_at": "2026"})
        for args in (["extend", "sb_1", "5"], ["extend", "sb_1", "--minutes", "5"],
                     ["extend", "sb_1", "5", "--json"]):
            self.assertEqual(self.ctl(*args).returncode, 0, args)
            self.assertEqual(json.loads(self.last["body"]), {"minutes": 5}, args)
            self.assertEqual(self.last["path"], "/v1/sandboxes/sb_1/extend")

    # -- last results

    def result(self, **changes):
        return {"id": "ex_1", "ended_at": "2026-01-02T03:04:05.000Z", "exit_code": 0, "signal": None,
                "timed_out": False, "truncated": False, "duration_ms": 12, "stdout_tail": "",
                "stdout_bytes": 0, "stderr_tail": "", "stderr_bytes": 0, "error": None, **changes}

    def results(self, *rows):
        self.script({"data": [self.result(**row) for row in rows]})
        done = self.ctl("results", "sb_1")
        self.assertEqual(done.returncode, 0, done)
        return done.stdout.decode().splitlines()

    def test_results_tell_how_each_command_ended(self):
        lines = self.results(
            {"stdout_tail": "one\ntwo\n\n", "stdout_bytes": 9},
            {"exit_code": 7, "stdout_tail": "out\n", "stderr_tail": "no such file\n", "stderr_bytes": 13},
            {"exit_code": 137, "signal": 9},
            {"exit_code": 124, "signal": 9, "timed_out": True, "duration_ms": 120003},
            {"exit_code": None, "duration_ms": None, "error": "the guest was lost"})
        self.assertEqual((self.last["method"], self.last["path"]), ("GET", "/v1/sandboxes/sb_1/exec"))
        for line, pattern in zip(lines, (
                r"ID +ENDED +MS +RESULT +STDOUT +STDERR +LAST LINE$",
                r"ex_1 +2026-01-02T03:04:05.000Z +12 +exit 0 +9 +0 +two$",
                r"ex_1 +\S+ +12 +exit 7 +0 +13 +no such file$",
                r"ex_1 +\S+ +12 +signal 9 +0 +0 +-$",
                r"ex_1 +\S+ +120003 +timed out +0 +0 +-$",
                r"ex_1 +\S+ +- +failed +0 +0 +the guest was lost$"), strict=True):
            self.assertRegex(line, pattern)

    def test_results_of_a_guest_can_not_drive_the_terminal(self):
        lines = self.results({"stdout_tail": "\x1b[2J\x07\rforged\n"}, {"stdout_tail": "ü" * 500},
                             {"error": "a\nsb_9 forged"})
        self.assertEqual(len(lines), 4)
        self.assertTrue(lines[1].endswith("\\x1b[2J\\x07\\x0dforged"), lines[1])
        self.assertRegex(lines[2], " ü{40,80}…$")
        self.assertTrue(lines[3].endswith("a\\x0asb_9 forged"), lines[3])

    def test_results_as_json_are_the_services_words(self):
        answer = {"data": [self.result(stdout_tail="a\nb\n")]}
        self.script(answer)
        for args in (["results", "sb_1", "--json"], ["--json", "results", "box"]):
            done = self.ctl(*args)
            self.assertEqual((done.returncode, json.loads(done.stdout)), (0, answer))
        self.script({"data": []})
        self.assertEqual(self.ctl("results", "sb_1").stdout.count(b"\n"), 1)
        self.fail_with("not_found", "there is no such sandbox", 404)
        self.assertEqual(self.ctl("results", "sb_1").returncode, 66)
        self.assertEqual(self.ctl("results").returncode, 2)

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

    def test_a_refused_push_does_not_wait_for_the_pipe(self):
        def refuse(exchange):
            exchange.close_connection = True
            exchange.send(404, {"error": {"type": "not_found", "message": "no such sandbox"}})
        self.server.script = refuse
        process = self.start("push", "sb_1", "-", "/x", stdin=subprocess.PIPE)
        self.assertEqual(process.wait(20), 66)
        self.assertEqual(process.stderr.read(), b"paddockctl: no such sandbox\n")

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

    def test_a_broken_download_leaves_what_was_there(self):
        local = self.dir / "out"
        local.write_bytes(b"old")
        self.script(b"half", cut=4)
        self.assertNotEqual(self.ctl("pull", "sb_1", "/x", str(local)).returncode, 0)
        self.assertEqual(local.read_bytes(), b"old")
        self.assertEqual(list(self.dir.iterdir()), [local])

    def test_a_killed_download_leaves_no_file(self):
        self.script(b"half", cut=4)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self.server.resume.clear()
            process = subprocess.Popen([PROGRAM, "pull", "sb_1", "/x", str(self.dir / "out")],
                                       env=self.environment())
            self.addCleanup(self.end, process)
            self.wait_for(lambda: any(f.read_bytes() == b"half" for f in self.dir.iterdir()))
            process.send_signal(number)
            self.assertEqual(process.wait(20), -number)
            self.server.resume.set()
            self.assertEqual(list(self.dir.iterdir()), [])

    def test_a_download_keeps_mode_and_link_of_what_it_replaces(self):
        self.script(b"new")
        local, link = self.dir / "file", self.dir / "link"
        local.write_bytes(b"old")
        local.chmod(0o640)
        link.symlink_to("file")
        self.assertEqual(self.ctl("pull", "sb_1", "/x", str(link)).returncode, 0)
        self.assertTrue(link.is_symlink())
        self.assertEqual(local.read_bytes(), b"new")
        self.assertEqual(local.stat().st_mode & 0o7777, 0o640)
        self.assertEqual(sorted(self.dir.iterdir()), [local, link])

    def test_a_download_writes_to_what_is_no_file(self):
        fifo = self.dir / "fifo"
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.script(b"content")
        self.assertEqual(self.ctl("pull", "sb_1", "/x", str(fifo)).returncode, 0)
        self.assertEqual(os.read(reader, 100), b"content")
        self.assertTrue(fifo.is_fifo())
        done = self.ctl("pull", "sb_1", "/x", str(self.dir))
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"Is a directory", done.stderr)

    def test_a_full_disk_is_told(self):
        # By a limit rather than /dev/full: were it replaced, the host would lose its device.
        def prepare():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4, 4))

        self.script(b"content")
        local = self.dir / "out"
        done = subprocess.run([PROGRAM, "pull", "sb_1", "/x", local], stderr=subprocess.PIPE,
                              env=self.environment(), preexec_fn=prepare, timeout=60)
        self.assertEqual(done.returncode, 125)
        self.assertEqual(done.stderr, f"paddockctl: write {local}: File too large\n".encode())
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_long_lists_are_read(self):
        self.script({"entries": [{"path": f"/w/{i}", "type": "file", "size_bytes": i, "mode": "0644",
                                  "modified_at": "2026"} for i in range(10000)], "truncated": False})
        done = self.ctl("ls", "sb_1", "/w", "--limit", "10000")
        self.assertEqual((done.returncode, done.stdout.count(b"\n")), (0, 10000), done.stderr)

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

    def test_an_answer_of_another_shape_is_a_failure(self):
        for answer in (b"", b"[]", b"null", {}, {"data": 3}, {"data": None}, {"data": [3]},
                       {"data": [None]}):
            self.script(answer)
            self.assertEqual(self.ctl("list").returncode, 125, answer)
            self.assertEqual(self.ctl("results", "sb_1").returncode, 125, answer)
        for answer in (b"", b"[]"):
            self.script(answer)
            for args in (["get", "sb_1"], ["--json", "get", "sb_1"], ["ls", "sb_1"], ["create"]):
                self.assertEqual(self.ctl(*args).returncode, 125, args)
        _, env = self.admin({"findings": "none"})
        self.assertEqual(self.ctl("doctor", env=env).returncode, 125)

    def test_bad_usage_says_how(self):
        for args in (["nonsense"], ["create", "--nonsense", "1"], ["get"], ["extend", "sb_1", "x"],
                     ["create", "--size"], ["create", "--env", "novalue"], ["--nonsense", "list"],
                     ["create", "--no-wait=yes"], ["exec", "--no-stdin=1", "sb_1", "x"], ["--url"]):
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
        for args in (["--json", "get", "sb_1"], ["get", "--json", "sb_1"], ["get", "sb_1", "--json"],
                     ["destroy", "sb_1", "--json"], ["push", "sb_1", "-", "/x", "--json"]):
            self.assertEqual(self.ctl(*args).stdout, b'{"id":"sb_1","metadata":{"a":"b"}}\n', args)

    def test_the_doctors_verdict_is_the_exit_status(self):
        path = str(self.dir / "admin.sock")
        server = self.serve(UnixServer(path, ctl_service.Exchange))
        for level, status in (("ok", 0), ("warning", 0), ("error", 1)):
            server.script = (200, {"findings": [{"check": "disk", "level": level, "text": "t",
                                                 "fix": "mend it"}]}, 0)
            done = self.ctl("doctor", env={"PADDOCK_ADMIN_SOCKET": path})
            self.assertEqual(done.returncode, status)
            self.assertIn(b"fix: mend it", done.stdout)

    # -- strays

    STRAY = {"kind": "disk", "id": "sb_1", "account": "ac_1", "instance": None, "what": "sandboxes/sb_1",
             "since": "2026-01-02T03:04:05Z", "age_seconds": 7300, "reason": "no record names it",
             "reaped": False, "error": None}

    def answer_of(self, *strays, young=0):
        reaped = sum(s["reaped"] for s in strays)
        ours = sum(not s["instance"] for s in strays)
        return {"data": list(strays), "reaped": reaped, "left": ours - reaped, "young": young}

    def test_strays_exit_with_one_as_long_as_some_are_left(self):
        reaped = dict(self.STRAY, reaped=True)
        failed = dict(self.STRAY, error="not\x1b done")
        foreign = dict(self.STRAY, instance="f" * 16)
        server, env = self.admin({})
        for strays, status, text in (
                ([], 0, b"0 left, 0 reaped, 3 too young"),
                ([self.STRAY], 1, b"disk  sb_1  2 h  ac_1   no record names it  left"),
                ([reaped], 0, b"reaped"), ([foreign], 0, b"not ours"),
                ([reaped, failed], 1, b"not\\x1b done"), ([foreign, self.STRAY], 1, b"not ours")):
            server.script = (200, self.answer_of(*strays, young=3), 0)
            done = self.ctl("strays", env=env)
            self.assertEqual(done.returncode, status, done)
            self.assertIn(text, done.stdout)
            done = self.ctl("strays", "--json", env=env)
            self.assertEqual((done.returncode, json.loads(done.stdout)), (status, server.script[1]))

    def test_strays_are_reaped_only_when_that_is_said(self):
        server, env = self.admin(self.answer_of())
        for args, body in (([], {}), (["--reap"], {"reap": True}), (["--no-reap"], {"reap": False}),
                           (["--all-instances", "--reap"], {"reap": True, "all_instances": True})):
            self.assertEqual(self.ctl("strays", *args, env=env).returncode, 0)
            self.assertEqual((server.seen[-1]["method"], server.seen[-1]["path"]),
                             ("POST", "/v1/admin/strays"))
            self.assertEqual(json.loads(server.seen[-1]["body"]), body)

    def test_strays_failures_are_neither_zero_nor_one(self):
        server, env = self.admin({})
        for status, kind, code in ((503, "unavailable", 75), (500, "internal", 125), (404, "not_found", 66)):
            server.script = (status, {"error": {"type": kind, "message": "m"}}, 0)
            self.assertEqual(self.ctl("strays", env=env).returncode, code)
        server.script = (200, {}, 0)
        self.assertEqual(self.ctl("strays", env=env).returncode, 125)
        for args in (["--nonsense"], ["sb_1"], ["--reap=maybe"]):
            self.assertEqual(self.ctl("strays", *args, env=env).returncode, 2, args)

    def program(self, text):
        """Stands for paddockd; notes its arguments."""
        path = self.dir / "fake-paddockd"
        path.write_text(f"#!/bin/sh\necho \"$*\" >{self.dir}/arguments\n{text}\n")
        path.chmod(0o700)
        return {"PADDOCK_STATE_DIR": str(self.dir), "PADDOCKD": str(path)}

    def test_without_a_daemon_paddockd_looks_for_strays(self):
        answer = json.dumps(self.answer_of(self.STRAY))
        env = self.program(f"echo '{answer}'; exit 1")
        for args, arguments in (([], "--strays"), (["--reap"], "--strays --reap"),
                                (["--all-instances", "--reap", "--config", "/x y"],
                                 "--strays --reap --all-instances --config /x y"),
                                (["--no-reap"], "--strays")):
            done = self.ctl("strays", *args, env=env)
            self.assertEqual(done.returncode, 1, done)
            self.assertIn(b"1 left", done.stdout)
            self.assertEqual((self.dir / "arguments").read_text(), arguments + "\n")
        done = self.ctl("strays", "--json", env=env)
        self.assertEqual(json.loads(done.stdout), json.loads(answer))
        env = self.program(f"echo '{json.dumps(self.answer_of())}'")
        self.assertEqual(self.ctl("strays", env=env).returncode, 0)

    def test_a_socket_that_nobody_serves_is_as_good_as_none(self):
        path = self.dir / "admin.sock"
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        env = self.program(f"echo '{json.dumps(self.answer_of())}'")
        self.assertEqual(self.ctl("strays", env=env).returncode, 0)
        self.assertTrue((self.dir / "arguments").exists())

    def test_a_paddockd_that_fails_is_believed(self):
        for text, code in (("echo cannot >&2; exit 73", 73), ("exit 78", 78), ("kill -9 $$", 125),
                           ("exit 0", 125), ("echo nonsense", 125), ("echo '{}'", 125), ("exit 1", 125),
                           ("exit 127", 125)):
            done = self.ctl("strays", env=self.program(text))
            self.assertEqual(done.returncode, code, (text, done))
            self.assertEqual(done.stdout, b"")
        done = self.ctl("strays", env={"PADDOCK_STATE_DIR": str(self.dir), "PADDOCKD": "/nonexistent"})
        self.assertEqual(done.returncode, 125)
        self.assertIn(b"PADDOCKD", done.stderr)


if __name__ == "__main__":
    unittest.main()
