"""What the system tests share: a daemon of their own on real QEMU, and a client that hides nothing.

Every test class starts paddockd with a state directory of its own, so classes don't meet. The daemon runs under
paddock-supervise --no-restart: tests kill it and start it again when they want.
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PADDOCK_BUILD", ROOT / "build"))
# A build with the tests' own programs and with fault points, where that is another one.
HOOKS_BUILD = pathlib.Path(os.environ.get("PADDOCK_HOOKS_BUILD", BUILD))
IMAGES = pathlib.Path(os.environ.get("PADDOCK_IMAGES", ROOT / "images/out"))
ACCEL = os.environ.get("PADDOCK_ACCEL", "auto")
# The long forms: everything rather than a sample.
LONG = os.environ.get("PADDOCK_TEST_LONG") == "1"
# Where QEMU's users can pass through; short, since Unix socket paths end at 107 bytes.
SCRATCH = pathlib.Path(os.environ.get("PADDOCK_TEST_DIR", "/var/tmp"))


def long_form(test):
    """Of a test that only `tests/run long` has; elsewhere it isn't skipped but not there."""
    return test if LONG else None


def wait_for(condition, seconds, what, pause=0.02):
    """Polls until condition() is true; its value. Fails after the deadline. `what` may be a function."""
    until = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(pause)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]["type"], self.json["error"]["message"]

    def __repr__(self):
        return f"<{self.status} {self.body[:400]!r}>"


class Client:
    """One account's view of a daemon. A connection a request: nothing is shared between threads."""

    def __init__(self, port, key=None, admin_socket=None):
        self.port, self.key, self.admin_socket = port, key, admin_socket

    def connection(self, timeout=180):
        if self.admin_socket:
            return UnixConnection(self.admin_socket, timeout)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def call(self, method, path, body=None, raw=None, headers=None, timeout=180):
        headers = dict(headers or {})
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        if body is not None:
            raw = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        elif raw is not None:
            headers.setdefault("Content-Type", "application/octet-stream")
        connection = self.connection(timeout)
        try:
            connection.request(method, path, body=raw, headers=headers)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def create(self, expect=201, **body):
        if "vcpus" not in body:
            body.setdefault("size", "tiny")
        body.setdefault("image", "minimal")
        answer = self.call("POST", "/v1/sandboxes", body)
        if answer.status != expect:
            raise AssertionError(f"create: {answer}")
        return answer.json

    def exec(self, sandbox, *args, expect=200, **body):
        if args:
            body["args"] = list(args)
        answer = self.call("POST", f"/v1/sandboxes/{sandbox}/exec", body)
        if answer.status != expect:
            raise AssertionError(f"exec: {answer}")
        return answer.json

    def shell(self, sandbox, command, **body):
        return self.exec(sandbox, command=command, **body)

    def clock_ahead(self, sandbox):
        """Seconds that the guest's clock is ahead, and by how much that may be wrong: the best of some looks."""
        def look():
            before = time.time()
            guest = float(self.exec(sandbox, "date", "+%s.%N")["stdout"])
            after = time.time()
            return guest - (before + after) / 2, (after - before) / 2

        return min((look() for _ in range(5)), key=lambda pair: pair[1])

    def get(self, sandbox):
        answer = self.call("GET", f"/v1/sandboxes/{sandbox}")
        if answer.status != 200:
            raise AssertionError(f"get: {answer}")
        return answer.json

    def destroy(self, sandbox):
        answer = self.call("DELETE", f"/v1/sandboxes/{sandbox}")
        if answer.status != 200:
            raise AssertionError(f"destroy: {answer}")
        return answer.json


class Daemon:
    """paddockd with the embedded driver and a state directory of its own."""

    def __init__(self, config="", build=BUILD, uri="embed", environment=None, state=None):
        self.build = pathlib.Path(build)
        # Debian shuts /var/lib/libvirt/qemu for others than this group, and QEMU reads a key there.
        group = "libvirt-qemu" if uri == "qemu:///system" and ACCEL != "kvm" else "kvm"
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="pd-", dir=SCRATCH))
        os.chmod(self.directory, 0o711)
        self.state = state or self.directory / "s"
        self.log_path = self.directory / "log"
        self.pid_file = self.directory / "pid"
        self.config_path = self.directory / "paddockd.conf"
        self.config_path.write_text(
            f"[server]\nlisten = 127.0.0.1:0\n"
            f"[state]\ndir = {self.state}\nimages = {IMAGES}\n"
            f"[hypervisor]\nuri = {uri}\nacceleration = {ACCEL}\ngroup = {group}\n"
            f"[image]\ndefault = minimal\n[sizes]\ntiny = 1/256/2\n" + config)
        self.faults_path = self.directory / "faults"
        self.set_faults("")
        self.environment = dict(os.environ, **(environment or {}))
        self.supervisor = None
        self.port = None
        self.accounts = {}

    # -- life

    def start(self):
        log = open(self.log_path, "ab")
        self.supervisor = subprocess.Popen(
            [self.build / "controlplane/daemon/paddock-supervise", "--no-restart", "--pid-file",
             self.pid_file, "sh", "-c", 'export PADDOCK_FAULTS="$(cat "$0")"; exec "$@"',
             self.faults_path, self.build / "controlplane/daemon/paddockd", "--config",
             self.config_path],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment,
            start_new_session=True)
        log.close()
        try:
            self.wait_ready()
        except BaseException:
            print(self.log_tail(60))
            self.close()
            raise
        return self

    def wait_ready(self, seconds=60):
        wait_for(self.pid_file.exists, 10, "paddockd was started")
        self.port = wait_for(self._read_port, seconds, lambda: "paddockd listens: " + self.log_tail())
        wait_for(lambda: self._is_ready(), seconds, lambda: "paddockd is ready: " + self.log_tail())

    def _read_port(self):
        if self.supervisor.poll() is not None or not self.pid_file.exists():
            raise AssertionError("paddockd ended: " + self.log_tail())
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int((self.state / "port").read_text())
        return None

    def _is_ready(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return Client(self.port).call("GET", "/readyz", timeout=10).status == 200
        return False

    @property
    def pid(self):
        return int(self.pid_file.read_text())

    def set_faults(self, faults):
        """PADDOCK_FAULTS of the next start (controlplane/base/fault.h); needs HOOKS_BUILD."""
        self.faults_path.write_text(faults)

    def kill(self):
        """kill -9, as an accident would."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait_dead(10)

    def wait_dead(self, seconds):
        wait_for(lambda: not self.pid_file.exists(), seconds, lambda: "paddockd is gone: " + self.log_tail())
        (self.state / "port").unlink(missing_ok=True)

    def start_again(self):
        self.supervisor.send_signal(signal.SIGHUP)
        self.wait_ready()

    def terminate(self):
        """A clean stop; sandboxes live on."""
        os.kill(self.pid, signal.SIGTERM)
        wait_for(lambda: not self.pid_file.exists(), 30, lambda: "paddockd stops: " + self.log_tail())
        (self.state / "port").unlink(missing_ok=True)

    def close(self):
        """Ends everything: sandboxes, daemon, files."""
        try:
            if self.supervisor and self.pid_file.exists():
                self._destroy_all()
                self.terminate()
        finally:
            if self.supervisor:
                self.supervisor.terminate()
                self.supervisor.wait(30)
            for pid in self.qemu_pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run([self.build / "controlplane/daemon/paddockd", "--config", self.config_path,
                            "--release-host"], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=False, timeout=60)
            shutil.rmtree(self.directory, ignore_errors=True)

    def _destroy_all(self):
        admin = self.admin()
        listed = admin.call("GET", "/v1/sandboxes?status=running&limit=1000")
        for row in listed.json["data"] if listed.status == 200 else []:
            admin.call("DELETE", f"/v1/sandboxes/{row['id']}")

    def log_tail(self, lines=15):
        with contextlib.suppress(FileNotFoundError):
            return "\n" + "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])
        return ""

    def log_since(self, begin):
        """The log from that byte on."""
        with open(self.log_path, "rb") as log:
            log.seek(begin)
            return log.read().decode(errors="replace")

    # -- clients

    def admin(self):
        return Client(None, admin_socket=self.state / "admin.sock")

    def client(self, account="tests"):
        """A client with a key of that account, which is made at need."""
        admin = self.admin()
        if account not in self.accounts:
            answer = admin.call("POST", "/v1/admin/accounts", {"name": account})
            if answer.status not in (200, 201):
                raise AssertionError(f"account: {answer}")
            self.accounts[account] = answer.json["id"]
        answer = admin.call("POST", "/v1/admin/keys", {"account": account})
        if answer.status not in (200, 201):
            raise AssertionError(f"key: {answer}")
        return Client(self.port, answer.json["key"])

    def ctl(self, *args, key=None, stdin=b"", timeout=180):
        environment = dict(self.environment, PADDOCK_URL=f"http://127.0.0.1:{self.port}",
                           PADDOCK_ADMIN_SOCKET=str(self.state / "admin.sock"),
                           PADDOCK_CONFIG=str(self.config_path),
                           PADDOCKD=str(self.build / "controlplane/daemon/paddockd"))
        if key:
            environment["PADDOCK_API_KEY"] = key
        return subprocess.run([self.build / "controlplane/ctl/paddockctl", *args], input=stdin,
                              capture_output=True, env=environment, timeout=timeout)

    # -- what is really there

    def qemu_pids(self):
        """Live QEMU processes whose command line names this state directory."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                state = re.search(r"\) (\S)", (entry / "stat").read_text()).group(1)
                if b"qemu-system" in command and str(self.state).encode() in command and state != "Z":
                    found.append(int(entry.name))
        return found

    def qemu_pid(self, sandbox):
        for pid in self.qemu_pids():
            with contextlib.suppress(OSError):
                if sandbox.encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        return None

    def leftovers(self, sandbox):
        """Files below the state directory whose path names the sandbox."""
        bare = sandbox.removeprefix("sb_")  # as the sockets' directory has it
        return [str(p) for p in self.state.rglob("*") if bare in str(p.relative_to(self.state))]

    def is_gone(self, sandbox):
        return self.qemu_pid(sandbox) is None and not self.leftovers(sandbox)


class SystemTest(unittest.TestCase):
    """A class with a daemon. `config` adds lines to its configuration."""
    config = ""
    build = BUILD
    uri = "embed"
    environment = None

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(cls.config, cls.build, cls.uri, cls.environment)
        cls.addClassCleanup(cls.daemon.close)  # also when what a class adds to this fails
        cls.daemon.start()
        cls.client = cls.daemon.client()

    def run(self, result=None):
        before = len(result.failures) + len(result.errors) if result else 0
        super().run(result)
        if result and len(result.failures) + len(result.errors) > before:
            print(f"--- log of {self.id()}:{self.daemon.log_tail(40)}")
        return result
