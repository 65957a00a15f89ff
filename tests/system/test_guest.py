"""Commands and files in a real guest."""
import base64
import concurrent.futures
import hashlib
import json
import os
import time
import unittest

from paddock import SystemTest, wait_for


class Commands(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.client.create(name="commands")["id"]

    def shell(self, command, **body):
        return self.client.shell(self.sandbox, command, **body)

    def test_uname_and_the_user(self):
        self.assertRegex(self.shell("uname -a")["stdout"], r"^Linux commands .*6\.\d+.* GNU/Linux\n$")
        self.assertRegex(self.shell("id")["stdout"], r"^uid=1000\(sandbox\) gid=1000\(sandbox\) "
                                                     r"groups=1000\(sandbox\)\n$")
        self.assertEqual(self.shell("pwd; echo $HOME")["stdout"], "/workspace\n/home/sandbox\n")

    def test_exit_codes_are_the_commands_own(self):
        for code in (0, 7, 126, 127, 255):
            self.assertEqual(self.shell(f"exit {code}")["exit_code"], code)
        self.assertEqual(self.client.exec(self.sandbox, "/no/such/program")["exit_code"], 127)
        self.assertEqual(self.client.exec(self.sandbox, "/etc/passwd")["exit_code"], 126)
        self.assertEqual(self.client.exec(self.sandbox, "/bin/false")["exit_code"], 1)

    def test_a_signal_is_told(self):
        result = self.shell("kill -9 $$")
        self.assertEqual(result["exit_code"], 137)
        self.assertTrue(result["signal"], result)

    def test_stdout_and_stderr_stay_apart(self):
        result = self.shell("echo out; echo err >&2; echo out2")
        self.assertEqual((result["stdout"], result["stderr"]), ("out\nout2\n", "err\n"))

    def test_output_that_is_not_text_comes_back_whole(self):
        result = self.client.exec(self.sandbox, "printf", r"\000\377\376a")
        self.assertEqual(base64.b64decode(result["stdout_base64"]), b"\x00\xff\xfea")

    def test_a_mebibyte_of_stdin_arrives(self):
        data = os.urandom(1 << 20)
        answer = self.client.call("POST", f"/v1/sandboxes/{self.sandbox}/exec?args=sha256sum", raw=data)
        self.assertEqual(answer.status, 200, answer)
        self.assertEqual(answer.json["stdout"].split()[0], hashlib.sha256(data).hexdigest())

    def test_environment_and_working_directory(self):
        result = self.shell("echo $A-$B; pwd", env={"A": "x y", "B": "ü"}, cwd="/tmp")
        self.assertEqual(result["stdout"], "x y-ü\n/tmp\n")
        answer = self.client.call("POST", f"/v1/sandboxes/{self.sandbox}/exec",
                                  {"command": "true", "cwd": "/no/where"})
        self.assertEqual(answer.status, 400, answer)
        self.assertIn("cwd", answer.error[1])

    def test_a_command_out_of_time_leaves_no_process(self):
        marker = "98765.4321"
        started = time.monotonic()
        result = self.shell(f"setsid sleep {marker} & sleep {marker}", timeout_ms=1000)
        self.assertLess(time.monotonic() - started, 15)
        self.assertEqual((result["exit_code"], result["timed_out"]), (124, True), result)
        self.assertEqual(self.processes_with(marker), "")

    def test_a_command_that_ignores_sigterm_is_killed(self):
        marker = "98765.1111"
        result = self.shell(f"trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep {marker}' & "
                            f"sleep {marker}; sleep {marker}", timeout_ms=500)
        self.assertTrue(result["timed_out"], result)
        self.assertEqual(self.processes_with(marker), "")

    def processes_with(self, text):
        """Command lines in the guest that contain it, other than the search itself."""
        script = ("import os\nfor p in os.listdir('/proc'):\n try:\n"
                  f"  c = open(f'/proc/{{p}}/cmdline').read()\n"
                  f"  if {text!r} in c and 'listdir' not in c: print(p, c)\n except OSError: pass\n")
        return self.client.exec(self.sandbox, "python3", "-c", script)["stdout"]

    def test_output_before_the_time_out_is_kept(self):
        result = self.shell("echo early; sleep 100", timeout_ms=1500)
        self.assertEqual(result["stdout"], "early\n")
        self.assertTrue(result["timed_out"])

    def test_a_background_child_does_not_hold_the_call(self):
        started = time.monotonic()
        result = self.shell("sleep 1000 & echo done", timeout_ms=60000)
        self.assertLess(time.monotonic() - started, 5)
        self.assertEqual((result["exit_code"], result["stdout"]), (0, "done\n"))

    def test_a_background_server_lives_on(self):
        self.shell("(while :; do echo tick; sleep 0.2; done) & echo $! >/tmp/ticker")
        time.sleep(1)
        result = self.shell("kill -0 $(cat /tmp/ticker) && kill -9 $(cat /tmp/ticker)")
        self.assertEqual(result["exit_code"], 0, result)

    def test_output_over_the_cap_is_cut_and_said(self):
        result = self.shell("head -c 5000000 /dev/zero | tr '\\0' x; exit 3")
        self.assertTrue(result["truncated"])
        self.assertEqual(result["exit_code"], 3)
        self.assertGreater(len(result["stdout"]), 1 << 20)
        self.assertEqual(result["stdout_omitted_bytes"], 5000000 - (2 << 20))

    def test_quotes_newlines_and_unicode_reach_the_command(self):
        text = "a'b\"c\\d\n$HOME `x` \t ☃ 日本"
        self.assertEqual(self.client.exec(self.sandbox, "printf", "%s", text)["stdout"], text)

    def test_commands_run_at_the_same_time(self):
        def nap(i):
            return self.shell(f"sleep 1; echo {i}")["stdout"]

        started = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(list(pool.map(nap, range(8))), [f"{i}\n" for i in range(8)])
        self.assertLess(time.monotonic() - started, 7)

    def test_a_client_that_leaves_takes_its_command_along(self):
        marker = "98765.2222"
        connection = self.client.connection()
        connection.request("POST", f"/v1/sandboxes/{self.sandbox}/exec",
                           json.dumps({"args": ["sleep", marker]}),
                           {"Authorization": f"Bearer {self.client.key}",
                            "Content-Type": "application/json"})
        wait_for(lambda: self.processes_with(marker), 10, "the command runs", pause=0.2)
        connection.sock.close()
        connection.close()
        wait_for(lambda: not self.processes_with(marker), 5, "the command is gone", pause=0.2)


class Files(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.client.create(name="files")["id"]
        cls.url = f"/v1/sandboxes/{cls.sandbox}/files"

    def test_64_mib_up_and_down_are_equal(self):
        data = os.urandom(64 << 20)
        answer = self.client.call("PUT", self.url + "?path=/workspace/big", raw=data)
        self.assertEqual(answer.status, 200, answer)
        digest = self.client.exec(self.sandbox, "sha256sum", "/workspace/big")["stdout"].split()[0]
        self.assertEqual(digest, hashlib.sha256(data).hexdigest())
        answer = self.client.call("GET", self.url + "?path=/workspace/big",
                                  headers={"Accept": "application/octet-stream"})
        self.assertEqual(answer.status, 200)
        self.assertTrue(answer.body == data, "the file came back changed")
        self.client.exec(self.sandbox, "rm", "/workspace/big")

    def test_json_bodies_carry_text_and_bytes(self):
        for body, expected in (({"content": "héllo\n"}, "héllo\n".encode()),
                               ({"content_base64": base64.b64encode(b"\0\xff").decode()}, b"\0\xff")):
            answer = self.client.call("PUT", self.url, dict(body, path="/workspace/j"))
            self.assertEqual(answer.status, 200, answer)
            raw = self.client.call("GET", self.url + "?path=/workspace/j",
                                   headers={"Accept": "application/octet-stream"})
            self.assertEqual(raw.body, expected)
        text = self.client.call("PUT", self.url, {"path": "/workspace/t", "content": "text"})
        self.assertEqual(text.status, 200)
        self.assertEqual(self.client.call("GET", self.url + "?path=/workspace/t").json["content"], "text")

    def test_parents_are_made_and_belong_to_the_user(self):
        answer = self.client.call("PUT", self.url, {"path": "/workspace/a/b/c.txt", "content": "x"})
        self.assertEqual(answer.status, 200, answer)
        out = self.client.shell(self.sandbox, "stat -c %U /workspace/a/b /workspace/a/b/c.txt")["stdout"]
        self.assertEqual(out, "sandbox\nsandbox\n")

    def test_a_mode_is_set(self):
        self.client.call("PUT", self.url, {"path": "/workspace/run.sh", "mode": "0755",
                                           "content": "#!/bin/sh\necho ran\n"})
        self.assertEqual(self.client.exec(self.sandbox, "/workspace/run.sh")["stdout"], "ran\n")

    def test_pieces_by_offset_and_length(self):
        self.client.call("PUT", self.url, {"path": "/workspace/p", "content": "0123456789"})
        answer = self.client.call("GET", self.url + "?path=/workspace/p&offset=3&length=4")
        self.assertEqual(answer.json["content"], "3456")

    def test_lists_say_what_is_there(self):
        self.client.shell(self.sandbox, "mkdir -p /workspace/l/d && cd /workspace/l && printf abc >f && "
                                        "ln -s f s && mkfifo o && touch 'a b' d/deep")
        entries = self.client.call("GET", self.url + "?path=/workspace/l&list=true").json["entries"]
        kinds = {e["name"]: e["type"] for e in entries}
        self.assertEqual(kinds, {"d": "dir", "f": "file", "s": "symlink", "o": "other", "a b": "file"})
        self.assertEqual([e["size_bytes"] for e in entries if e["name"] == "f"], [3])
        deep = self.client.call("GET", self.url + "?path=/workspace/l&list=true&recursive=true")
        self.assertIn("/workspace/l/d/deep", [e["path"] for e in deep.json["entries"]])

    def test_what_fails_says_how(self):
        cases = (("GET", "?path=/workspace/none", None, 404),
                 ("GET", "?path=/workspace", None, 400),
                 ("GET", "?path=/workspace/none&list=true", None, 404),
                 ("PUT", "?path=/etc/passwd", b"x", 403),
                 ("GET", "?path=/proc/1/environ", None, 403))
        for method, query, raw, status in cases:
            answer = self.client.call(method, self.url + query, raw=raw)
            self.assertEqual(answer.status, status, f"{method} {query}: {answer}")

    def test_a_body_over_the_limit_is_refused_before_it_comes(self):
        connection = self.client.connection()
        connection.putrequest("PUT", self.url + "?path=/workspace/huge")
        connection.putheader("Authorization", f"Bearer {self.client.key}")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str((16 << 20) + 1))
        connection.endheaders()
        self.assertEqual(connection.getresponse().status, 413)
        connection.close()


class CommandLine(SystemTest):
    """paddockctl as a person uses it."""

    def ctl(self, *args, **kwargs):
        return self.daemon.ctl(*args, key=self.client.key, **kwargs)

    def test_a_sandbox_by_the_command_line(self):
        done = self.ctl("create", "cli", "--size", "tiny", "--timeout-minutes", "5")
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout.decode(), r"(?m)^status: +running$")
        self.assertIn(b"cli", self.ctl("list").stdout)
        self.assertEqual(json.loads(self.ctl("--json", "get", "cli").stdout)["name"], "cli")

        done = self.ctl("exec", "cli", "--", "sh", "-c", "cat; echo err >&2; exit 9", stdin=b"\x00in\xff")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (9, b"\x00in\xff", b"err\n"))
        self.assertEqual(self.ctl("exec", "cli", "--", "/none").returncode, 127)

        data = os.urandom(3 << 20)
        path = self.daemon.directory / "upload"
        path.write_bytes(data)
        self.assertEqual(self.ctl("push", "cli", str(path), "/workspace/u").returncode, 0)
        self.assertTrue(self.ctl("pull", "cli", "/workspace/u").stdout == data)
        self.assertEqual(self.ctl("pull", "cli", "/workspace/u", str(path) + ".back").returncode, 0)
        self.assertTrue((self.daemon.directory / "upload.back").read_bytes() == data)
        self.assertRegex(self.ctl("ls", "cli").stdout.decode(), r"file .* 3145728 .* /workspace/u\n")

        before = json.loads(self.ctl("--json", "get", "cli").stdout)["expires_at"]
        self.assertEqual(self.ctl("extend", "cli", "7").returncode, 0)
        self.assertGreater(json.loads(self.ctl("--json", "get", "cli").stdout)["expires_at"], before)
        self.assertEqual(self.ctl("destroy", "cli").returncode, 0)
        self.assertNotEqual(self.ctl("exec", "cli", "--", "true").returncode, 0)

    def test_failures_name_what_to_do(self):
        done = self.daemon.ctl("list", key="pdk_wrong")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, b"")
        done = self.ctl("create", "--size", "huge")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"size", done.stderr)
        self.assertEqual(self.ctl("nonsense").returncode, 2)

    def test_the_doctor_reads_the_host(self):
        done = self.daemon.ctl("doctor")
        text = done.stdout.decode()
        self.assertEqual(done.returncode, 0, text + done.stderr.decode())
        for check in ("libvirt", "acceleration", "/dev/kvm", "image", "disk", "memory", "paths", "filter"):
            self.assertRegex(text, rf"(?m)^(ok|warning) +{check} ")

    def test_images_are_listed(self):
        self.assertRegex(self.daemon.ctl("images").stdout.decode(), r"minimal +\w+ +good +true +-")


if __name__ == "__main__":
    unittest.main()
