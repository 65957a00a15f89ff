"""Commands that are waited for, in a real guest: kept and streamed outputs, ends, and who leaves."""
import ast
import base64
import concurrent.futures
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import signal
import socket
import time

from paddock import LONG, SystemTest, wait_for


class Cut(Exception):
    """The connection ended before the stream did."""


class Stream:
    """A command whose output comes as events. Reads no faster than it is asked to."""

    def __init__(self, client, sandbox, receive_buffer=None, timeout=60, raw=None, query="", **body):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect(("127.0.0.1", client.port))
        connection = http.client.HTTPConnection("127.0.0.1", client.port)
        connection.sock = self.socket
        headers = {"Authorization": f"Bearer {client.key}", "Accept": "text/event-stream",
                   "Content-Type": "application/octet-stream" if raw else "application/json"}
        connection.request("POST", f"/v1/sandboxes/{sandbox}/exec{query}",
                           body=raw or json.dumps(body).encode(), headers=headers)
        self.response = connection.getresponse()
        if self.response.status != 200:
            raise AssertionError(f"{self.response.status}: {self.response.read()}")
        self.parts = self.lines()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.leave()

    def leave(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.response.close()
        self.socket.close()

    def read(self, size):
        """Of what comes over the wire."""
        return self.response.fp.read(size)

    def chunks(self):
        while True:
            line = self.response.fp.readline()
            size = int(line, 16) if line.endswith(b"\r\n") else None
            data = self.read(size + 2) if size is not None else b""
            if not data.endswith(b"\r\n") or len(data) != size + 2:
                raise Cut
            if size == 0:
                return
            yield data[:-2]

    def lines(self):
        rest = b""
        for chunk in self.chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
        if rest:
            raise AssertionError(f"half a line at the end: {rest[:80]}")

    def events(self):
        """Pairs of name and data, up to the end of the stream; raises Cut where that doesn't come."""
        name = None
        for line in self.parts:
            if line.startswith(b"event: "):
                name = line[7:].decode()
            elif line.startswith(b"data: "):
                yield name, json.loads(line[6:])
            elif line not in (b"", b":"):
                raise AssertionError(f"not a line of an event: {line[:80]}")

    def expect(self, name):
        got, data = next(self.events())
        if got != name:
            raise AssertionError(f"{got}, not {name}: {data}")
        return data

    def drain(self):
        """Both outputs as bytes, and the last event."""
        outputs, last = {"stdout": bytearray(), "stderr": bytearray()}, None
        for name, data in self.events():
            if name in outputs:
                outputs[name] += bytes_of(data)
            last = name, data
        return bytes(outputs["stdout"]), bytes(outputs["stderr"]), last


def bytes_of(data):
    return data["text"].encode() if "text" in data else base64.b64decode(data["base64"])


class Exec(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.client.create()["id"]

    def shell(self, command, **body):
        return self.client.shell(self.sandbox, command, **body)

    def python(self, script, **body):
        return self.client.exec(self.sandbox, "python3", "-c", script, **body)

    def stream(self, command, **more):
        return Stream(self.client, self.sandbox, command=command, **more)

    def pids_of(self, text):
        """Of processes in the guest whose command line has it, other than the one that looks."""
        script = ("import os\nfor p in filter(str.isdigit, os.listdir('/proc')):\n try:\n"
                  f"  c = open(f'/proc/{{p}}/cmdline').read()\n"
                  f"  if {text!r} in c and 'listdir' not in c: print(p)\n except OSError: pass\n")
        return self.python(script)["stdout"].split()

    def memory_kib(self):
        for line in pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1])
        raise AssertionError("no RssAnon")


class Outputs(Exec):
    def test_each_of_500_commands_has_its_own_output(self):
        def run(i):
            result = self.shell(f"echo out-{i}; echo err-{i} >&2; exit {i % 256}")
            return result["stdout"], result["stderr"], result["exit_code"]

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            results = list(pool.map(run, range(500)))
        self.assertEqual(results, [(f"out-{i}\n", f"err-{i}\n", i % 256) for i in range(500)])

    def test_characters_written_byte_by_byte_are_text(self):
        text = "naïve – 10 €, 🐧🐧 und жизнь\n"
        script = (f"import os, time\nfor b in {text.encode()!r}:\n"
                  " os.write(1, bytes([b])); os.write(2, bytes([b])); time.sleep(0.001)\n")
        result = self.python(script)
        self.assertEqual((result["stdout"], result["stderr"]), (text, text))
        self.assertNotIn("stdout_base64", result)
        with Stream(self.client, self.sandbox, args=["python3", "-c", script]) as stream:
            said = {"stdout": "", "stderr": ""}
            for name, data in stream.events():
                if name in said:
                    said[name] += data["text"]
        self.assertEqual(said, {"stdout": text, "stderr": text})

    def test_nul_and_a_line_of_a_mebibyte_come_whole(self):
        result = self.shell("printf 'a\\0b'")
        self.assertEqual(result["stdout"], "a\0b")
        result = self.shell("head -c 1048576 /dev/zero | tr '\\0' x; echo")
        self.assertEqual((result["stdout"], result["truncated"]), ("x" * (1 << 20) + "\n", False))

    def test_long_commands_and_many_variables_arrive_or_are_refused_by_name(self):
        for size in (100_000, 131_072, 262_144 - 20):
            result = self.shell(f": {'x' * size}; echo done")
            self.assertEqual((result["stdout"], result["exit_code"]), ("done\n", 0), size)
        answer = self.client.call("POST", f"/v1/sandboxes/{self.sandbox}/exec", {"command": "x" * 262_145})
        self.assertEqual(answer.error[0], "invalid_request")
        self.assertIn('"command"', answer.error[1])
        env = {f"PADDOCK_N{i}": f"value {i}" for i in range(1000)}
        result = self.python("import os; print({k: v for k, v in os.environ.items() "
                             "if k.startswith('PADDOCK_N')})", env=env)
        self.assertEqual(ast.literal_eval(result["stdout"]), env)
        answer = self.client.call("POST", f"/v1/sandboxes/{self.sandbox}/exec",
                                  {"command": "true", "env": {f"N{i}": "" for i in range(1025)}})
        self.assertIn('"env"', answer.error[1])
        result = self.client.exec(self.sandbox, "/bin/echo", "-n", "y" * 131_071)
        self.assertEqual(result["stdout_bytes"], 131_071)

    def test_the_shell_is_the_callers(self):
        self.assertEqual(self.shell("echo $0", shell="sh")["stdout"], "sh\n")
        self.assertEqual(self.shell("echo $BASH", shell="/bin/bash")["stdout"], "/bin/bash\n")
        self.assertEqual(self.shell("print(6 * 7)", shell="python3")["stdout"], "42\n")

    def test_of_a_long_output_both_ends_are_kept(self):
        whole = "".join(f"{i}\n" for i in range(1_000_000))
        result = self.shell("seq 0 999999; echo failed >&2; exit 3")
        at, omitted = result["stdout_omitted_at"], result["stdout_omitted_bytes"]
        self.assertEqual(result["stdout_bytes"], len(whole))
        self.assertEqual((result["truncated"], result["exit_code"]), (True, 3))
        self.assertEqual((result["stderr"], result["stderr_bytes"]), ("failed\n", 7))
        self.assertNotIn("stderr_omitted_bytes", result)
        head, _, rest = result["stdout"].partition(f"[{omitted} bytes of output left out here]\n")
        self.assertIn(head, (whole[:at], whole[:at] + "\n"))
        self.assertEqual(rest, whole[at + omitted:])
        kept = len(whole) - omitted + 7
        self.assertTrue((2 << 20) - 16 <= kept <= 2 << 20, kept)
        result = self.shell("seq 0 999999", output_limit_bytes=8 << 20)
        self.assertEqual((result["stdout"], result["truncated"]), (whole, False))
        result = self.shell("seq 0 999999", output_limit_bytes=10)
        self.assertEqual(result["stdout"], "0\n1\n2\n[6888880 bytes of output left out here]\n9999\n")

    def test_output_before_the_time_out_is_there(self):
        result = self.shell("seq 0 99999; echo last words >&2; sleep 100", timeout_ms=8000, output_limit_bytes=100_000)
        self.assertEqual((result["exit_code"], result["timed_out"]), (124, True))
        self.assertEqual(result["stderr"], "last words\n")
        self.assertEqual((result["stdout_bytes"], result["truncated"]), (588_890, True))
        self.assertTrue(result["stdout"].endswith("\n99998\n99999\n"))


class Streams(Exec):
    def test_output_comes_when_it_is_written(self):
        with self.stream("for i in 1 2 3; do echo $i; until rm go; do sleep 0.05; done 2>/dev/null; done") as stream:
            stream.expect("start")
            for i in 1, 2, 3:
                # The next is not written before this one was read here.
                self.assertEqual(stream.expect("stdout")["text"], f"{i}\n")
                self.shell("touch go")
            self.assertEqual(stream.expect("exit")["exit_code"], 0)

    def test_a_silent_command_has_started(self):
        with self.stream("until rm go; do sleep 0.05; done 2>/dev/null; exit 5") as stream:
            self.assertTrue(stream.expect("start")["id"].startswith("ex_"))
            self.shell("touch go")
            self.assertEqual(stream.expect("exit")["exit_code"], 5)

    def test_bytes_of_any_kind_come_whole(self):
        self.shell("head -c 20000000 /dev/urandom >/tmp/noise; head -c 5000000 /dev/zero >>/tmp/noise; "
                   "seq 1 500000 >>/tmp/noise")
        expected = self.shell("sha256sum </tmp/noise")["stdout"].split()[0]
        with self.stream("cat /tmp/noise; cat /tmp/noise >&2") as stream:
            out, err, last = stream.drain()
        self.assertEqual(last[0], "exit")
        self.assertEqual(last[1]["stdout_bytes"], len(out))
        self.assertEqual([hashlib.sha256(b).hexdigest() for b in (out, err)], [expected] * 2)

    def test_input_goes_in_while_output_comes_out(self):
        data = os.urandom(5 << 20)
        with Stream(self.client, self.sandbox, raw=data, query="?args=cat") as stream:
            out, _, last = stream.drain()
        self.assertEqual((out == data, last[1]["exit_code"]), (True, 0))

    def test_a_time_out_is_124(self):
        with self.stream("echo early; sleep 100", timeout_ms=4000) as stream:
            out, _, last = stream.drain()
        self.assertEqual(out, b"early\n")
        self.assertEqual((last[0], last[1]["exit_code"], last[1]["timed_out"]), ("exit", 124, True))

    def test_a_machine_that_dies_is_an_error_and_no_exit(self):
        sandbox = self.client.create()["id"]
        with Stream(self.client, sandbox, command="echo here; sleep 100") as stream:
            stream.expect("start")
            stream.expect("stdout")
            os.kill(self.daemon.qemu_pid(sandbox), signal.SIGKILL)
            rest = list(stream.events())
        self.assertEqual([name for name, _ in rest], ["error"])
        self.assertIn(rest[0][1]["error"]["type"], ("sandbox_ended", "unavailable"))


class DaemonDeath(Exec):
    def test_a_stream_of_a_daemon_that_dies_has_no_end(self):
        with self.stream("echo here; sleep 100") as stream:
            stream.expect("start")
            stream.expect("stdout")
            self.daemon.kill()
            with self.assertRaises((Cut, ConnectionError)):
                list(stream.events())
        self.daemon.start_again()
        client = self.daemon.client()
        wait_for(lambda: client.shell(self.sandbox, "echo back")["stdout"] == "back\n", 30, "it is back")


class Leaving(Exec):
    def leave_no_process(self, start):
        """The guest says when they are gone: its clock is the host's."""
        marker = f"9876.{time.monotonic_ns() % 1000000}"
        leave = start(f"setsid sleep {marker} & sleep {marker}")
        pids = []
        wait_for(lambda: pids.extend(self.pids_of(marker)) or len(pids) >= 2, 20, "the command runs")
        script = ("import os, time\nprint('watching', flush=True)\n"
                  f"while any(os.path.exists(f'/proc/{{pid}}') for pid in {pids}): time.sleep(0.02)\nprint(time.time())\n")
        begun = time.monotonic()
        self.shell("true")
        # A busy machine may take longer, but no more than a few commands do there.
        patience = 2 + 4 * (time.monotonic() - begun)
        with Stream(self.client, self.sandbox, args=["python3", "-c", script]) as watch:
            watch.expect("start")
            watch.expect("stdout")
            left = time.time()
            leave()
            gone, _, last = watch.drain()
        self.assertEqual(last[1]["exit_code"], 0)
        self.assertLess(float(gone) - left, patience)
        self.assertEqual(self.pids_of(marker), [])

    def test_who_leaves_a_stream_leaves_no_process(self):
        def start(command):
            stream = self.stream(command)
            stream.expect("start")
            return stream.leave

        self.leave_no_process(start)

    def test_who_leaves_before_the_answer_leaves_no_process(self):
        def start(command):
            connection = self.client.connection()
            connection.request("POST", f"/v1/sandboxes/{self.sandbox}/exec",
                               json.dumps({"command": command}),
                               {"Authorization": f"Bearer {self.client.key}",
                                "Content-Type": "application/json"})
            return connection.close

        self.leave_no_process(start)

    def test_a_reader_that_leaves_while_it_is_behind_leaves_no_process(self):
        def start(command):
            stream = self.stream(command + " & exec yes", receive_buffer=4096)
            stream.expect("start")
            return stream.leave

        self.leave_no_process(start)


class Pace(Exec):
    """A reader that is slow holds the command up, and nothing else."""

    def cpu_ticks(self, pid):
        fields = self.client.exec(self.sandbox, "cat", f"/proc/{pid}/stat")["stdout"].split()
        return int(fields[13]) + int(fields[14])

    def test_yes_waits_for_a_slow_reader_and_memory_stays_flat(self):
        seconds = 60 if LONG else 10
        self.shell("true")
        before = self.memory_kib()
        with self.stream("exec yes paddock", receive_buffer=4096, timeout_ms=300_000) as stream:
            stream.expect("start")
            pid = wait_for(lambda: self.pids_of("yes\0paddock"), 20, "yes runs")[0]
            # All that lies between fills up; then it stands.
            wait_for(lambda: self.is_standing(pid), 30, "yes stands")
            filled = self.memory_kib()
            self.assertLess(filled - before, 16 << 10)
            until = time.monotonic() + seconds
            peak = filled
            while time.monotonic() < until:
                stream.read(20_000)  # slowly, some KB a second
                time.sleep(0.5)
                peak = max(peak, self.memory_kib())
                self.assertEqual(self.shell("echo beside")["stdout"], "beside\n")
            self.assertLess(peak - filled, 4 << 10, "paddockd grows")
            wait_for(lambda: self.is_standing(pid), 30, "yes stands again")

    def is_standing(self, pid):
        first = self.cpu_ticks(pid)
        time.sleep(0.5)
        return self.cpu_ticks(pid) == first

    def test_many_streams_are_refused_with_what_to_do(self):
        streams = []
        try:
            for _ in range(48):
                streams.append(self.stream("exec sleep 100"))
            answer = self.client.call("POST", f"/v1/sandboxes/{self.sandbox}/exec", {"command": "true"})
            self.assertEqual((answer.status, answer.error[0]), (429, "rate_limited"))
            self.assertIn("wait for one to end", answer.error[1])
        finally:
            for stream in streams:
                stream.leave()
        wait_for(lambda: self.client.call("POST", f"/v1/sandboxes/{self.sandbox}/exec",
                                          {"command": "true"}).status == 200, 20, "there is room again")
