#!/usr/bin/python3
"""The default image: that what coding agents use works in it, as the unprivileged user.

Beside test_images.py because the image takes minutes to build; needs the same, and no network in the guest.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
IMAGES = REPOSITORY / "images"
BUILD = Path(os.environ.get("PADDOCK_BUILD", REPOSITORY / "build"))
sys.dont_write_bytecode = True
sys.path[:0] = [str(IMAGES), str(REPOSITORY / "tests" / "agent")]

import paddock_proto  # noqa: E402
from paddock_images import store  # noqa: E402
from paddock_images.bare import BareGuest, Machine  # noqa: E402
from paddock_images.common import default_out  # noqa: E402

BUILD_DEADLINE = 1200
COMMAND_DEADLINE = 300
MIB = 1 << 20


class Default(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.mkdtemp(prefix="paddock-agent-")
        cls.addClassCleanup(shutil.rmtree, scratch)
        agent = shutil.copy(BUILD / "guest-agent" / "paddock-agent", scratch)
        done = subprocess.run([IMAGES / "build", "default", "--agent", agent], text=True,
                              capture_output=True, timeout=BUILD_DEADLINE, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        cls.image = store.resolve(default_out(), "default")
        cls.guest = cls.enterClassContext(BareGuest(cls.image, Machine(memory_mib=1024)))
        cls.guest.await_first_byte(COMMAND_DEADLINE)
        cls.host = paddock_proto.Host(cls.guest.channel, COMMAND_DEADLINE)
        cls.host.sync()

    def output(self, command):
        result = self.host.run(command=command, cwd="/workspace")
        self.assertEqual(0, result.exit_code, f"{command}\n{result.out}\n{result.err}")
        return result.out.decode().strip()

    def test_the_tools_are_there(self):
        tools = ("bash cc curl file g++ gcc git ip jq less make nano node npm pip ps python python3 "
                 "rg ssh tar unzip vi wget xz zip zstd")
        self.assertEqual("", self.output(f"for t in {tools}; do command -v $t >&2 || echo $t; done"))

    def test_c_is_compiled_and_run(self):
        self.assertEqual("42", self.output(
            "echo 'int puts(const char *); int main(void) { puts(\"42\"); }' >a.c"
            " && make -s a && ./a"))

    def test_a_package_for_python_is_installed_without_root(self):
        self.output("mkdir -p hello && cd hello && echo 'VALUE = 7' >hello.py && printf '%s\\n' "
                    "'from setuptools import setup'"
                    " 'setup(name=\"hello\", version=\"1\", py_modules=[\"hello\"])' >setup.py")
        self.output("pip install --no-index --no-build-isolation ./hello")
        self.assertEqual("7", self.output("python3 -c 'import hello; print(hello.VALUE)'"))

    def test_a_virtual_environment_is_made(self):
        self.assertEqual("/workspace/venv", self.output(
            "python3 -m venv venv && venv/bin/python -c 'import sys; print(sys.prefix)'"))

    def test_a_global_package_for_node_is_installed_without_root(self):
        self.output("mkdir -p tool && cd tool"
                    " && echo '{\"name\":\"tool\",\"version\":\"1.0.0\",\"bin\":\"tool.js\"}' >package.json"
                    " && printf '#!/usr/bin/env node\\nconsole.log(9)\\n' >tool.js && chmod +x tool.js"
                    " && npm pack --silent")
        self.output("npm install --global --offline --silent ./tool/tool-1.0.0.tgz")
        self.assertEqual("/home/sandbox/.local/bin/tool", self.output("command -v tool"))
        self.assertEqual("9", self.output("tool"))

    def test_git_commits(self):
        self.assertEqual("1", self.output(
            "git init -q repo && cd repo && git -c user.name=a -c user.email=a@b commit -q "
            "--allow-empty -m x && git rev-list --count HEAD"))

    def test_certificates_are_there(self):
        self.assertGreater(int(self.output(
            "grep -c 'BEGIN CERT' /etc/ssl/certs/ca-certificates.crt")), 100)

    def test_the_modules_of_its_kernel_can_be_loaded(self):
        loaded = self.host.run(command="modprobe overlay && modprobe nf_tables && modprobe tun",
                               exec_flags=paddock_proto.EXEC_ROOT)
        self.assertEqual((0, b""), (loaded.exit_code, loaded.err))

    def test_it_is_of_moderate_size(self):
        size = sum(path.stat().st_size for path in self.image.iterdir())
        self.assertLess(size, 400 * MIB)


if __name__ == "__main__":
    unittest.main()
