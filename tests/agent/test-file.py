"""FILE_PUT, FILE_GET, FILE_LIST: PROTOCOL.md sections 5.2 to 5.4."""

import os
import resource
import signal
import stat
import struct
import subprocess
import time
import unittest

import fuse
from harness import IS_ROOT, UID, AgentTest, main
from paddock_proto import *


class Put(AgentTest):
    def path(self, name):
        return self.agent.workspace / name

    def leftovers(self):
        return [p for p in self.agent.workspace.rglob(".paddock-*")]

    def test_a_64_mib_file_comes_back_equal(self):
        data = os.urandom(64 << 20)
        result = self.host.put("big", data, size=len(data))
        self.assertEqual((result.status, result.bytes), (OK, len(data)))
        result = self.host.get("big")
        self.assertEqual((result.status, result.bytes, result.started["size"]), (OK, len(data), len(data)))
        self.assertTrue(result.out == data)
        self.assertLess(self.agent.rss_kib(), 200000 if "asan" in os.environ.get("PADDOCK_AGENT", "") else 100000)

    def test_small_and_empty_files(self):
        for data in (b"", b"x", bytes(PAYLOAD_MAX), bytes(PAYLOAD_MAX + 1), bytes(WINDOW_INITIAL)):
            self.assertEqual(self.host.put("f", data).status, OK)
            self.assertEqual(self.path("f").read_bytes(), data)
            self.assertEqual(self.host.get("f").out, data)

    def test_odd_names(self):
        for name in ("with space", "new\nline", "-dash", "ünï", os.fsdecode(b"raw\xff\xfe"), "n" * 255, "'\"$(x)"):
            self.assertEqual(self.host.put(name, name.encode("utf8", "surrogateescape")).status, OK, name)
            self.assertEqual(self.host.get(name).out, os.fsencode(name))
        self.assertIn(os.fsdecode(b"raw\xff\xfe"), [e[0] for e in self.host.list(".").entries])
        self.assert_status(self.host.put("n" * 256, b""), NAME_TOO_LONG)

    def test_mode(self):
        self.host.put("f", b"1")
        self.assertEqual(stat.S_IMODE(self.path("f").stat().st_mode), 0o644)
        self.host.put("f", b"2", mode=0o751)
        self.assertEqual(stat.S_IMODE(self.path("f").stat().st_mode), 0o751)
        self.host.put("f", b"3")
        self.assertEqual(stat.S_IMODE(self.path("f").stat().st_mode), 0o751)
        self.assertEqual(self.host.get("f").started["mode"], 0o751)
        self.assert_status(self.host.put("f", b"", mode=0o10000), INVALID, "mode")

    def test_owner_is_the_user(self):
        self.host.put("a/b/f", b"", file_flags=FILE_PARENTS)
        for name in ("a", "a/b", "a/b/f"):
            self.assertEqual((self.path(name).stat().st_uid, self.path(name).stat().st_gid)[0], UID)
        self.assertEqual(stat.S_IMODE(self.path("a").stat().st_mode), 0o755)

    def test_parents_only_where_asked(self):
        self.assert_status(self.host.put("a/b/f", b"x"), NOT_FOUND)
        self.assertEqual(self.host.put("a/b/f", b"x", file_flags=FILE_PARENTS).status, OK)
        self.assertEqual(self.host.put("a/b/f", b"y", file_flags=FILE_PARENTS).status, OK)
        self.assert_status(self.host.put("a/b/f/g", b"x", file_flags=FILE_PARENTS), NOT_DIRECTORY)

    def test_append_and_offset(self):
        self.host.put("f", b"hello", file_flags=FILE_APPEND)
        self.host.put("f", b" world", file_flags=FILE_APPEND)
        self.host.put("f", b"J", offset=0)
        self.host.put("f", b"!", offset=13)
        self.assertEqual(self.path("f").read_bytes(), b"Jello world\0\0!")
        self.assert_status(self.host.put("f", b"", file_flags=FILE_APPEND, offset=3), INVALID, "append")
        self.assert_status(self.host.put("f", b"", offset=1 << 63), INVALID, "offset")

    def test_a_wrong_size_replaces_nothing(self):
        self.host.put("f", b"old")
        for size in (0, 4, 6, 1 << 40):
            self.assert_status(self.host.put("f", b"12345", size=size), INVALID, "size")
        self.assertEqual(self.path("f").read_bytes(), b"old")
        self.assertEqual(self.host.put("f", b"12345", size=5).status, OK)
        self.wait_for(lambda: not self.leftovers(), "temporary files stay")

    def test_cancel_and_sync_replace_nothing_at_any_moment(self):
        self.host.put("f", b"old")
        for i in range(40):
            stream = self.host.call(FILE_PUT, ("path", "f"))
            self.host.send(frame(DATA, stream, b"new", IN))
            time.sleep(i * 0.0002)
            if i % 2:
                self.host.send(frame(CANCEL, stream))
                self.assert_status(self.host.finish(stream), CANCELLED)
            else:
                self.host.sync()
            self.assertEqual(self.path("f").read_bytes(), b"old")
        self.wait_for(lambda: not self.leftovers(), "temporary files stay")

    def test_readers_see_the_old_file_or_the_new_one(self):
        self.host.put("f", b"old")
        with open(self.path("f"), "rb") as before:
            self.host.put("f", b"new")
            self.assertEqual(before.read(), b"old")

    def test_links_are_written_through(self):
        self.host.put("dir/target", b"1", mode=0o600, file_flags=FILE_PARENTS)
        os.symlink("dir/target", self.path("link"))
        os.symlink("link", self.path("link2"))
        os.symlink(self.path("dir/fresh"), self.path("dangling"))
        os.symlink("loop", self.path("loop"))
        self.assertEqual(self.host.put("link2", b"2").status, OK)
        self.assertTrue(self.path("link").is_symlink() and self.path("link2").is_symlink())
        self.assertEqual(self.path("dir/target").read_bytes(), b"2")
        self.assertEqual(stat.S_IMODE(self.path("dir/target").stat().st_mode), 0o600)
        self.assertEqual(self.host.put("dangling", b"3").status, OK)
        self.assertEqual(self.path("dir/fresh").read_bytes(), b"3")
        self.assert_status(self.host.put("loop", b""), LOOP)

    def test_what_is_no_regular_file_is_refused(self):
        os.mkfifo(self.path("fifo"))
        self.path("dir").mkdir()
        for call in (lambda p: self.host.put(p, b"x"), lambda p: self.host.get(p)):
            self.assert_status(call("fifo"), NOT_REGULAR)
            self.assert_status(call("/dev/zero"), NOT_REGULAR)
            self.assert_status(call("dir"), IS_DIRECTORY)
            self.assert_status(call("/"), IS_DIRECTORY)
        self.assert_status(self.host.put("new/", b"x"), IS_DIRECTORY)

    @unittest.skipUnless(IS_ROOT, "needs root")
    def test_rights_are_the_users(self):
        secret = self.agent.directory / "secret"
        secret.write_bytes(b"s")
        secret.chmod(0o600)
        self.assert_status(self.host.get(str(secret)), PERMISSION)
        self.assert_status(self.host.put(str(secret), b"x"), PERMISSION)
        self.assert_status(self.host.put(str(self.agent.directory / "new"), b"x"), PERMISSION)
        self.assert_status(
            self.host.put(str(self.agent.directory / "a/b"), b"x", file_flags=FILE_PARENTS), PERMISSION)
        self.assert_status(self.host.get("/proc/1/environ"), PERMISSION)
        locked = self.agent.directory / "locked"
        locked.mkdir(0o700)
        self.assert_status(self.host.list(str(locked)), PERMISSION)
        # Not ours to write, though our directory would let us replace it.
        self.path("foreign").write_bytes(b"f")
        self.assert_status(self.host.put("foreign", b"x"), PERMISSION)
        # Ours to write in a directory that isn't.
        secret.chmod(0o666)
        self.assertEqual(self.host.put(str(secret), b"in place").status, OK)
        self.assertEqual(secret.read_bytes(), b"in place")

    @unittest.skipUnless(IS_ROOT, "needs root to mount")
    def test_a_full_disk_is_told(self):
        small = self.path("small")
        small.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=1m,uid={UID}", "tmpfs", small], check=True)
        try:
            self.assert_status(self.host.put("small/f", bytes(4 << 20)), NO_SPACE)
            self.wait_for(lambda: not os.listdir(small), "temporary files stay")
            self.assertEqual(self.host.put("small/f", b"fits").status, OK)
        finally:
            subprocess.run(["umount", "-l", small], check=True)

    @unittest.skipUnless(IS_ROOT, "needs root to limit another process")
    def test_without_a_free_descriptor_nothing_is_claimed(self):
        self.host.list(".")
        self.host.send(frame(PING))
        self.assertEqual(self.host.read().kind, PONG)  # it has closed all that it needed
        used = {int(n) for n in os.listdir(f"/proc/{self.agent.process.pid}/fd")}
        free = [n for n in range(100) if n not in used]
        # Enough for two control sockets and one of the two files.
        resource.prlimit(self.agent.process.pid, resource.RLIMIT_NOFILE, (free[2] + 1, 4096))
        self.host.send(b"".join(frame(FILE_PUT, i, body(("path", f"f{i}"))) for i in (2, 3)))
        got = self.host.read()
        self.assertEqual((got.kind, unbody(got.payload)["status"]), (END, BUSY))
        other = 5 - got.stream
        self.host.send(frame(DATA, other, b"x", IN) + frame(CLOSE, other, b"", IN))
        self.assertEqual(self.host.finish(other).status, OK)
        self.assertEqual(os.listdir(self.agent.workspace), [f"f{other}"])
        resource.prlimit(self.agent.process.pid, resource.RLIMIT_NOFILE, (1024, 4096))

    def test_bad_paths(self):
        self.assert_status(self.host.put("", b""), INVALID, "path")
        self.assert_status(self.host.finish(self.host.call(FILE_GET, ("path", b"a\0b"))), INVALID, "path")
        self.assert_status(self.host.finish(self.host.call(FILE_GET)), INVALID, "path")
        self.assert_status(self.host.get("a/" * 2048), INVALID, "path")
        self.assert_status(self.host.get("/" + "a/" * 2047), NOT_FOUND)
        self.assert_status(self.host.get("f", file_flags=FILE_RECURSIVE), UNSUPPORTED)
        self.assert_status(self.host.put("f", b"", file_flags=64), UNSUPPORTED)

    def test_many_at_once(self):
        streams = {self.host.call(FILE_PUT, ("path", f"f{i}")): i for i in range(40)}
        for stream, i in streams.items():
            self.host.send(frame(DATA, stream, bytes([i]) * 1000, IN) + frame(CLOSE, stream, b"", IN))
        ends = 0
        while ends < len(streams):
            got = self.host.read()
            if got.kind == END:
                self.assertEqual(unbody(got.payload)["status"], OK)
                ends += 1
        for i in range(40):
            self.assertEqual(self.path(f"f{i}").read_bytes(), bytes([i]) * 1000)


class Get(AgentTest):
    def path(self, name):
        return self.agent.workspace / name

    def test_pieces(self):
        self.path("f").write_bytes(bytes(range(256)) * 1000)
        whole = self.path("f").read_bytes()
        for offset, length in ((0, 10), (5, 0), (255999, 10), (256000, 1), (1 << 40, 5), (100000, 100000)):
            result = self.host.get("f", offset=offset, length=length)
            self.assertEqual(result.status, OK)
            self.assertEqual(result.out, whole[offset:offset + length])
            self.assertEqual(result.started["size"], 256000)
        self.assertEqual(self.host.get("f", offset=200000).out, whole[200000:])
        self.assert_status(self.host.get("f", offset=1 << 63), INVALID, "offset")

    def test_missing(self):
        result = self.host.get("nothing")
        self.assert_status(result, NOT_FOUND)
        self.assertEqual((result.errno, result.frames), (2, [END]))

    def test_mtime(self):
        self.path("f").write_bytes(b"")
        os.utime(self.path("f"), ns=(0, 1234567890123456789))
        self.assertEqual(self.host.get("f").started["mtime_ns"], 1234567890123456789)

    def test_files_of_proc(self):
        result = self.host.get("/proc/version")
        self.assertEqual((result.status, result.started["size"]), (OK, 0))
        with open("/proc/version", "rb") as file:
            self.assertEqual(result.out, file.read())
        self.assertEqual(self.host.get("/proc/version", length=5).out, b"Linux")
        self.assertTrue(self.host.get("/proc/self/status").out.startswith(b"Name:"))

    def test_a_file_that_grows_ends_where_it_was(self):
        self.path("f").write_bytes(bytes(1 << 20))
        stream = self.host.call(FILE_GET, ("path", "f"))
        self.assertEqual(self.host.read().kind, STARTED)
        with open(self.path("f"), "ab") as file:
            file.write(bytes(1 << 20))
        result = self.host.finish(stream)
        self.assertEqual((len(result.out), result.bytes), (1 << 20, 1 << 20))

    def test_a_file_that_shrinks_ends_early(self):
        self.path("f").write_bytes(bytes(4 << 20))
        stream = self.host.call(FILE_GET, ("path", "f"))
        self.assertEqual(self.host.read().kind, STARTED)
        os.truncate(self.path("f"), 2 << 20)
        result = self.host.finish(stream)
        self.assertEqual((result.status, len(result.out)), (OK, result.bytes))
        self.assertLessEqual(len(result.out), 2 << 20)

    def test_an_empty_window_stops_it_and_others_go_on(self):
        self.path("f").write_bytes(bytes(1 << 20))
        stream = self.host.call(FILE_GET, ("path", "f"))
        got = 0
        while got < WINDOW_INITIAL:
            f = self.host.read()
            got += len(f.payload) if f.kind == DATA else 0
        self.assertTrue(self.host.is_quiet(0.3))
        self.assertEqual(self.host.get("f", length=5).out, bytes(5))
        self.host.send(frame(WINDOW, stream, struct.pack("<I", 1 << 20), OUT))
        self.assertEqual(len(self.host.finish(stream).out) + got, 1 << 20)

    def test_cancel(self):
        self.path("f").write_bytes(bytes(1 << 20))
        stream = self.host.call(FILE_GET, ("path", "f"))
        self.assertEqual(self.host.read().kind, STARTED)
        self.host.send(frame(CANCEL, stream))
        self.assert_status(self.host.finish(stream), CANCELLED)
        self.assertEqual(self.host.get("f", length=3).out, bytes(3))

    def test_nothing_piles_up(self):
        self.path("f").write_bytes(b"x")
        self.host.get("f")
        before = self.agent.descriptors()
        for _ in range(100):
            self.host.get("f")
            self.host.put("g", b"y")
            self.host.get("nothing")
            self.host.list(".")
        self.wait_for(lambda: self.agent.descriptors() <= before + 2, "descriptors leak")


class List(AgentTest):
    def tree(self, *names):
        for name in names:
            path = self.agent.workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * len(name))

    def test_entries_say_what_they_are(self):
        self.tree("b/file", "a")
        os.symlink("a", self.agent.workspace / "link")
        os.mkfifo(self.agent.workspace / "fifo")
        os.chmod(self.agent.workspace / "a", 0o640)
        os.utime(self.agent.workspace / "a", ns=(0, 5_000_000_001))
        entries = self.host.list(".").entries
        self.assertEqual([(e[0], e[1]) for e in entries],
                         [("a", "f"), ("b", "d"), ("fifo", "o"), ("link", "l")])
        self.assertEqual(entries[0][2:], (0o100640, 1, 5_000_000_001))

    def test_the_whole_tree_in_order(self):
        self.tree("z", "b/2", "b/1/x", "b/10", "a")
        names = [e[0] for e in self.host.list(str(self.agent.workspace), file_flags=FILE_RECURSIVE).entries]
        self.assertEqual(names, ["a", "b", "b/1", "b/1/x", "b/10", "b/2", "z"])

    def test_links_are_not_followed_but_the_first(self):
        self.tree("dir/inner/file")
        os.symlink(".", self.agent.workspace / "dir/self")
        os.symlink("dir", self.agent.workspace / "root")
        result = self.host.list("root", file_flags=FILE_RECURSIVE)
        self.assertEqual([e[0] for e in result.entries], ["inner", "inner/file", "self"])

    def test_limit(self):
        self.tree(*[f"d/{i:03}" for i in range(50)])
        for limit, count in ((0, 0), (10, 10), (49, 49)):
            result = self.host.list("d", limit=limit)
            self.assertEqual((len(result.entries), result.end_flags), (count, TRUNCATED))
        result = self.host.list("d", limit=50)
        self.assertEqual((len(result.entries), result.end_flags), (50, 0))

    def test_many_entries_through_a_small_window(self):
        self.tree(*[f"{i:05}{'n' * 200}" for i in range(9000)])
        result = self.host.list(".")
        self.assertEqual(len(result.entries), 9000)
        self.assertEqual(len({e[0] for e in result.entries}), 9000)

    def test_a_very_deep_tree_ends(self):
        path = self.agent.workspace
        here = os.getcwd()
        try:
            os.chdir(path)
            for _ in range(300):
                os.mkdir("d")
                os.chown("d", UID, -1) if IS_ROOT else None
                os.chdir("d")
        finally:
            os.chdir(here)
        result = self.host.list(".", file_flags=FILE_RECURSIVE)
        self.assertEqual((result.status, result.end_flags), (OK, TRUNCATED))
        self.assertEqual(len(result.entries), 129)

    def test_errors(self):
        self.tree("file")
        self.assert_status(self.host.list("file"), NOT_DIRECTORY)
        self.assert_status(self.host.list("nothing"), NOT_FOUND)
        self.assertEqual(self.host.list(".", file_flags=FILE_RECURSIVE).status, OK)

    @unittest.skipUnless(IS_ROOT, "needs root")
    def test_a_directory_that_cannot_be_read_is_listed_and_not_entered(self):
        self.tree("closed/file", "open/file")
        os.chmod(self.agent.workspace / "closed", 0o700)
        result = self.host.list(".", file_flags=FILE_RECURSIVE)
        self.assertEqual([e[0] for e in result.entries], ["closed", "open", "open/file"])

    def test_cancel_a_long_list(self):
        stream = self.host.call(FILE_LIST, ("path", "/"), ("file_flags", FILE_RECURSIVE), ("limit", 1 << 31))
        self.assertEqual(self.host.read().kind, DATA)
        self.host.send(frame(CANCEL, stream))
        self.assert_status(self.host.finish(stream), CANCELLED)
        children = f"/proc/{self.agent.process.pid}/task/{self.agent.process.pid}/children"

        def none_left():
            with open(children) as file:
                return file.read() == ""
        self.wait_for(none_left, "the helper lives on")


@unittest.skipUnless(IS_ROOT and os.path.exists("/dev/fuse"), "needs root and FUSE")
class OnFuse(AgentTest):
    """Files that a process of the user's serves, or doesn't: they come through a pipe."""

    def setUp(self):
        super().setUp()
        (self.agent.workspace / "m").mkdir()
        self.fuse = fuse.Fuse(self.agent.workspace / "m", UID)

    def tearDown(self):
        self.fuse.close()
        super().tearDown()

    def helpers(self):
        pid = self.agent.process.pid
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return file.read().split()

    def test_files_come_and_go(self):
        for data in (b"", b"x", os.urandom(1 << 20), b"shorter"):
            result = self.host.put("m/f", data, size=len(data))
            self.assertEqual((result.status, result.bytes), (OK, len(data)), dict(result))
            self.assertEqual(self.fuse.files, {b"f": data})
            result = self.host.get("m/f")
            self.assertEqual((result.status, result.out, result.bytes), (OK, data, len(data)))
        self.assertEqual(self.host.get("m/f", offset=2, length=3).out, b"ort")
        self.assertEqual(self.host.put("m/f", b"er", offset=7).status, OK)
        self.assertEqual(self.host.put("m/f", b"!", file_flags=FILE_APPEND).status, OK)
        self.assertEqual(self.fuse.files, {b"f": b"shorterer!"})
        self.assertEqual([e[0] for e in self.host.list("m").entries], ["f"])

    def test_errors_are_told_and_replace_nothing(self):
        self.fuse.files[b"f"] = b"old"
        for operation in (fuse.WRITE, fuse.FLUSH, fuse.RENAME):
            self.fuse.errors = {operation: 28}
            self.assert_status(self.host.put("m/f", bytes(300000)), NO_SPACE)
            self.assertEqual(self.fuse.files[b"f"], b"old")
        self.wait_for(lambda: set(self.fuse.files) == {b"f"}, "temporary files stay")
        self.fuse.errors = {fuse.READ: 5, fuse.READDIR: 5}
        self.assert_status(self.host.get("m/f"), IO)
        self.assert_status(self.host.list("m"), IO)

    def test_cancel_replaces_nothing(self):
        self.fuse.files[b"f"] = b"old"
        stream = self.host.call(FILE_PUT, ("path", "m/f"))
        self.host.send(frame(DATA, stream, b"new", IN))
        self.wait_for(lambda: b"new" in self.fuse.files.values(), "it doesn't write")
        self.host.send(frame(CANCEL, stream))
        self.assert_status(self.host.finish(stream), CANCELLED)
        self.wait_for(lambda: self.fuse.files == {b"f": b"old"}, "a temporary file stays")
        self.wait_for(lambda: not self.helpers(), "the helper lives on")

    def test_a_file_that_grows_ends_where_it_was(self):
        self.fuse.files[b"f"] = bytes(1 << 20)
        stream = self.host.call(FILE_GET, ("path", "m/f"))
        self.assertEqual(self.host.read().kind, STARTED)
        self.fuse.files[b"f"] += bytes(1 << 20)
        result = self.host.finish(stream)
        self.assertEqual((result.status, result.bytes), (OK, 1 << 20))

    def test_cancel_ends_a_helper_that_somebody_stopped(self):
        self.fuse.files[b"f"] = bytes(1 << 20)
        stream = self.host.call(FILE_GET, ("path", "m/f"))
        self.assertEqual(self.host.read().kind, STARTED)
        for pid in self.helpers():
            os.kill(int(pid), signal.SIGSTOP)
        self.host.send(frame(CANCEL, stream))
        self.assert_status(self.host.finish(stream), CANCELLED)
        self.wait_for(lambda: not self.helpers(), "the helper lives on")

    def test_who_never_answers_is_given_up(self):
        self.fuse.files[b"f"] = bytes(1000)
        self.fuse.files[b"large"] = bytes(1 << 20)
        slow = self.host.call(FILE_GET, ("path", "m/large"))
        got = 0
        while got < WINDOW_INITIAL:
            f = self.host.read()
            got += len(f.payload) if f.kind == DATA else 0
        self.assertTrue(self.host.is_quiet(0.3))
        # Not the reads of the large one: what is read ahead of it may still be on its way.
        self.fuse.silent = {(fuse.READ, b"f"), fuse.READDIR, fuse.WRITE}
        start = time.monotonic()
        streams = {self.host.call(FILE_GET, ("path", "m/f")), self.host.call(FILE_LIST, ("path", "m"))}
        for size, is_closed in ((200000, False), (1, True)):
            stream = self.host.call(FILE_PUT, ("path", "m/f"), ("offset", 0))
            for at in range(0, size, PAYLOAD_MAX):
                self.host.send(frame(DATA, stream, bytes(min(PAYLOAD_MAX, size - at)), IN))
            if is_closed:
                self.host.send(frame(CLOSE, stream, b"", IN))
            streams.add(stream)
        while streams:
            got = self.host.read()
            if got.kind == END:
                self.assertEqual(unbody(got.payload)["status"], IO, unbody(got.payload))
                streams.remove(got.stream)
        self.assertGreaterEqual(time.monotonic() - start, 29)
        # A host that gives no credit isn't hurried, nor is who goes on slowly.
        self.fuse.silent = set()
        self.host.send(frame(WINDOW, slow, struct.pack("<I", 1 << 20), OUT))
        self.assertEqual(self.host.finish(slow).bytes, 1 << 20)
        self.fuse.delays = {fuse.WRITE: 0.06}  # for each 4 KiB
        # In place: the directory is locked by who still waits for READDIR.
        result = self.host.put("m/large", bytes(36 * 65536), offset=0)
        self.assertEqual((result.status, result.bytes), (OK, 36 * 65536))
        self.assertGreater(result.seconds, 31)


if __name__ == "__main__":
    main()
