"""A large file into a real guest by curl: it arrives whole, and the daemon holds none of it."""
import json
import pathlib
import re
import subprocess
import tempfile

from paddock import SystemTest

MIB = 1 << 20
SIZE = 1024 * MIB
HELD_MAX = 16 * MIB


class Upload(SystemTest):
    def memory(self, name):
        """VmRSS or VmHWM of the daemon, in bytes."""
        text = pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text()
        return int(re.search(rf"{name}:\s+(\d+) kB", text).group(1)) * 1024

    def curl(self, sandbox, path, *options):
        url = f"http://127.0.0.1:{self.client.port}/v1/sandboxes/{sandbox}/files?path={path}"
        done = subprocess.run(
            ["curl", "-sS", "--max-time", "600", "-H", f"Authorization: Bearer {self.client.key}",
             "-H", "Content-Type: application/octet-stream", *options, url],
            stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    def test_a_gibibyte_passes_through(self):
        sandbox = self.client.create(size="tiny")["id"]
        with tempfile.NamedTemporaryFile(prefix="paddock-upload-") as file:
            file.truncate(SIZE)
            file.seek(SIZE - 8)
            file.write(b"the end\n")
            file.flush()
            # Forgets the highest so far.
            pathlib.Path(f"/proc/{self.daemon.pid}/clear_refs").write_text("5")
            idle = self.memory("VmRSS")
            answer = self.curl(sandbox, "/workspace/large", "-T", file.name)
            held = self.memory("VmHWM") - idle
        self.assertEqual(answer, {"path": "/workspace/large", "size_bytes": SIZE})
        self.assertLess(held, HELD_MAX)
        said = self.client.exec(sandbox, "sh", "-c",
                                "stat -c %s /workspace/large; tail -c 8 /workspace/large")
        self.assertEqual(said["stdout"], f"{SIZE}\nthe end\n")

    def test_a_stream_of_unknown_length_is_a_file(self):
        sandbox = self.client.create(size="tiny")["id"]
        with subprocess.Popen(["seq", "2000000"], stdout=subprocess.PIPE) as numbers:
            done = subprocess.run(
                ["curl", "-sS", "-T", "-", "-H", f"Authorization: Bearer {self.client.key}",
                 "-H", "Content-Type: application/octet-stream",
                 f"http://127.0.0.1:{self.client.port}/v1/sandboxes/{sandbox}/files?path=/tmp/numbers"],
                stdin=numbers.stdout, stdout=subprocess.PIPE, check=True)
        want = "".join(f"{i}\n" for i in range(1, 2000001)).encode()
        self.assertEqual(json.loads(done.stdout)["size_bytes"], len(want))
        said = self.client.exec(sandbox, "sh", "-c", "seq 2000000 | cmp - /tmp/numbers && echo same")
        self.assertEqual(said["stdout"], "same\n")

    def test_a_full_disk_answers_before_the_end(self):
        sandbox = self.client.create(size="tiny")["id"]
        with tempfile.NamedTemporaryFile(prefix="paddock-upload-") as file:
            file.truncate(4 * SIZE)
            answer = self.curl(sandbox, "/workspace/larger", "-T", file.name)
        self.assertEqual(answer["error"]["code"], "no_space")
        self.assertEqual(self.client.exec(sandbox, "ls", "/workspace")["stdout"], "")
