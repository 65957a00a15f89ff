"""Starts the real agent for a test and looks after what it leaves."""

import ctypes
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from paddock_proto import Host

AGENT = os.environ.get("PADDOCK_AGENT", "build/guest-agent/paddock-agent")
IS_ROOT = os.geteuid() == 0
UID = 300999 if IS_ROOT else os.getuid()


def cgroup2_root():
    """A writable cgroup2 hierarchy, wherever this machine mounts it."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        fields = line.split()
        if fields[2] == "cgroup2" and os.access(fields[1], os.W_OK):
            return Path(fields[1])
    return None


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def hide_clone3():
    """From here on clone3 fails with ENOSYS, as under older container runtimes."""
    code = b"".join(struct.pack("<HBBI", *i) for i in (
        (0x20, 0, 0, 0),               # the number of the call
        (0x15, 0, 1, 435),             # clone3, the same on every architecture
        (0x06, 0, 0, 0x50000 | 38),    # errno ENOSYS
        (0x06, 0, 0, 0x7fff0000)))     # allowed
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("<HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), "no seccomp")


class Agent:
    """An agent on a socket pair, with a home, a workspace and a cgroup of its own."""

    def __init__(self, *options, has_cgroup=True, prepare=None):
        self.directory = Path(tempfile.mkdtemp(prefix="paddock-agent-"))
        self.directory.chmod(0o755)
        self.home, self.workspace = self.directory / "home", self.directory / "workspace"
        for path in self.home, self.workspace:
            path.mkdir()
            if IS_ROOT:
                os.chown(path, UID, UID)
        root = cgroup2_root() if has_cgroup and IS_ROOT else None
        self.cgroup = root / f"paddock-test-{os.getpid()}-{id(self)}" if root else None
        ours, theirs = socket.socketpair()
        self.stderr = open(self.directory / "stderr", "w+b")
        self.process = subprocess.Popen(
            [AGENT, "--test", "--fd", str(theirs.fileno()), "--user-id", str(UID),
             "--home", str(self.home), "--workspace", str(self.workspace),
             *(["--cgroup", str(self.cgroup)] if self.cgroup else ["--no-cgroup"]), *options],
            pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stderr=self.stderr,
            preexec_fn=prepare, restore_signals=prepare is None)
        theirs.close()
        self.host = Host(ours)

    def rss_kib(self):
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        return 0

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def commands(self):
        """Command lines of what runs in our cgroups, or below the agent without them."""
        pids = set()
        if self.cgroup:
            for procs in self.cgroup.rglob("cgroup.procs"):
                pids.update(procs.read_text().split())
        else:
            parents = {}
            for stat in Path("/proc").glob("[0-9]*/stat"):
                try:
                    pid, rest = stat.read_text().split(" ", 1)
                except OSError:
                    continue
                parents[pid] = rest.rsplit(")", 1)[1].split()[1]
            for pid in parents:
                up = pid
                while up in parents and up != str(self.process.pid):
                    up = parents[up]
                if up == str(self.process.pid) and pid != up:
                    pids.add(pid)
        found = []
        for pid in pids:
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if line:
                found.append(line.replace(b"\0", b" ").decode().strip())
        return found

    def close(self):
        """Ends the agent by hanging up; returns its exit code and what it wrote to stderr."""
        self.host.sock.close()
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        if self.cgroup and self.cgroup.exists():
            (self.cgroup / "cgroup.kill").write_text("1")
            deadline = time.monotonic() + 20
            for path in sorted(self.cgroup.rglob("*/"), reverse=True) + [self.cgroup]:
                while path.is_dir() and time.monotonic() < deadline:
                    try:
                        path.rmdir()
                    except OSError:
                        time.sleep(0.01)
        self.stderr.seek(0)
        text = self.stderr.read().decode(errors="replace")
        self.stderr.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        return code, text


class AgentTest(unittest.TestCase):
    """Each test has a fresh agent, which must still be whole at its end."""

    options = ()
    has_cgroup = True
    prepare = None  # called in the child before it becomes the agent
    syncs = True

    def setUp(self):
        self.agent = Agent(*self.options, has_cgroup=self.has_cgroup, prepare=self.prepare)
        self.host = self.agent.host
        if self.syncs:
            self.host.sync()

    def tearDown(self):
        code, text = self.agent.close()
        self.assertEqual(code, 0, text)
        self.assertNotIn("Sanitizer", text)
        self.assertNotIn("runtime error", text)

    def wait_for(self, condition, what, seconds=20):
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.01)

    def assert_status(self, result, status, text=None):
        self.assertEqual(result.status, status, dict(result))
        if text is not None:
            self.assertIn(text, result["text"])

    def assert_usable(self):
        """The agent still does its work."""
        self.host.sync()
        result = self.host.run("echo", "fine")
        self.assertEqual((result.status, result.exit_code, result.out), (0, 0, b"fine\n"))


def main():
    if not os.path.exists(AGENT):
        sys.exit(f"no agent at {AGENT}: set PADDOCK_AGENT")
    unittest.main(verbosity=2)
