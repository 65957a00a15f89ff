"""EXEC: PROTOCOL.md section 5.1."""

import hashlib
import os
import signal
import struct
import time
import unittest
from pathlib import Path

from harness import IS_ROOT, UID, AgentTest, hide_clone3, main
from paddock_proto import *


class Exec(AgentTest):
    def test_exit_codes(self):
        for code in (0, 1, 7, 255):
            result = self.host.run("sh", "-c", f"exit {code}")
            self.assertEqual((result.status, result.exit_code, result.signal), (OK, code, 0))

    def test_a_missing_program_is_127_and_says_so(self):
        for name in ("no-such-program", "/no/such/program", "./nothing", ""):
            result = self.host.run(name)
            self.assertEqual((result.status, result.exit_code), (OK, 127), name)
            self.assertIn(b"No such file" if "/" in name else b"not found", result.err)
        self.assertEqual(self.host.run(command="no-such-program").exit_code, 127)

    def test_the_longest_missing_name_does_not_hold_the_agent(self):
        # More than a pipe holds: nobody reads it before the command has started or ended.
        for name in ("x" * 131000, "x" * 900000, "/" + "x" * 131000):
            result = self.host.run(name, timeout=30)
            self.assertIn(result.exit_code, (126, 127))
            self.assertTrue(0 < len(result.err) < 4096, len(result.err))

    def test_a_program_that_is_none_is_126(self):
        self.host.put("text", b"just text", mode=0o644)
        for name in ("/etc/passwd", "/etc", "./text"):
            result = self.host.run(name)
            self.assertEqual((result.status, result.exit_code), (OK, 126), name)
            self.assertNotEqual(result.err, b"")

    def test_a_script_without_interpreter_line_runs(self):
        self.host.put("script", b"echo script $1\n", mode=0o755)
        self.assertEqual(self.host.run("./script", "one").out, b"script one\n")

    def test_what_was_just_put_can_be_run(self):
        for i in range(30):
            # Other files on their way at the same moment.
            others = [self.host.call(FILE_PUT, ("path", f"o{i}-{j}")) for j in range(3)]
            self.host.put(f"p{i}", b"#!/bin/sh\necho ran\n", mode=0o755)
            self.assertEqual(self.host.run(f"./p{i}").out, b"ran\n")
            for stream in others:
                self.host.send(frame(CANCEL, stream))

    def test_path_is_that_of_the_call(self):
        self.host.put("bin/tool", b"#!/bin/sh\necho tool\n", mode=0o755, file_flags=FILE_PARENTS)
        path = f"PATH=/nowhere:{self.agent.workspace}/bin:/bin:/usr/bin"
        self.assertEqual(self.host.run("tool", env=[path]).out, b"tool\n")
        self.assertEqual(self.host.run("tool").exit_code, 127)

    def test_signals_are_told(self):
        for number in (1, 9, 11, 15):
            result = self.host.run(command=f"kill -{number} $$")
            self.assertEqual((result.exit_code, result.signal), (128 + number, number))

    def test_the_outputs_are_kept_apart(self):
        result = self.host.run(command="echo out; echo err >&2; echo out2")
        self.assertEqual((result.out, result.err), (b"out\nout2\n", b"err\n"))
        self.assertEqual((result.out_bytes, result.err_bytes), (9, 4))

    def test_started_names_the_process(self):
        result = self.host.run(command="echo $$")
        self.assertEqual(result.started["pid"], int(result.out))
        self.assertEqual(result.frames[0], STARTED)
        self.assertEqual(result.frames[-1], END)

    def test_the_command_runs_as_the_user_in_a_world_of_its_own(self):
        result = self.host.run(command="id -u; id -G; pwd; umask; ps -o pid=,pgid=,sid= -p $$; echo $HOME")
        uid, groups, cwd, umask, ids, home = result.out.decode().splitlines()
        pid, group, session = ids.split()
        self.assertEqual((uid, cwd, home), (str(UID), str(self.agent.workspace), str(self.agent.home)))
        if IS_ROOT:
            self.assertEqual(groups, str(UID))
        self.assertEqual(umask[-3:], "022")
        self.assertEqual((group, session), (pid, pid))

    @unittest.skipUnless(IS_ROOT, "needs root")
    def test_root_only_where_asked(self):
        self.assertEqual(self.host.run("id", "-u", exec_flags=EXEC_ROOT).out, b"0\n")
        self.assertEqual(self.host.run("id", "-u").out, f"{UID}\n".encode())

    def test_nothing_of_the_agent_is_inherited(self):
        result = self.host.run(command="ls -l /proc/self/fd; grep Sig /proc/self/status")
        self.assertNotIn(b"socket:", result.out)
        self.assertNotIn(b"anon_inode", result.out)
        for line in result.out.decode().splitlines():
            if line.startswith(("SigBlk", "SigIgn")):
                self.assertEqual(int(line.split()[1], 16), 0, line)

    def test_base_environment(self):
        env = dict(l.split("=", 1) for l in self.host.run("env").out.decode().splitlines())
        self.assertEqual(env["LANG"], "C.UTF-8")
        self.assertEqual(env["TERM"], "dumb")
        self.assertTrue(env["PATH"].startswith(f"{self.agent.home}/.local/bin:"))
        self.assertEqual(sorted(env), sorted("HOME LANG LOGNAME PATH SHELL TERM USER".split()))

    def test_call_environment_replaces(self):
        result = self.host.run("sh", "-c", "echo $TERM:$X:$HOME", env=["TERM=xterm", "X=a=b", "X=c"])
        self.assertEqual(result.out, f"xterm:c:{self.agent.home}\n".encode())

    def test_cwd(self):
        self.host.run("mkdir", "-p", "sub/dir")
        self.assertEqual(self.host.run("pwd", cwd="/").out, b"/\n")
        self.assertEqual(self.host.run("pwd", cwd="sub/dir").out,
                         f"{self.agent.workspace}/sub/dir\n".encode())
        for cwd in ("/no/such", "/etc/passwd", "x" * 4095):
            result = self.host.run("pwd", cwd=cwd)
            self.assert_status(result, INVALID, cwd[:20])

    def test_stdin_of_a_mebibyte(self):
        data = os.urandom(1 << 20)
        result = self.host.run("sha256sum", stdin=data)
        self.assertEqual(result.out.split()[0].decode(), hashlib.sha256(data).hexdigest())

    def test_stdin_and_output_flow_at_the_same_time(self):
        data = os.urandom(3 << 20)
        result = self.host.run("cat", stdin=data)
        self.assertEqual(result.out, data)

    def test_stdin_ends(self):
        self.assertEqual(self.host.run("cat", stdin=b"").out, b"")
        self.assertEqual(self.host.run("cat").out, b"")  # /dev/null

    def test_nobody_reads_stdin(self):
        for command in ("exec <&-; sleep 0.3; echo done", "head -c 1 >/dev/null; sleep 0.3; echo done", "echo done"):
            result = self.host.run(command=command, stdin=bytes(1 << 20))
            self.assertEqual((result.exit_code, result.out), (0, b"done\n"), command)

    def test_output_beyond_the_cap_is_counted_and_dropped(self):
        result = self.host.run(command="head -c 3000000 /dev/zero; head -c 500 /dev/zero >&2",
                               output_cap=100000)
        self.assertEqual(len(result.out) + len(result.err), 100000)
        self.assertEqual((result.out_bytes, result.err_bytes), (3000000, 500))
        self.assertTrue(result.end_flags & TRUNCATED)
        self.assertEqual(result.exit_code, 0)

    def test_output_of_exactly_the_cap_is_whole(self):
        result = self.host.run(command="head -c 5000 /dev/zero", output_cap=5000)
        self.assertEqual((len(result.out), result.end_flags), (5000, 0))
        result = self.host.run(command="echo x", output_cap=0)
        self.assertEqual((result.out, result.out_bytes, result.end_flags), (b"", 2, TRUNCATED))

    def test_binary_output_of_many_windows(self):
        result = self.host.run(command="head -c 20000000 /dev/urandom | tee copy")
        self.assertEqual(len(result.out), 20000000)
        self.assertEqual(self.host.get("copy").out, result.out)

    def test_an_empty_window_stops_the_command(self):
        stream = self.host.call(EXEC, ("command", "yes | head -c 3000000; touch finished"))
        got = 0
        while got < WINDOW_INITIAL:
            f = self.host.read()
            got += len(f.payload) if f.kind == DATA else 0
        self.assertEqual(got, WINDOW_INITIAL)
        self.assertTrue(self.host.is_quiet(0.5), "it sends beyond its window")
        self.assertEqual(self.host.run("ls").out, b"", "others suffer or the command ran on")
        self.host.send(frame(WINDOW, stream, struct.pack("<I", 3000000), OUT))
        result = self.host.finish(stream)
        self.assertEqual((got + len(result.out), result.exit_code), (3000000, 0))

    def test_a_stopped_stdout_does_not_stop_stderr(self):
        stream = self.host.call(EXEC, ("command", "(yes | head -c 1000000) & sleep 0.2; echo now >&2; wait"))
        seen = b""
        while b"now\n" not in seen:
            f = self.host.read()
            seen += f.payload if f.kind == DATA and f.channel == ERR else b""
        self.host.send(frame(WINDOW, stream, struct.pack("<I", 1000000), OUT))
        self.assertEqual(self.host.finish(stream).exit_code, 0)

    def test_time_out_ends_the_whole_tree(self):
        start = time.monotonic()
        result = self.host.run(command="setsid sleep 3011 & sleep 3012 & sleep 3013", timeout_ms=300)
        self.assertTrue(result.end_flags & TIMED_OUT)
        self.assertEqual((result.exit_code, result.signal), (143, 15))
        self.assertLess(time.monotonic() - start, 20)
        self.assertEqual([c for c in self.agent.commands() if "sleep 301" in c], [])

    def test_who_ignores_term_is_killed_after_the_grace(self):
        result = self.host.run(command="trap '' TERM; echo up; while :; do sleep 0.05; done",
                               timeout_ms=300, grace_ms=400)
        self.assertEqual((result.exit_code, result.signal, result.out), (137, 9, b"up\n"))
        self.assertTrue(result.end_flags & TIMED_OUT)
        self.assertGreaterEqual(result.duration_us, 700000)

    def test_who_cleans_up_on_term_has_the_grace_for_it(self):
        result = self.host.run(command="trap 'echo cleaned; exit 3' TERM; echo up; while :; do sleep 0.05; done",
                               timeout_ms=300, grace_ms=20000)
        self.assertEqual((result.exit_code, result.out), (3, b"up\ncleaned\n"))
        self.assertTrue(result.end_flags & TIMED_OUT)

    def test_a_stopped_command_is_ended_by_its_time_out(self):
        result = self.host.run(command="kill -STOP $$", timeout_ms=300)
        self.assertEqual((result.exit_code, bool(result.end_flags & TIMED_OUT)), (143, True))

    def test_the_first_process_ends_on_term_but_its_child_does_not(self):
        result = self.host.run(
            command="(trap '' TERM; while :; do sleep 0.0501; done) & echo up; wait",
            timeout_ms=300, grace_ms=300)
        self.assertTrue(result.end_flags & TIMED_OUT)
        if self.agent.cgroup:
            self.assertEqual([c for c in self.agent.commands() if "0.0501" in c or "trap" in c], [])

    def test_the_longest_time_out_and_grace_are_taken_as_such(self):
        for timeout in (2**64 - 1, 2**64 - 1000, 2**63):
            result = self.host.run(command="sleep 0.2; echo x", timeout_ms=timeout)
            self.assertEqual((result.out, result.end_flags), (b"x\n", 0))
        result = self.host.run(command="trap 'sleep 0.3; exit 3' TERM; while :; do sleep 0.05; done",
                               timeout_ms=300, grace_ms=2**64 - 1)
        self.assertEqual((result.exit_code, result.end_flags), (3, TIMED_OUT))

    def test_time_out_in_time_is_none(self):
        result = self.host.run(command="sleep 0.1; echo x", timeout_ms=20000)
        self.assertEqual((result.exit_code, result.end_flags, result.out), (0, 0, b"x\n"))

    def test_a_background_child_does_not_hold_the_call(self):
        start = time.monotonic()
        result = self.host.run(command="sleep 3021 & echo done")
        self.assertLess(time.monotonic() - start, 10)
        self.assertEqual((result.out, result.exit_code), (b"done\n", 0))
        self.wait_for(lambda: "sleep 3021" in self.agent.commands(), "it is gone")

    def test_a_background_child_may_write_on(self):
        self.host.run(command="(for i in 1 2 3 4; do head -c 200000 /dev/zero; sleep 0.1; done;"
                              " echo alive > proof) & echo done")
        self.wait_for(lambda: (self.agent.workspace / "proof").exists(),
                      "it was stopped or killed by its pipe")

    def test_limits_hold_however_many_commands_left_something_running(self):
        if not self.agent.cgroup:
            self.skipTest("no cgroups")
        for _ in range(130):
            self.assertEqual(self.host.run(command="sleep 3023 & :").exit_code, 0)
        where = self.host.run("cat", "/proc/self/cgroup").out.decode()
        self.assertIn(self.agent.cgroup.name, where)
        result = self.host.run(command="sleep 3024", timeout_ms=100)
        self.assertTrue(result.end_flags & TIMED_OUT)
        # What they left ends: there is room again.
        for procs in self.agent.cgroup.rglob("cgroup.procs"):
            for pid in procs.read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        self.wait_for(lambda: not self.agent.commands(), "not killed")
        where = self.host.run("cat", "/proc/self/cgroup").out.decode()
        self.assertIn(self.agent.cgroup.name + "/exec-", where)

    def test_all_that_was_written_before_the_end_arrives(self):
        result = self.host.run(command="sleep 3022 & head -c 60000 /dev/zero; exit 5")
        self.assertEqual((len(result.out), result.exit_code), (60000, 5))

    def test_cancel_kills_the_tree(self):
        stream = self.host.call(EXEC, ("command", "setsid sleep 3031 & sleep 3032"))
        self.wait_for(lambda: sum("sleep 303" in c for c in self.agent.commands()) >= 2, "not started")
        self.host.send(frame(CANCEL, stream))
        result = self.host.finish(stream)
        self.assertEqual((result.status, result.exit_code), (OK, 137))
        self.assertTrue(result.end_flags & WAS_CANCELLED)
        self.wait_for(lambda: not any("sleep 3032" in c for c in self.agent.commands()), "left over")
        if self.agent.cgroup:
            self.assertEqual([c for c in self.agent.commands() if "sleep 303" in c], [])

    def test_the_next_command_survives_a_kill(self):
        for _ in range(5):
            stream = self.host.call(EXEC, ("command", "sleep 3033"))
            self.host.send(frame(CANCEL, stream))
            self.host.finish(stream)
            for _ in range(3):
                self.assertEqual(self.host.run("true").exit_code, 0)

    def test_cancel_with_a_full_pipe_and_no_credit(self):
        stream = self.host.call(EXEC, ("command", "yes"))
        got = 0
        while got < WINDOW_INITIAL:
            f = self.host.read()
            got += len(f.payload) if f.kind == DATA else 0
        self.host.send(frame(CANCEL, stream))
        self.assertTrue(self.host.finish(stream).end_flags & WAS_CANCELLED)

    def test_cancel_of_what_has_timed_out_and_has_no_credit(self):
        stream = self.host.call(EXEC, ("command", "exec yes"), ("timeout_ms", 500))
        pid = unbody(self.host.read().payload)["pid"]
        self.wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "its time-out doesn't come")
        # END waits for credit alone once the tree is found empty, which it is looked at for each 10 ms.
        time.sleep(0.1)
        self.host.send(frame(CANCEL, stream))
        end = None
        while end is None:
            f = self.host.read(20)
            end = unbody(f.payload) if f.kind == END else None
        self.assertEqual((end["signal"], end["end_flags"]), (15, TIMED_OUT | WAS_CANCELLED))

    @unittest.skipUnless(IS_ROOT, "needs a user of its own")
    def test_a_first_process_that_a_tracer_keeps_is_ended_by_its_time_out(self):
        """A zombie that its tracer doesn't wait for never becomes its parent's."""
        tracer = ("import ctypes, sys, time\n"
                  "libc = ctypes.CDLL(None, use_errno=True)\n"
                  "while not open('victim').read().endswith('\\n'): time.sleep(0.01)\n"
                  "pid = int(open('victim').read())\n"
                  "ok = libc.ptrace(0x4206, pid, None, None)\n"  # PTRACE_SEIZE
                  "open('traced', 'w').write(f'{ok} {ctypes.get_errno()}')\n"
                  "time.sleep(60)\n")
        self.host.put("tracer", tracer.encode())
        self.host.put("victim", b"")
        self.host.run(command="/usr/bin/python3 tracer >log 2>&1 &")
        stream = self.host.call(EXEC, ("command", "echo $$ >victim; exec sleep 1000"),
                                ("timeout_ms", 3000), ("grace_ms", 100))
        self.wait_for(lambda: (self.agent.workspace / "traced").exists(), "not traced")
        self.wait_for(lambda: (self.agent.workspace / "traced").read_text() == "0 0", "not traced")
        result = self.host.finish(stream, timeout=30)
        self.assertEqual((result.exit_code, result.signal, result.end_flags), (137, 9, TIMED_OUT))

    def test_cancel_after_the_end_is_nothing(self):
        self.host.run("true")
        self.host.send(frame(CANCEL, 1))
        self.assertEqual(self.host.run("true").exit_code, 0)

    def test_many_at_once(self):
        streams = [self.host.call(EXEC, ("command", f"sleep 0.2; echo {i}; exit {i}")) for i in range(32)]
        results, out = {}, {s: b"" for s in streams}
        while len(results) < len(streams):
            f = self.host.read()
            if f.kind == DATA:
                out[f.stream] += f.payload
            elif f.kind == END:
                results[f.stream] = unbody(f.payload)
        for i, stream in enumerate(streams):
            self.assertEqual((results[stream]["exit_code"], out[stream]), (i, f"{i}\n".encode()))

    def test_nothing_piles_up(self):
        self.host.run("true")
        descriptors, rss = self.agent.descriptors(), self.agent.rss_kib()
        for _ in range(300):
            self.host.run("true")
        self.wait_for(lambda: self.agent.descriptors() <= descriptors + 4, "descriptors leak")
        self.assertLess(self.agent.rss_kib(), rss + 8192)
        zombies = self.host.run(command=f"ps -o stat= --ppid {self.agent.process.pid}").out
        self.assertNotIn(b"Z", zombies)

    def test_orphans_are_reaped(self):
        self.host.run(command="for i in 1 2 3 4 5; do (setsid sh -c 'sleep 0.1' &) ; done")
        pid = self.agent.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        self.wait_for(lambda: children.read_text() == "", "zombies")

    def test_a_long_command_runs(self):
        text = "x" * 300000
        result = self.host.run(command=f"v={text}; echo ${{#v}}; echo more")
        self.assertEqual(result.out, b"300000\nmore\n")

    def test_a_long_argument_is_refused_by_name(self):
        self.assert_status(self.host.run("echo", "x" * 200000), INVALID, "longer than")

    def test_bad_requests_name_the_field(self):
        call = lambda *f: self.host.finish(self.host.call(EXEC, *f))
        self.assert_status(call(), INVALID, "command or arguments")
        self.assert_status(call(("arg", "a"), ("command", "b")), INVALID, "command or arguments")
        self.assert_status(call(("arg", b"a\0b")), INVALID, "argument")
        self.assert_status(call(("command", b"a\0b")), INVALID, "command")
        self.assert_status(call(("arg", "a"), ("cwd", b"a\0b")), INVALID, "cwd")
        self.assert_status(call(("arg", "a"), ("cwd", "a" * 4096)), INVALID, "cwd")
        self.assert_status(call(("arg", "a"), ("env", "=x")), INVALID, "environment")
        self.assert_status(call(("arg", "a"), ("env", "x")), INVALID, "environment")
        self.assert_status(call(("arg", "a"), (20, b"abc")), INVALID)
        self.assert_status(call(("arg", "a"), ("exec_flags", 1 << 20)), UNSUPPORTED)
        self.assert_status(call(*[("arg", "a")] * 1025), INVALID, "too many")
        self.assert_status(call(("arg", "a"), *[("env", f"v{i}=1") for i in range(1025)]), INVALID, "too many")
        stream = self.host.new_id()
        self.host.send(frame(EXEC, stream, b"\x10\x00\x00"))
        self.assert_status(self.host.finish(stream), INVALID, "malformed")

    def test_the_most_arguments_and_variables(self):
        result = self.host.run(*["printf", "%s"] + ["a"] * 1022)
        self.assertEqual(result.out, b"a" * 1022)
        result = self.host.run("env", env=[f"V{i}=1" for i in range(1024)])
        self.assertEqual(result.out.count(b"\nV") + result.out.startswith(b"V"), 1024)

    def test_duration_is_measured_in_the_guest(self):
        result = self.host.run("sleep", "0.3")
        self.assertTrue(300000 <= result.duration_us < 15000000, result.duration_us)


class ExecStartedCarelessly(AgentTest):
    """By a service manager that ignores signals or hides system calls."""

    @staticmethod
    def prepare():
        """Ignores signals; clone3 is not there."""
        for number in signal.SIGPIPE, signal.SIGCHLD, signal.SIGHUP:
            signal.signal(number, signal.SIG_IGN)
        hide_clone3()

    def test_no_signal_is_ignored(self):
        result = self.host.run(command="grep SigIgn /proc/self/status; kill -PIPE $$")
        self.assertEqual(int(result.out.split()[1], 16), 0)
        self.assertEqual(result.signal, signal.SIGPIPE)

    def test_commands_start_and_say_when_they_cannot(self):
        self.assertEqual(self.host.run("echo", "hi").out, b"hi\n")
        self.assertEqual(self.host.run("no-such-program").exit_code, 127)
        for _ in range(20):
            self.assert_status(self.host.run("true", cwd="/no/such"), INVALID, "cwd")
        result = self.host.run(command="setsid sleep 3043 & sleep 3044", timeout_ms=400)
        self.assertTrue(result.end_flags & TIMED_OUT)
        self.wait_for(lambda: not any("sleep 304" in c for c in self.agent.commands()), "left over")


class ExecWithoutCgroup(AgentTest):
    has_cgroup = False

    def test_features_say_so(self):
        self.assertEqual(self.host.hello["features"] & 1, 0)

    def test_time_out_reaches_a_setsid_child(self):
        result = self.host.run(command="setsid sleep 3041 & sleep 3042", timeout_ms=400)
        self.assertTrue(result.end_flags & TIMED_OUT)
        # Signalled, but END can only wait for what still hangs together.
        self.wait_for(lambda: not any("sleep 304" in c for c in self.agent.commands()), "left over")

    def test_cancel(self):
        stream = self.host.call(EXEC, ("command", "sleep 3051 & sleep 3052"))
        self.wait_for(lambda: sum("sleep 305" in c for c in self.agent.commands()) >= 2, "not started")
        self.host.send(frame(CANCEL, stream))
        self.assertTrue(self.host.finish(stream).end_flags & WAS_CANCELLED)
        # Signalled, but END can only wait for what still hangs together.
        self.wait_for(lambda: not any("sleep 305" in c for c in self.agent.commands()), "left over")


if __name__ == "__main__":
    main()
