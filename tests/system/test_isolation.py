"""Between sandboxes on the host: users, sockets, files."""
import os
import pathlib
import re
import subprocess
import sys

from paddock import IMAGES, SystemTest

CONNECT_AS = """
import os, socket, sys
os.setgroups([])
os.setresgid(int(sys.argv[2]), int(sys.argv[2]), int(sys.argv[2]))
os.setresuid(int(sys.argv[1]), int(sys.argv[1]), int(sys.argv[1]))
for path in sys.argv[3:]:
    try:
        if path.endswith(".qcow2"):
            open(path, "rb")
        else:
            socket.socket(socket.AF_UNIX).connect(path)
        print("open")
    except OSError as error:
        print(type(error).__name__)
"""


def ids_of(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    uids = re.search(r"^Uid:\t(.*)$", status, re.M).group(1).split()
    gids = re.search(r"^Gid:\t(.*)$", status, re.M).group(1).split()
    groups = re.search(r"^Groups:\t?(.*)$", status, re.M).group(1).split()
    return uids, gids, groups


class Owners(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ids = [cls.client.create()["id"] for _ in range(2)]
        cls.pids = [cls.daemon.qemu_pid(i) for i in cls.ids]

    def private_paths(self, sandbox):
        digits = sandbox.split("_")[1]
        found = [str(p) for p in self.daemon.state.rglob("*") if digits in str(p)
                 and (p.is_socket() or p.name.endswith(".qcow2"))]
        self.assertGreaterEqual(len(found), 3, found)
        return found

    def test_each_qemu_has_a_user_of_its_own_and_no_group_more(self):
        users = set()
        for pid in self.pids:
            uids, gids, groups = ids_of(pid)
            self.assertEqual(len(set(uids)), 1, uids)
            self.assertEqual(len(set(gids)), 1, gids)
            self.assertGreaterEqual(int(uids[0]), 300000)
            self.assertNotEqual(gids[0], "0")
            self.assertEqual([g for g in groups if g != gids[0]], [])
            users.add(uids[0])
        self.assertEqual(len(users), 2)

    def test_one_sandboxs_user_opens_nothing_of_another(self):
        uids, gids, _ = ids_of(self.pids[0])
        for sandbox, expected in ((self.ids[1], {"PermissionError"}),):
            paths = self.private_paths(sandbox)
            out = subprocess.run([sys.executable, "-c", CONNECT_AS, uids[0], gids[0], *paths],
                                 capture_output=True, text=True, check=True).stdout.split()
            self.assertEqual(set(out), expected, dict(zip(paths, out)))

    def test_the_database_and_the_admin_socket_are_closed_to_them(self):
        uids, gids, _ = ids_of(self.pids[0])
        for path in self.daemon.state.glob("paddock.db*"):
            self.assertEqual(os.stat(path).st_mode & 0o077, 0, path)
        script = CONNECT_AS + """
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[3])
s.sendall(b"GET /v1/admin/keys HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
print(s.recv(65536).split(b" ")[1].decode())
"""
        done = subprocess.run([sys.executable, "-c", script, uids[0], gids[0],
                               str(self.daemon.state / "admin.sock")], capture_output=True, text=True)
        # Either the socket refuses the connection, or the service refuses the peer.
        answer = done.stdout.split()[-1:]
        self.assertIn(answer, (["403"], ["401"], ["PermissionError"], []), done)

    def test_base_images_are_root_owned_and_read_only(self):
        for path in (IMAGES / "minimal" / "current").iterdir():
            self.assertEqual((path.stat().st_uid, path.stat().st_mode & 0o222), (0, 0), path)

    def test_qemu_keeps_its_seccomp_filter(self):
        for pid in self.pids:
            self.assertRegex(pathlib.Path(f"/proc/{pid}/status").read_text(), r"(?m)^Seccomp:\t2$")
