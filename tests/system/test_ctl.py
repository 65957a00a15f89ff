"""The command line on a real guest: commands, what runs in the background, shells, large files."""
import hashlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from paddock import SystemTest, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from terminal import Terminal  # noqa: E402

LARGE_MIB = 300


class Ctl(SystemTest):
    """A class with a sandbox, and paddockctl with its key."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        try:
            cls.box = cls.client.create()["id"]
        except BaseException:
            cls.daemon.close()
            raise

    def ctl(self, *args, stdin=b"", timeout=120):
        return self.daemon.ctl(*args, key=self.client.key, stdin=stdin, timeout=timeout)

    def program(self, *args):
        return [str(self.daemon.build / "controlplane/ctl/paddockctl"), *args]

    def surroundings(self):
        return dict(os.environ, PADDOCK_URL=f"http://127.0.0.1:{self.daemon.port}", TERM="xterm",
                    PADDOCK_API_KEY=self.client.key)

    def start(self, *args, **streams):
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        process = subprocess.Popen(self.program(*args), env=self.surroundings(), **streams)
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

    def runs(self, command):
        """Whether a process with just this command line runs in the guest."""
        lines = self.client.shell(self.box, "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done")["stdout"]
        return command + " " in lines.splitlines()

    def assert_done(self, done, status, stdout=b"", stderr=b""):
        self.assertEqual((done.returncode, done.stdout, done.stderr), (status, stdout, stderr))


class Commands(Ctl):
    def test_outputs_status_and_stdin_are_the_commands(self):
        data = bytes(range(256)) * 5000
        self.assert_done(self.ctl("exec", self.box, "cat", stdin=data), 0, data)
        self.assert_done(self.ctl("exec", self.box, "--", "sh", "-c", "echo out; echo err >&2; exit 7"), 7,
                         b"out\n", b"err\n")
        self.assert_done(self.ctl("exec", "--command", "kill -9 $$", "--shell", "sh", self.box), 137)
        done = self.ctl("exec", "--timeout", "5", "--command", "echo begun; sleep 50", self.box)
        self.assertEqual((done.returncode, done.stdout), (124, b"begun\n"))
        self.assertEqual(self.ctl("exec", self.box, "--", "/no/such/program").returncode, 127)
        self.assertEqual(self.ctl("exec", "no-such-box", "--", "true").returncode, 125)

    def test_a_conversation_goes_on_in_pieces(self):
        process = self.start("exec", self.box, "--", "sed", "-u", "s/^/got /", stdin=subprocess.PIPE)
        for word in (b"one", b"two", b"three"):
            process.stdin.write(word + b"\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), b"got " + word + b"\n")
        process.stdin.close()
        self.assertEqual(process.wait(30), 0)

    def test_a_command_that_ends_does_not_wait_for_stdin(self):
        process = self.start("exec", self.box, "--", "sh", "-c", "exit 3", stdin=subprocess.PIPE)
        self.assertEqual(process.wait(30), 3)

    def test_ctrl_c_reaches_the_command(self):
        process = self.start("exec", self.box, "--", "sh", "-c", "echo up; sleep 7001")
        self.assertEqual(process.stdout.readline(), b"up\n")
        # Between fork and exec a shell's child would swallow it.
        wait_for(lambda: self.runs("sleep 7001"), 20, "the command runs")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(30), 130)
        self.assertFalse(self.runs("sleep 7001"))

    def test_a_stubborn_command_is_killed_by_the_second(self):
        process = self.start("exec", self.box, "--", "sh", "-c", "trap 'echo no' INT; echo up; "
                             "while :; do sleep 1; done")
        self.assertEqual(process.stdout.readline(), b"up\n")
        for _ in range(10):
            asked = time.monotonic()
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.stdout.readline(), b"no\n")
            if time.monotonic() - asked < 1:
                break
            time.sleep(2)  # a guest so slow outlasts what counts as impatience: the next is a first one again
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(30), 137)

    def test_a_reader_that_leaves_takes_the_command_along(self):
        process = self.start("exec", self.box, "--", "sh", "-c", "yes seven-thousand-two")
        process.stdout.read(1000)
        process.stdout.close()
        self.assertEqual(process.wait(30), -signal.SIGPIPE)
        wait_for(lambda: not self.runs("yes seven-thousand-two"), 10, "the command is gone")

    def test_a_command_in_the_background_is_dealt_with_by_its_id(self):
        done = self.ctl("exec", "--background", "--keep-stdin", self.box, "--", "sh", "-c",
                        "echo ready; while read x; do echo got $x; echo err $x >&2; done; exit 9")
        self.assertEqual(done.returncode, 0, done)
        job = done.stdout.decode().strip()
        self.assertRegex(self.ctl("ps", self.box).stdout.decode(), job + " +running +true ")
        follower = self.start("output", "--follow", self.box, job)
        self.assertEqual(follower.stdout.readline(), b"ready\n")
        self.assert_done(self.ctl("input", self.box, job, stdin=b"one\n"), 0)
        self.assertEqual(follower.stdout.readline(), b"got one\n")
        self.assert_done(self.ctl("input", self.box, job, "--data", "two\n", "--close"), 0)
        self.assertEqual(self.ctl("wait", self.box, job).returncode, 9)
        self.assertEqual(follower.wait(30), 0)
        self.assertEqual((follower.stdout.read(), follower.stderr.read()), (b"got two\n", b"err one\nerr two\n"))
        self.assert_done(self.ctl("output", self.box, job), 0, b"ready\ngot one\ngot two\n", b"err one\nerr two\n")
        self.assertRegex(self.ctl("ps", self.box).stdout.decode(), job + " +exit 9 +true ")

    def test_a_command_in_the_background_is_killed(self):
        done = self.ctl("exec", "--background", self.box, "--", "sleep", "7003")
        job = done.stdout.decode().strip()
        self.assert_done(self.ctl("kill", self.box, job, "--signal", "TERM"), 0)
        self.assertEqual(self.ctl("wait", self.box, job).returncode, 143)
        self.assertNotEqual(self.ctl("wait", self.box, "ex_nosuch").returncode, 0)


class Files(Ctl):
    """Larger than the guest's memory, and than what anybody on the way may hold."""

    def most_memory(self, process):
        """Of a process, in KiB, when it has ended."""
        most = 0
        while process.poll() is None:
            try:
                text = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            except FileNotFoundError:
                break
            found = re.search(r"VmRSS:\s+(\d+)", text)
            most = max(most, int(found.group(1)) if found else 0)
            time.sleep(0.05)
        self.assertEqual(process.wait(30), 0, process.stderr.read())
        return most

    def test_a_large_file_goes_there_and_back(self):
        block = os.urandom(1024 * 1024)
        source, back = self.daemon.directory / "source", self.daemon.directory / "back"
        digest = hashlib.sha256()
        with open(source, "wb") as out:
            for i in range(LARGE_MIB):
                piece = i.to_bytes(8, "little") + block[8:]
                digest.update(piece)
                out.write(piece)
        push = self.most_memory(self.start("push", self.box, str(source), "/workspace/large"))
        self.assertEqual(self.client.exec(self.box, "sha256sum", "large")["stdout"].split()[0], digest.hexdigest())
        pull = self.most_memory(self.start("pull", self.box, "/workspace/large", str(back)))
        self.assertEqual(hashlib.sha256(back.read_bytes()).hexdigest(), digest.hexdigest())
        print(f"      paddockctl at most {push} KiB pushing, {pull} KiB pulling {LARGE_MIB} MiB")
        self.assertLess(max(push, pull), 40 * 1024)
        pipe = self.start("push", self.box, "-", "/workspace/piped", stdin=open(source, "rb"))
        self.assertEqual(pipe.wait(120), 0)
        self.assertEqual(self.client.exec(self.box, "cmp", "large", "piped")["exit_code"], 0)


class Shells(Ctl):
    def open(self, *args, **more):
        """A shell that has shown its prompt."""
        terminal = Terminal(self.program("shell", *args), self.surroundings(), **more)
        self.addCleanup(terminal.close)
        self.see(terminal, rb"\$ ")
        self.assertTrue(terminal.is_raw)
        return terminal

    def see(self, terminal, pattern, seconds=30):
        return wait_for(lambda: re.search(pattern, terminal.shown), seconds, lambda: f"{pattern}: {terminal.shown!r}")

    def answer(self, terminal, command, pattern):
        """Types a line and waits for what it shows; the line's own echo can't match."""
        terminal.forget()
        terminal.type(command + b"\r")
        return self.see(terminal, pattern)

    def settle(self, terminal, status):
        self.assertEqual(terminal.process.wait(30), status, terminal.shown)
        self.assertTrue(terminal.is_as_before)

    def test_a_shell_is_a_terminal_of_our_size(self):
        terminal = self.open(self.box, rows=33, cols=111)
        self.answer(terminal, b"tty; stty size", rb"/dev/pts/\d+\s+33 111\r\n")
        self.answer(terminal, b"echo $((40+2)) $TERM; id -un; pwd", rb"[\r\n]42 xterm\r\nsandbox\r\n/workspace\r\n")
        terminal.resize(50, 132)
        self.answer(terminal, b"stty size", rb"[\r\n]50 132\r\n")
        terminal.type(b"exit 5\r")
        self.settle(terminal, 5)

    def test_ctrl_c_ends_what_runs_in_it_and_not_the_shell(self):
        terminal = self.open(self.box)
        terminal.type(b"echo be''gun; sleep 7004\r")
        self.see(terminal, rb"[\r\n]begun\r\n")
        wait_for(lambda: self.runs("sleep 7004"), 20, "the command runs")
        terminal.type(b"\x03")
        self.answer(terminal, b"echo st=$?", rb"[\r\n]st=130\r\n")
        self.assertFalse(self.runs("sleep 7004"))
        terminal.type(b"\x04")
        self.settle(terminal, 0)

    def test_a_detached_shell_is_found_again(self):
        terminal = self.open(self.box)
        self.answer(terminal, b"kept=4''2; echo mark-$kept", rb"[\r\n]mark-42\r\n")
        terminal.type(b"\x10\x11")
        self.settle(terminal, 0)
        job = self.see(terminal, rb"paddockctl shell (\S+) --attach (ex_\w+)\r\n")
        self.assertEqual(job.group(1).decode(), self.box)
        again = self.open(self.box, "--attach", job.group(2).decode(), rows=40, cols=90)
        self.see(again, rb"[\r\n]mark-42\r\n")
        self.answer(again, b"echo still-$kept; stty size", rb"[\r\n]still-42\r\n40 90\r\n")
        again.type(b"exit\r")
        self.settle(again, 0)
        gone = Terminal(self.program("shell", self.box, "--attach", job.group(2).decode()), self.surroundings())
        self.addCleanup(gone.close)
        gone.process.wait(30)
        self.assertTrue(gone.is_as_before)

    def test_a_hang_up_ends_the_shell(self):
        terminal = self.open(self.box)
        terminal.type(b"sleep 7005 && echo x\r")
        wait_for(lambda: self.runs("sleep 7005"), 20, "the command runs")
        terminal.process.send_signal(signal.SIGHUP)
        self.settle(terminal, -signal.SIGHUP)
        wait_for(lambda: not self.runs("sleep 7005"), 10, "the command is gone")

    def test_a_flood_can_be_stopped(self):
        terminal = self.open(self.box)
        terminal.type(b"yes\r")
        self.see(terminal, rb"y\r\ny\r\ny\r\n")
        time.sleep(1)
        terminal.type(b"\x03")
        self.answer(terminal, b"echo st''opped", rb"[\r\n]stopped\r\n")
        terminal.type(b"exit 0\r")
        self.settle(terminal, 0)

    def test_a_lost_service_says_how_to_come_back(self):
        terminal = self.open(self.box)
        self.answer(terminal, b"kept=8''6; echo mark-$kept", rb"[\r\n]mark-86\r\n")
        self.daemon.kill()
        self.settle(terminal, 125)
        job = self.see(terminal, rb"--attach (ex_\w+)\r\n").group(1).decode()
        self.daemon.start_again()
        type(self).client = self.daemon.client()  # at another port
        wait_for(lambda: self.client.get(self.box)["status"] == "running", 60, "the sandbox is back")
        again = self.open(self.box, "--attach", job)
        self.answer(again, b"echo still-$kept", rb"[\r\n]still-86\r\n")
        again.type(b"exit\r")
        self.settle(again, 0)

    def test_a_command_has_a_terminal_too(self):
        terminal = Terminal(self.program("shell", self.box, "--", "sh", "-c", 'tty; echo "$1"', "x", "a  'b"),
                            self.surroundings())
        self.addCleanup(terminal.close)
        self.settle(terminal, 0)
        self.see(terminal, rb"/dev/pts/\d+\r\na  'b\r\n")

    def test_without_a_terminal_a_shell_is_a_pipe(self):
        self.assert_done(self.ctl("shell", self.box, stdin=b"echo out; echo err >&2\nexit 6\n"), 6, b"out\n", b"err\n")
        self.assert_done(self.ctl("shell", self.box, stdin=b"cat <<x\nlast\nx"), 0, b"last\n")
