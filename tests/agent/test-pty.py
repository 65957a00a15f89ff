"""Jobs on a terminal: PROTOCOL.md section 5.7."""

import hashlib
import os
import time
import unittest

from harness import IS_ROOT, UID, AgentTest, hide_clone3, main
from paddock_proto import *


class Pty(AgentTest):
    def start(self, *args, id="ex_1", **options):
        options.setdefault("exec_flags", EXEC_TTY)
        self.assert_status(self.host.start(id, *args, **options), OK)

    def type(self, text, **options):
        self.assert_status(self.host.short(JOB_INPUT, id="ex_1", stdin=text, **options), OK)

    def screen(self):
        return self.host.output("ex_1").out

    def wait_screen(self, text):
        self.wait_for(lambda: text in self.screen(), f"{text!r} never came")

    def test_hello_announces_them(self):
        self.assertTrue(self.host.hello["features"] & FEATURE_PTY)

    def test_a_program_on_a_terminal_of_its_own(self):
        self.start(command="tty; stty size; echo $TERM; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all;"
                           "echo err >&2; stty -a | grep -o -- '-*iutf8'; ps -o pid=,sid=,tpgid= -p $$;"
                           "stat -c %U:%u $(tty); echo x >/dev/tty", rows=33, cols=101)
        self.assertEqual(self.host.wait("ex_1").exit_code, 0)
        got = self.host.output("ex_1")
        lines = got.out.decode().split("\r\n")
        self.assertTrue(lines[0].startswith("/dev/pts/"), lines)
        self.assertEqual(lines[1:6], ["33 101", "xterm-256color", "all", "err", "iutf8"])
        pid, sid, group = lines[6].split()
        self.assertEqual((sid, group), (pid, pid))
        self.assertEqual(lines[7].split(":")[1], str(UID))
        self.assertEqual(lines[8], "x")
        self.assertEqual(got.err, b"")
        self.assertEqual(got.started["job_flags"], JOB_TTY)

    def test_login_shell(self):
        self.start()
        self.type(b"echo $0 $PWD; shopt -q login_shell && echo lo''gin\n")
        self.wait_screen(b"-bash")
        self.wait_screen(b"login\r\n")
        self.type(b"exit 5\n")
        self.assertEqual(self.host.wait("ex_1", timeout=20).exit_code, 5)
        self.start(id="ex_2", shell="sh")
        self.host.short(JOB_INPUT, id="ex_2", stdin=b"echo $0\nexit\n")
        self.host.wait("ex_2", timeout=20)
        self.assertIn(b"-sh\r\n", self.host.output("ex_2").out)

    def test_term_is_whose_it_is_set_by(self):
        def term(id, **options):
            self.start(command="echo $TERM", id=id, **options)
            self.host.wait(id)
            return self.host.output(id).out.strip()

        self.assertEqual(term("ex_1", env=["TERM=vt100"]), b"vt100")
        self.host.short(CONFIGURE, env="TERM=screen")
        self.assertEqual(term("ex_2"), b"screen")
        self.host.short(CONFIGURE, env_reset=1)
        self.assertEqual(term("ex_3"), b"xterm-256color")

    def test_login_shell_needs_a_terminal(self):
        self.assert_status(self.host.start("ex_1"), INVALID)

    def test_resize_tells_the_programs(self):
        self.start(command="trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.05; done")
        self.wait_screen(b"up")
        self.assert_status(self.host.short(JOB_RESIZE, id="ex_1", rows=50, cols=132), OK)
        self.assertEqual(self.host.wait("ex_1", timeout=20).exit_code, 0)
        self.assertIn(b"50 132", self.screen())
        self.assert_status(self.host.short(JOB_RESIZE, id="ex_1", rows=1, cols=1), INVALID, "terminal")

    def test_sizes_at_their_ends(self):
        for rows, cols in ((0, 1), (1, 0), (65536, 1), (1, 1 << 31)):
            self.assert_status(self.host.start("ex_1", "true", exec_flags=EXEC_TTY, rows=rows, cols=cols), INVALID)
        self.start("sleep", "100", rows=1, cols=65535)
        self.assert_status(self.host.short(JOB_RESIZE, id="ex_1", rows=0, cols=5), INVALID)
        self.assert_status(self.host.short(JOB_RESIZE, id="ex_1"), INVALID)
        self.assert_status(self.host.short(JOB_RESIZE, id="ex_1", rows=65535, cols=1), OK)

    def test_control_c_and_control_d(self):
        self.start(command="trap 'echo caught' INT; echo up; cat; echo rest; read -r line; cat; echo end")
        self.wait_screen(b"up")
        self.wait_for(lambda: "cat" in self.agent.commands(), "no cat")
        self.type(b"\x03")
        self.wait_screen(b"rest")
        self.assertIn(b"^C", self.screen())
        self.type(b"line\nmore\n")
        self.wait_screen(b"more\r\nmore\r\n")
        self.type(b"", job_flags=JOB_CLOSE)
        self.assertEqual(self.host.wait("ex_1", timeout=20).exit_code, 0)
        self.assertTrue(self.screen().endswith(b"end\r\n"))

    def test_control_d_comes_behind_input_that_had_to_wait(self):
        self.start(command="echo up; sleep 0.5; cat | wc -l; echo end")
        self.wait_screen(b"up")
        self.type(b"a line of it\n" * 20000, job_flags=JOB_CLOSE, timeout=60)
        self.assertEqual(self.host.wait("ex_1", timeout=20).exit_code, 0)
        self.assertTrue(self.screen().endswith(b"20000\r\nend\r\n"))

    def test_signal_by_id(self):
        self.start("sleep", "100")
        self.host.short(SIGNAL, id="ex_1", signal=2)
        self.assertEqual(self.host.wait("ex_1").signal, 2)

    def test_all_that_was_written_before_the_end_is_kept(self):
        for i in range(20):
            self.start(command="seq 1 2000", id=f"ex_{i}")
            self.host.wait(f"ex_{i}")
            got = self.host.output(f"ex_{i}").out
            self.assertEqual(got, b"".join(b"%d\r\n" % n for n in range(1, 2001)))

    def test_the_end_hangs_up_on_what_is_left(self):
        log = self.agent.workspace / "log"
        self.start(command="(trap 'echo hup >log; exit' HUP; echo up; while :; do sleep 0.05; done) & "
                           "while ! [ -e go ]; do sleep 0.05; done")
        self.wait_screen(b"up")
        self.host.put("go", b"")
        self.assertEqual(self.host.wait("ex_1", timeout=20).exit_code, 0)
        self.wait_for(lambda: log.exists() and log.read_text() == "hup\n", "no hang-up")

    def test_a_program_that_lets_go_of_its_terminal_for_a_while(self):
        self.start(command="exec 3>&1; t=$(tty); exec </dev/null >/dev/null 2>&1 3>&-; sleep 0.5;"
                           "exec >$t; echo back; sleep 0.2")
        result = self.host.wait("ex_1", timeout=20)
        self.assertEqual(result.exit_code, 0)
        self.assertIn(b"back", self.screen())

    def test_much_input_with_a_slow_reader(self):
        """Raw mode, so that the terminal holds input back instead of dropping it."""
        self.start(command="stty raw -echo; echo up; sleep 0.5; head -c 500000 | sha256sum")
        self.wait_screen(b"up")
        data = os.urandom(500000)
        self.type(data, timeout=60)
        self.wait_screen(hashlib.sha256(data).hexdigest().encode())

    def test_flood_with_and_without_a_follower(self):
        self.start("yes", "y" * 70)
        self.wait_for(lambda: self.host.jobs()[0]["first_offset"] > 0, "the ring never filled")
        stream = self.host.call(JOB_READ, ("id", "ex_1"), ("job_flags", JOB_FOLLOW))
        self.wait_for(lambda: self.at_rest(), "it is not held back")
        self.type(b"\x03")
        self.host.send(frame(CANCEL, stream))
        self.assertEqual(self.host.wait("ex_1", timeout=20).signal, 2)

    def at_rest(self):
        before = self.host.jobs()[0]["end_offset"]
        time.sleep(0.2)
        return self.host.jobs()[0]["end_offset"] == before

    def test_descriptors_come_back(self):
        before = self.agent.descriptors()
        for i in range(10):
            self.start(command="exit 3", id=f"ex_{i}")
            self.assertEqual(self.host.wait(f"ex_{i}").exit_code, 3)
        self.assert_status(self.host.start("ex_x", "true", exec_flags=EXEC_TTY, cwd="/no/such"), INVALID)
        self.assertEqual(self.agent.descriptors(), before)

    @unittest.skipUnless(IS_ROOT, "needs root")
    def test_as_root(self):
        self.start(command="id -u; stat -c %u $(tty)", exec_flags=EXEC_TTY | EXEC_ROOT)
        self.host.wait("ex_1")
        self.assertEqual(self.screen(), b"0\r\n0\r\n")


class PtyWithoutClone3(AgentTest):
    prepare = staticmethod(hide_clone3)

    def test_a_forked_child_gets_its_terminal_as_well(self):
        self.assert_status(self.host.start("ex_1", command="tty; cat </dev/tty", exec_flags=EXEC_TTY), OK)
        self.host.short(JOB_INPUT, id="ex_1", stdin=b"typed\n", job_flags=JOB_CLOSE)
        self.assertEqual(self.host.wait("ex_1", timeout=20).exit_code, 0)
        out = self.host.output("ex_1").out
        self.assertIn(b"/dev/pts/", out)
        self.assertEqual(out.count(b"typed\r\n"), 2)


if __name__ == "__main__":
    main()
