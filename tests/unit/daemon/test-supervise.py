#!/usr/bin/env python3
"""paddock-supervise: restarts, signals, and orphans that don't stay. usage: test-supervise.py PROGRAM"""
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else "paddock-supervise"


def wait_for(condition, what, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)


class Supervise(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)
        self.starts = self.dir / "starts"
        self.pid_file = self.dir / "pid"

    def start(self, script, *options, prepare=None):
        """The script sees $STARTS, a file that gets a line with each start."""
        process = subprocess.Popen(
            [PROGRAM, "--pid-file", self.pid_file, *options, "sh", "-c", f"echo >>$STARTS; {script}"],
            env=dict(os.environ, STARTS=str(self.starts)), preexec_fn=prepare)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        """By SIGTERM, which takes the command along."""
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise

    def count(self):
        return len(self.starts.read_text()) if self.starts.exists() else 0

    def test_a_failure_is_started_again_and_a_success_is_not(self):
        process = self.start("[ $(wc -l <$STARTS) -ge 2 ] && exit 0; exit 3")
        self.assertEqual(process.wait(20), 0)
        self.assertEqual(self.count(), 2)

    def test_a_wrong_configuration_is_not_tried_again(self):
        process = self.start("exit 78")
        self.assertEqual(process.wait(20), 78)
        self.assertEqual(self.count(), 1)

    def test_orphans_do_not_put_a_restart_off(self):
        # One ends every 0.2 s, for 20 s or until the second start is over.
        process = self.start("[ $(wc -l <$STARTS) -ge 2 ] && exit 0; "
                             "(i=0; while [ $i -lt 100 ] && [ ! -e $STARTS.stop ]; do "
                             "(sleep 0.1 &); sleep 0.2; i=$((i+1)); done; echo >$STARTS.over) & "
                             "exit 3")
        try:
            self.assertEqual(process.wait(15), 0)
        finally:
            (self.dir / "starts.stop").touch()
            wait_for((self.dir / "starts.over").exists, "no more orphans are made")
        self.assertEqual(self.count(), 2)

    def test_an_ignored_sigchld_is_no_obstacle(self):
        process = self.start("exit 0",
                             prepare=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(process.wait(20), 0)
        self.assertEqual(self.count(), 1)

    @unittest.skipIf(os.getuid() != 0, "needs a user without processes of its own")
    def test_a_fork_that_fails_is_tried_again_and_is_no_success(self):
        # Nobody else's: another process of the user, and not even exec() would be allowed.
        user = 100000 + os.getpid()

        def prepare():
            resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
            os.setgid(user)
            os.setuid(user)

        copy = self.dir / "supervise"
        copy.write_bytes(pathlib.Path(PROGRAM).read_bytes())
        copy.chmod(0o755)
        self.dir.chmod(0o755)
        process = subprocess.Popen([copy, "true"], preexec_fn=prepare, stderr=subprocess.PIPE,
                                   env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0"), text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(self.end, process)
        for _ in range(3):
            self.assertIn("fork", process.stderr.readline())
        process.terminate()
        self.assertEqual(process.wait(20), 1)

    def test_the_pid_file_is_never_empty(self):
        process = self.start("exec sleep 60", "--no-restart")
        wait_for(self.pid_file.exists, "the pid file")
        pid = int(self.pid_file.read_text())
        parent = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]
        self.assertEqual(int(parent), process.pid)
        self.assertEqual([f for f in self.dir.iterdir() if f.name.startswith("pid")],
                         [self.pid_file])

    def test_a_pid_file_that_can_not_be_written_is_no_reason_to_stop(self):
        process = subprocess.Popen([PROGRAM, "--pid-file", "/nonexistent/pid", "sh", "-c", "exit 0"],
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        self.assertIn("/nonexistent/pid", process.communicate(timeout=20)[1])
        self.assertEqual(process.returncode, 0)

    def test_a_command_that_is_not_there_does_not_end_it(self):
        process = subprocess.Popen([PROGRAM, "--no-restart", "/no/such/command"],
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        self.assertIn("/no/such/command", process.stderr.readline())
        self.assertIsNone(process.poll())
        process.stderr.close()

    def test_without_restart_only_a_hangup_starts_it_again(self):
        # It ends after its pid file was there: without one it is over, rather than not yet begun.
        seen = self.dir / "seen"
        process = self.start(f"until [ -e {self.pid_file} ]; do sleep 0.01; done; echo >{seen}; exit 3",
                             "--no-restart")
        wait_for(lambda: seen.exists() and not self.pid_file.exists(), "the first start is over")
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: self.count() == 2, "the second start")
        self.assertIsNone(process.poll())

    def test_a_hangup_leaves_a_running_command_alone(self):
        process = self.start("exec sleep 60", "--no-restart")
        wait_for(lambda: self.count() == 1 and self.pid_file.exists(), "it runs")
        pid = self.pid_file.read_text()
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 128 + signal.SIGTERM)
        self.assertEqual(self.count(), 1)
        self.assertFalse(self.pid_file.exists())
        self.assertRaises(ProcessLookupError, os.kill, int(pid), 0)

    def test_sigterm_is_passed_on_and_the_status_comes_back(self):
        process = self.start("trap 'exit 7' TERM; echo >$STARTS.ready; while :; do sleep 0.05; done")
        wait_for((self.dir / "starts.ready").exists, "it runs")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 7)

    def test_orphans_are_reaped(self):
        process = self.start("(sh -c 'echo $$ >$STARTS.orphan; sleep 0.3' &) ; exec sleep 60")
        wait_for((self.dir / "starts.orphan").exists, "the orphan runs")
        wait_for(lambda: (self.dir / "starts.orphan").read_text().strip(), "the orphan told its pid")
        orphan = int((self.dir / "starts.orphan").read_text())
        parent = pathlib.Path(f"/proc/{orphan}/stat").read_text().rsplit(")", 1)[1].split()[1]
        self.assertEqual(int(parent), process.pid)
        wait_for(lambda: not pathlib.Path(f"/proc/{orphan}").exists(), "no zombie is left", 5)

    def test_bad_usage(self):
        for args in ([], ["--no-restart"], ["--nonsense", "true"], ["--pid-file"]):
            done = subprocess.run([PROGRAM, *args], capture_output=True, text=True, timeout=10)
            self.assertEqual(done.returncode, 2, args)
            self.assertIn("usage", done.stderr)


if __name__ == "__main__":
    unittest.main()
