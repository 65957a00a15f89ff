#!/usr/bin/python3
"""paddock-supervise with shell commands as its child."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SUPERVISE = sys.argv.pop(1)
LIMIT_S = 60

ORPHAN = """
import os, sys, time
if os.fork() == 0:
    if os.fork() == 0:
        open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        while os.getppid() != int(sys.argv[2]):
            time.sleep(0.01)
        os._exit(0)
    os._exit(0)
os.wait()
time.sleep(600)
"""

ORPHANS = """
import os, sys, time
if os.fork() == 0:
    for _ in range(600):
        if os.fork() == 0:
            time.sleep(0.3)
            os._exit(0)
        time.sleep(0.1)
        if os.path.exists(sys.argv[2]):
            os._exit(0)
"""


class Supervise(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.log = self.path("log")
        self.pid_file = self.path("pid")

    def path(self, name):
        return os.path.join(self.dir.name, name)

    def start(self, command, *options, **popen):
        child = subprocess.Popen([SUPERVISE, "--pid-file", self.pid_file, *options, *command],
                                 stderr=subprocess.PIPE, **popen)
        self.addCleanup(self.end, child)
        return child

    def shell(self, script, *options, **popen):
        """Notes each start in the log first, with the process id."""
        return self.start(["sh", "-c", f'echo $$ >> "$0"; {script}', self.log], *options, **popen)

    def end(self, supervisor):
        if supervisor.poll() is None:
            supervisor.kill()
            try:
                os.kill(int(self.read(self.pid_file)), signal.SIGKILL)
            except (ValueError, ProcessLookupError):
                pass
        supervisor.wait(LIMIT_S)
        supervisor.stderr.close()

    def read(self, path):
        try:
            with open(path) as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def starts(self):
        return self.read(self.log).split()

    def wait_for(self, condition, what):
        until = time.monotonic() + LIMIT_S
        while not condition():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.01)

    def wait_starts(self, count):
        self.wait_for(lambda: len(self.starts()) >= count, f"{count} starts")

    def wait_running(self):
        """The file names the last start."""
        self.wait_for(lambda: self.starts() and self.read(self.pid_file) == self.starts()[-1] + "\n",
                      "the pid file")
        return int(self.starts()[-1])

    def wait_gone(self):
        self.wait_for(lambda: not os.path.exists(self.pid_file), "no pid file")

    def test_a_failure_is_started_again_after_a_pause(self):
        begin = time.monotonic()
        supervisor = self.shell('test $(wc -l < "$0") -ge 3 || exit 7')
        self.assertEqual(supervisor.wait(LIMIT_S), 0)
        self.assertEqual(len(self.starts()), 3)
        self.assertGreaterEqual(time.monotonic() - begin, 2)

    def test_a_crash_is_started_again(self):
        supervisor = self.shell('test $(wc -l < "$0") -ge 2 || kill -SEGV $$')
        self.assertEqual(supervisor.wait(LIMIT_S), 0)
        self.assertEqual(len(self.starts()), 2)

    def test_success_is_the_end(self):
        self.assertEqual(self.shell("exit 0").wait(LIMIT_S), 0)
        self.assertEqual(len(self.starts()), 1)
        self.assertEqual(os.listdir(self.dir.name), ["log"])

    def test_without_restart_only_hangup_starts_again(self):
        supervisor = self.shell("exit 7", "--no-restart")
        self.wait_starts(1)
        self.wait_gone()
        # Longer than the pause that a restart would take.
        with self.assertRaises(subprocess.TimeoutExpired):
            supervisor.wait(1.5)
        self.assertEqual(len(self.starts()), 1)
        supervisor.send_signal(signal.SIGHUP)
        self.wait_starts(2)
        self.wait_gone()
        supervisor.terminate()
        self.assertEqual(supervisor.wait(LIMIT_S), 7)
        self.assertEqual(len(self.starts()), 2)

    def test_hangup_leaves_a_running_command_alone(self):
        supervisor = self.shell("exec sleep 600", "--no-restart")
        pid = self.wait_running()
        supervisor.send_signal(signal.SIGHUP)
        supervisor.terminate()
        self.assertEqual(supervisor.wait(LIMIT_S), 128 + signal.SIGTERM)
        self.assertEqual(self.starts(), [str(pid)])

    def test_hangup_right_after_a_death_is_not_lost(self):
        supervisor = self.shell("exec sleep 600", "--no-restart")
        pid = self.wait_running()
        # While it is stopped both signals gather, and SIGHUP has the lower number.
        supervisor.send_signal(signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        self.wait_for(lambda: self.state_of(pid) == "Z", "the child's death")
        supervisor.send_signal(signal.SIGHUP)
        supervisor.send_signal(signal.SIGCONT)
        self.wait_starts(2)
        self.assertNotEqual(self.wait_running(), pid)

    def test_termination_is_passed_on_and_the_status_is_the_commands(self):
        for sig in (signal.SIGTERM, signal.SIGINT):
            supervisor = self.shell("trap 'exit 9' TERM; echo x >> \"$0.ready\"; "
                                    "while :; do sleep 0.05; done")
            self.wait_for(lambda: os.path.exists(self.log + ".ready"), "the trap")
            supervisor.send_signal(sig)
            self.assertEqual(supervisor.wait(LIMIT_S), 9)
            self.assertFalse(os.path.exists(self.pid_file))
            os.unlink(self.log + ".ready")

    def test_termination_in_the_pause_ends_it(self):
        supervisor = self.shell("exit 7")
        self.wait_starts(1)
        self.wait_gone()
        supervisor.terminate()
        self.assertEqual(supervisor.wait(LIMIT_S), 7)

    def state_of(self, pid):
        try:
            with open(f"/proc/{pid}/stat") as f:
                return f.read().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return ""

    def test_orphans_are_reaped_at_once(self):
        orphan = self.path("orphan")
        script = "import os, sys; sys.argv.append(str(os.getppid()))\n" + ORPHAN
        self.start([sys.executable, "-c", script, orphan])
        self.wait_for(lambda: self.read(orphan), "the grandchild")
        pid = int(self.read(orphan))
        # It ends as soon as it is the supervisor's; unreaped it would stay, a zombie.
        self.wait_for(lambda: self.state_of(pid) == "", "the grandchild's end")

    def test_dying_orphans_do_not_put_off_the_restart(self):
        done = self.path("done")
        self.start(["sh", "-c", 'echo $$ >> "$0"; test $(wc -l < "$0") -ge 2 && touch "$2" && exit 0; '
                    '"$3" -c "$1" "$0" "$2" & exit 7', self.log, ORPHANS, done, sys.executable])
        begin = time.monotonic()
        self.wait_starts(2)
        self.assertLess(time.monotonic() - begin, 30)

    def test_an_ignored_sigchld_does_not_matter(self):
        supervisor = self.shell(
            "exit 0", preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(supervisor.wait(LIMIT_S), 0)

    def test_the_command_has_its_signals_open(self):
        supervisor = self.start(["grep", "SigBlk", "/proc/self/status"], stdout=subprocess.PIPE)
        self.assertEqual(supervisor.stdout.read().split(), [b"SigBlk:", b"0" * 16])
        supervisor.stdout.close()

    def test_a_command_that_is_not_there_is_told(self):
        supervisor = self.start(["/nowhere/command"], "--no-restart")
        self.assertIn(b"/nowhere/command: No such file", supervisor.stderr.readline())
        supervisor.terminate()
        self.assertEqual(supervisor.wait(LIMIT_S), 127)

    def test_usage(self):
        for args in ([], ["--pid-file"], ["--frob", "x"], ["--no-restart"]):
            result = subprocess.run([SUPERVISE, *args], capture_output=True, timeout=LIMIT_S)
            self.assertEqual((result.returncode, result.stdout), (2, b""))
            self.assertIn(b"usage:", result.stderr)


if __name__ == "__main__":
    unittest.main()
