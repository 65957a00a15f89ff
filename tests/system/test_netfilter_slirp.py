#!/usr/bin/env python3
"""What QEMU's own user-mode network lets through under the host filter, frame by frame.

Wants root and QEMU; touches nothing of the host. PADDOCK_HOOKS_BUILD names a build directory with tests.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lib_netns  # noqa: E402
from lib_filter import FIRST, TABLE, Watch  # noqa: E402
from lib_slirp import DNS4, GATEWAY4, GATEWAY6, Slirp  # noqa: E402

RESOLVER = "10.77.0.53"
FORBIDDEN = [GATEWAY4, GATEWAY6, "10.77.0.1", "10.77.0.2", "169.254.169.254", "fd77::2"]
PUBLIC = ["198.51.100.10", "2001:db8:1::10"]


class UserNetwork(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.net = net = lib_netns.Net()
        cls.addClassCleanup(net.close)
        far = ["169.254.169.254", "198.51.100.10", "2001:db8:1::10", "fd77::2"]
        lan = net.peer("lan", "10.77.0.1/24", "10.77.0.2/24", f"{RESOLVER}/24",
                       *[f"{a}/{128 if ':' in a else 32}" for a in far], routes=far)
        net.run(["ip", "addr", "add", "fd77::1/128", "dev", lan.link, "nodad"])
        lan.run(["ip", "-6", "route", "add", "fd77::1", "dev", "eth0"])
        lan.run(["ip", "-6", "route", "add", "default", "via", "fd77::1"])
        net.listen_in(lan.namespace, [(kind, address, 80) for address in far + ["10.77.0.2"]
                                      for kind in ("tcp", "udp")])
        lan.listen(RESOLVER, 53)
        for address in ("127.0.0.1", "::1", "10.77.0.1"):
            net.listen(address, 80)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        self.resolv_conf = pathlib.Path(folder.name) / "resolv.conf"
        self.resolv_conf.write_text(f"nameserver {RESOLVER}\n")
        self.addCleanup(subprocess.run, self.net.host_command(
            ["nft", "delete", "table", "inet", TABLE]), stderr=subprocess.DEVNULL)

    def guest(self):
        guest = Slirp(self.net, FIRST + 7, self.resolv_conf)
        self.addCleanup(guest.close)
        return guest

    def test_control_without_the_filter_everything_is_reached(self):
        guest = self.guest()
        for address in FORBIDDEN + PUBLIC:
            self.assertEqual(guest.tcp(address, 80)[0], "reached", address)
            self.assertEqual(guest.udp(address, 80)[0], "reached", address)

    def test_the_filter_makes_the_guest_fail_at_once(self):
        watch = Watch(self.net, self.resolv_conf)
        self.addCleanup(watch.close)
        watch.expect("active")
        guest = self.guest()
        for address in FORBIDDEN:
            outcome, ms = guest.tcp(address, 80)
            self.assertEqual(outcome, "refused", f"tcp {address}")
            self.assertLess(ms, 1000, f"tcp {address}")
            outcome, ms = guest.udp(address, 80)
            self.assertEqual(outcome, "unreachable", f"udp {address}")
            self.assertLess(ms, 1000, f"udp {address}")
        for address in PUBLIC:
            self.assertEqual(guest.tcp(address, 80)[0], "reached", address)
            self.assertEqual(guest.udp(address, 80)[0], "reached", address)

    def test_names_are_resolved_through_the_host(self):
        watch = Watch(self.net, self.resolv_conf)
        self.addCleanup(watch.close)
        watch.expect("active")
        guest = self.guest()
        self.assertEqual(guest.udp(DNS4, 53)[0], "reached")
        self.assertEqual(guest.tcp(DNS4, 53)[0], "reached")
        # Here it's libslirp that says no, filter or not.
        self.assertEqual(guest.tcp(DNS4, 80)[0], "unreachable")


if __name__ == "__main__":
    unittest.main(verbosity=2)
