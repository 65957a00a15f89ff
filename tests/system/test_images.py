#!/usr/bin/python3
"""The guest images: how they are built, what is in them, and that they boot.

Needs root, the network that apt uses for the first build, and an agent built in $PADDOCK_BUILD, else
build/. Images go to $PADDOCK_IMAGES, else images/out, and are built only where they are not current.
"""

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
IMAGES = REPOSITORY / "images"
sys.dont_write_bytecode = True
sys.path[:0] = [str(IMAGES), str(REPOSITORY / "tests" / "agent")]

import paddock_proto  # noqa: E402
from paddock_images import apt, kernel  # noqa: E402
from paddock_images.bare import BareGuest, Machine  # noqa: E402
from paddock_images.common import default_out  # noqa: E402

BUILD = Path(os.environ.get("PADDOCK_BUILD", REPOSITORY / "build"))
# A copy: whoever builds the project meanwhile must not change what an image is made from.
AGENT = Path(tempfile.mkdtemp(prefix="paddock-agent-")) / "paddock-agent"
BUILD_DEADLINE = 600
BOOT_DEADLINE = 120
MIB = 1 << 20


def build(*arguments, out=None, agent=AGENT, check=True):
    out = out or default_out()
    return subprocess.run([IMAGES / "build", "--out", out, "--agent", agent, *arguments],
                          capture_output=True, text=True, timeout=BUILD_DEADLINE, check=check)


def verify(directory):
    return subprocess.run([IMAGES / "verify", f"{directory}/"], capture_output=True, text=True,
                          check=False)


def minimal():
    return (default_out() / "minimal" / "current").resolve()


def setUpModule():
    unittest.addModuleCleanup(shutil.rmtree, AGENT.parent)
    shutil.copy(BUILD / "guest-agent" / "paddock-agent", AGENT)
    done = build("minimal", check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)


class Scratch(unittest.TestCase):
    """Tests that change things get an output directory of their own, on the same disk."""

    def setUp(self):
        self.out = Path(tempfile.mkdtemp(prefix="paddock-images-"))
        self.addCleanup(shutil.rmtree, self.out)

    def copy_cache(self):
        for kept in (default_out() / ".cache").glob("minimal-*"):
            shutil.copytree(kept, self.out / ".cache" / kept.name, copy_function=_link_or_copy)

    def copy_image(self):
        return Path(shutil.copytree(minimal(), self.out / "image"))

    def changed_agent(self):
        agent = self.out / "agent"
        agent.write_bytes(AGENT.read_bytes() + b"\0")
        agent.chmod(0o755)
        return agent


def _link_or_copy(source, target):
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


class Building(Scratch):
    def test_nothing_changed_is_left_alone_within_two_seconds(self):
        before = minimal(), (minimal() / "manifest.json").stat()
        start = time.monotonic()
        done = build("minimal")
        self.assertLess(time.monotonic() - start, 2)
        self.assertIn("up to date", done.stdout)
        self.assertEqual(before[0], minimal())
        self.assertEqual(before[1].st_mtime_ns, (minimal() / "manifest.json").stat().st_mtime_ns)

    def test_another_agent_alone_needs_no_packages_and_keeps_the_old_version(self):
        self.copy_cache()
        build("minimal", out=self.out)
        old = (self.out / "minimal" / "current").resolve()
        done = build("minimal", out=self.out, agent=self.changed_agent())
        self.assertNotIn("installing packages", done.stdout)
        new = (self.out / "minimal" / "current").resolve()
        self.assertNotEqual(old, new)
        self.assertEqual(0, verify(old).returncode)
        self.assertEqual(0, verify(new).returncode)
        sums = [json.loads((each / "manifest.json").read_text())["files"] for each in (old, new)]
        self.assertEqual(sums[0]["initrd.img"], sums[1]["initrd.img"])
        self.assertNotEqual(sums[0]["root.qcow2"], sums[1]["root.qcow2"])

    def test_equal_input_gives_equal_bytes(self):
        self.copy_cache()
        build("minimal", out=self.out)
        ours = (self.out / "minimal" / "current").resolve()
        self.assertEqual(minimal().name, ours.name)
        sums = [json.loads((each / "manifest.json").read_text())["files"]
                for each in (minimal(), ours)]
        self.assertEqual(sums[0], sums[1])

    def test_a_damaged_version_is_repaired_by_building_it_again(self):
        self.copy_cache()
        build("minimal", out=self.out)
        current = (self.out / "minimal" / "current").resolve()
        with open(current / "root.qcow2", "r+b") as file:
            file.seek(MIB)
            file.write(b"damage")
        self.assertEqual(1, verify(current).returncode)
        build("minimal", out=self.out)
        self.assertEqual(current, (self.out / "minimal" / "current").resolve())
        self.assertEqual(0, verify(current).returncode)

    def test_what_an_interrupted_build_left_is_removed(self):
        self.copy_cache()
        (self.out / ".work-left").mkdir()
        build("minimal", out=self.out)
        self.assertEqual([], list(self.out.glob(".work-*")))

    def test_a_dynamically_linked_agent_is_refused(self):
        done = build("minimal", out=self.out, agent=Path("/bin/true"), check=False)
        self.assertNotEqual(0, done.returncode)
        self.assertIn("not linked statically", done.stderr)

    def test_what_is_no_program_is_refused_as_agent(self):
        done = build("minimal", out=self.out, agent=IMAGES / "build", check=False)
        self.assertNotEqual(0, done.returncode)
        self.assertIn("not a 64-bit ELF program", done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_an_unknown_image_is_refused_with_the_known_ones(self):
        done = build("../minimal", out=self.out, check=False)
        self.assertNotEqual(0, done.returncode)
        self.assertIn("default, minimal", done.stderr)
        self.assertNotIn("Traceback", done.stderr)


class Sources(unittest.TestCase):
    """apt's answers come from a configuration directory of the test."""

    def setUp(self):
        self.directory = Path(tempfile.mkdtemp(prefix="paddock-apt-"))
        self.addCleanup(shutil.rmtree, self.directory)
        (self.directory / "parts").mkdir()
        config = self.directory / "apt.conf"
        config.write_text(
            f'Dir::Etc::sourcelist "{self.directory}/sources.list";\n'
            f'Dir::Etc::sourceparts "{self.directory}/parts";\n'
            'Acquire::http::Proxy "http://proxy.example:3142";\n'
            'Acquire::Languages "none";\n')
        os.environ["APT_CONFIG"] = str(config)
        self.addCleanup(os.environ.pop, "APT_CONFIG")

    def test_both_notations_count_and_other_suites_do_not(self):
        (self.directory / "sources.list").write_text(
            "deb [trusted=yes] http://one.example/debian bookworm main\n"
            "deb [trusted=yes] http://two.example/node nodistro main\n")
        (self.directory / "parts" / "more.sources").write_text(
            "Types: deb\nURIs: http://three.example/security\nSuites: bookworm-security\n"
            "Components: main\nTrusted: yes\n")
        self.assertEqual(
            [("http://one.example/debian/", "bookworm"),
             ("http://three.example/security/", "bookworm-security")],
            [archive[:2] for archive in apt.configured_archives("bookworm")])

    def test_a_third_party_archive_of_the_same_suite_is_not_debian(self):
        archive = self.directory / "archive" / "dists" / "bookworm"
        archive.mkdir(parents=True)
        (archive / "InRelease").write_text(
            "Origin: Somebody\nSuite: stable\nCodename: bookworm\nDate: Sat, 10 Jun 2023 08:00:00 UTC\n"
            "Components: main\nArchitectures: amd64\nSHA256:\n")
        (self.directory / "sources.list").write_text(
            f"deb [trusted=yes] file:{self.directory}/archive bookworm main\n")
        with self.assertRaisesRegex(apt.ImageError, "Debian's own"):
            apt.debian_sources("bookworm", self.directory)

    def test_no_source_is_said_so(self):
        (self.directory / "sources.list").write_text("")
        with self.assertRaisesRegex(apt.ImageError, "no source for Debian bookworm"):
            apt.configured_archives("bookworm")

    def test_a_proxy_is_passed_on_and_what_concerns_only_the_machine_is_not(self):
        settings = apt.forwarded_settings()
        self.assertIn('Acquire::http::Proxy "http://proxy.example:3142";', settings)
        self.assertNotIn("Acquire::Languages", settings)


class Verifying(Scratch):
    def test_a_sound_image_passes(self):
        done = verify(minimal())
        self.assertEqual(0, done.returncode, done.stderr)

    def test_each_damaged_file_is_refused_by_name(self):
        image = self.copy_image()
        for name in ("vmlinuz", "initrd.img", "root.qcow2"):
            with self.subTest(name), open(image / name, "r+b") as file:
                file.seek(70000)
                byte = file.read(1)
                file.seek(70000)
                file.write(bytes([byte[0] ^ 1]))
                file.flush()
                done = verify(image)
                self.assertEqual(1, done.returncode)
                self.assertIn(f"{name}: sha256 differs", done.stderr)
                file.seek(70000)
                file.write(byte)
        self.assertEqual(0, verify(image).returncode)

    def test_a_missing_or_truncated_file_is_refused_by_name(self):
        image = self.copy_image()
        (image / "initrd.img").unlink()
        os.truncate(image / "vmlinuz", 1000)
        done = verify(image)
        self.assertEqual(1, done.returncode)
        self.assertIn("initrd.img: missing", done.stderr)
        self.assertIn("vmlinuz: 1000 bytes instead of", done.stderr)

    def test_a_damaged_manifest_is_one_line(self):
        image = self.copy_image()
        (image / "manifest.json").chmod(0o644)
        (image / "manifest.json").write_text("{")
        done = verify(image)
        self.assertEqual(1, done.returncode)
        self.assertRegex(done.stderr, r"^images/verify: .*manifest.json: damaged: .*\n$")


class Published(unittest.TestCase):
    def test_files_belong_to_root_and_nobody_may_write_them(self):
        for path in (minimal(), *minimal().iterdir()):
            status = path.stat()
            self.assertEqual((0, 0), (status.st_uid, status.st_gid), path)
            wanted = 0o755 if path.is_dir() else 0o444
            self.assertEqual(wanted, stat.S_IMODE(status.st_mode), path)

    def test_the_manifest_describes_what_is_there(self):
        facts = json.loads((minimal() / "manifest.json").read_text())
        self.assertEqual((1, "minimal", minimal().name),
                         (facts["format"], facts["name"], facts["version"]))
        for name, file in facts["files"].items():
            self.assertEqual((minimal() / name).stat().st_size, file["size"])
        self.assertRegex(facts["created"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertIn("init=/usr/lib/paddock/paddock-agent", facts["cmdline"].split())
        self.assertIn("python3-minimal", {package["name"] for package in facts["packages"]})
        info = subprocess.run(["qemu-img", "info", "--output=json", minimal() / "root.qcow2"],
                              capture_output=True, check=True)
        self.assertEqual(json.loads(info.stdout)["virtual-size"], facts["virtual_size_bytes"])

    def test_the_smallest_sandbox_disk_holds_it(self):
        facts = json.loads((minimal() / "manifest.json").read_text())
        self.assertLessEqual(facts["virtual_size_bytes"], 2_000_000_000)

    def test_minimal_is_small(self):
        size = sum(path.stat().st_size for path in minimal().iterdir())
        self.assertLess(size, 260 * MIB)


class RootFileSystem(unittest.TestCase):
    """Looked at from outside, so that what a guest would hide or replace is seen as well."""

    @classmethod
    def setUpClass(cls):
        cls.directory = Path(tempfile.mkdtemp(prefix="paddock-root-"))
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        raw = cls.directory / "raw"
        subprocess.run(["qemu-img", "convert", "-O", "raw", minimal() / "root.qcow2", raw],
                       check=True)
        cls.check = subprocess.run(["e2fsck", "-fn", raw], capture_output=True, text=True,
                                   check=False)
        cls.root = cls.directory / "root"
        cls.root.mkdir()
        subprocess.run(["debugfs", "-R", f"rdump / {cls.root}", raw], capture_output=True,
                       check=True)
        raw.unlink()

    def text(self, path):
        return (self.root / path).read_text()

    def test_the_file_system_is_clean(self):
        self.assertEqual(0, self.check.returncode, self.check.stdout)

    def test_nothing_of_the_building_machine_is_in_it(self):
        self.assertEqual("sandbox\n", self.text("etc/hostname"))
        self.assertEqual("", self.text("etc/resolv.conf"))
        self.assertEqual("", self.text("etc/machine-id"))
        resolver = Path("/etc/resolv.conf").read_text()
        needles = re.findall(r"^nameserver\s+(\S+)", resolver, re.M)
        needles += [match[1] for uri, _, _ in apt.configured_archives("bookworm")
                    if (match := re.match(r"\w+://([^/]+)/", uri))]
        needles += re.findall(r'Proxy "(?:\w+://)?([^"/]+)', apt.forwarded_settings())
        if len(socket.gethostname()) > 6:
            needles.append(socket.gethostname())
        for path in (self.root / "etc").rglob("*"):
            if path.is_file() and not path.is_symlink():
                content = path.read_bytes()
                for needle in needles:
                    self.assertNotIn(needle.strip().encode(), content, path)

    def test_the_user_exists_without_a_password(self):
        users = [line.split(":") for line in self.text("etc/passwd").splitlines()]
        self.assertIn(["sandbox", "*", "1000", "1000", "sandbox", "/home/sandbox", "/bin/bash"],
                      users)
        self.assertEqual({"*"}, {user[1] for user in users})
        for path in ("home/sandbox", "workspace", "home/sandbox/.local/bin"):
            status = (self.root / path).stat()
            self.assertEqual((1000, 1000, 0o755),
                             (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)), path)

    def test_it_says_which_image_it_is(self):
        self.assertEqual(f"minimal {minimal().name}\n", self.text("etc/paddock-image"))


class Modules(unittest.TestCase):
    def test_an_unpacked_initrd_lists_each_module_after_what_it_needs(self):
        with tempfile.TemporaryDirectory() as directory:
            with open(minimal() / "initrd.img", "rb") as archive:
                subprocess.run(["cpio", "-idm", "--quiet"], stdin=archive, cwd=directory, check=True)
            listed = Path(directory, "modules").read_text().splitlines()
            seen = set()
            for path in listed:
                info = subprocess.run(["modinfo", "-F", "depends", f"{directory}{path}"],
                                      capture_output=True, text=True, check=True)
                for needed in filter(None, info.stdout.strip().split(",")):
                    self.assertIn(needed.replace("-", "_"), seen, path)
                seen.add(Path(path).stem)
            self.assertLess(seen & set(kernel.BOOT_MODULES), seen)
            self.assertIn("virtio_blk", seen)


class Booting(unittest.TestCase):
    def guest(self, machine):
        guest = self.enterContext(BareGuest(minimal(), machine))
        guest.await_first_byte(BOOT_DEADLINE)
        host = paddock_proto.Host(guest.channel, BOOT_DEADLINE)
        host.sync()
        return guest, host

    def output(self, host, command):
        result = host.run(command=command)
        self.assertEqual((0, b""), (result.exit_code, result.err), command)
        return result.out.decode().strip()

    def check_share(self, host, memory_mib, memory_share, disk_gib):
        kib = int(self.output(host, "grep MemTotal /proc/meminfo").split()[1])
        self.assertGreaterEqual(kib / 1024, memory_share * memory_mib)
        size = int(self.output(host, "df -B1 --output=size /").split()[1])
        self.assertGreaterEqual(size, 0.9 * disk_gib * 1024 * MIB)

    def test_a_small_guest_sees_its_memory_and_disk(self):
        _, host = self.guest(Machine(memory_mib=256, disk_gb=2))
        self.assertEqual(f"minimal {minimal().name}", host.hello["image"])
        self.check_share(host, 256, 0.80, 2)
        self.assertEqual("sandbox 1000", self.output(host, 'echo "$(id -un) $(id -u)"'))
        self.assertEqual("ok", self.output(host, "cd /workspace && echo ok > a && cat a"))
        self.assertIn("/home/sandbox/.local/bin", self.output(host, "echo $PATH").split(":"))
        self.assertEqual("6", self.output(host, "python3 -c 'print(sum([1, 2, 3]))'"))
        self.assertIn("noatime", self.output(host, "grep ' / ext4' /proc/mounts"))

    def test_no_program_changes_its_user_and_only_temporary_directories_are_open(self):
        _, host = self.guest(Machine())
        as_root = {"exec_flags": paddock_proto.EXEC_ROOT}
        everywhere = "find / -xdev -path /dev -prune -o"
        for condition in (r"-type f -perm /6000 -print",
                          r"-type d -perm -0002 ! -perm -1000 -print"):
            found = host.run(command=f"{everywhere} {condition}", **as_root)
            self.assertEqual((0, b"", b""), (found.exit_code, found.out, found.err))

    def test_a_large_guest_sees_its_memory_and_disk(self):
        _, host = self.guest(Machine(memory_mib=4096, disk_gb=40))
        self.check_share(host, 4096, 0.95, 40)

    def test_a_missing_root_device_is_told_and_ends_the_guest(self):
        machine = Machine(append="root=/dev/vdz")
        with BareGuest(minimal(), machine) as guest:
            guest.process.wait(BOOT_DEADLINE)
            self.assertIn("initrd: root device /dev/vdz did not appear", guest.logs())

    def test_a_root_without_init_is_told_and_ends_the_guest(self):
        with BareGuest(minimal(), Machine(append="init=/none")) as guest:
            guest.process.wait(BOOT_DEADLINE)
            self.assertIn("initrd: cannot execute /none", guest.logs())


if __name__ == "__main__":
    unittest.main()
