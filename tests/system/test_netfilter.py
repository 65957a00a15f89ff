#!/usr/bin/env python3
"""The host filter against the real kernel, in network namespaces of its own: no guest needed.

Wants root; touches nothing of the host. PADDOCK_HOOKS_BUILD names a build directory with tests.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lib_netns  # noqa: E402
from lib_filter import COUNT, FIRST, INSTANCE, TABLE, Watch  # noqa: E402
from paddock import HOOKS_BUILD, wait_for  # noqa: E402

GUEST, LAST, BEFORE, BEHIND = FIRST + 7, FIRST + COUNT - 1, FIRST - 1, FIRST + COUNT
RESOLVER = "10.77.0.53"

# All have listeners on port 80, tcp and udp.
HOST_OWN = ["127.0.0.1", "127.9.9.9", "::1", "10.77.0.1", "198.51.100.1", "fd77::1", "2001:db8:1::1"]
UNREACHABLE = {
    "private": ["10.77.0.2", RESOLVER, "172.16.3.3", "192.168.5.5", "198.18.1.1", "fd77::2"],
    "carrier": ["100.64.1.1"],
    "link-local": ["169.254.7.7", "fe80::77%LAN"],
    "metadata": ["169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192",
                 "fd00:ec2::254", "fd20:ce::254"],
    "disguise": ["64:ff9b::10.77.0.2", "64:ff9b::169.254.169.254", "2002:a4d:2::1", "2001::a4d:2",
                 "64:ff9b:1::1", "fec0::77"],
}
PUBLIC = ["198.51.100.10", "203.0.113.9", "2001:db8:1::10", "64:ff9b::198.51.100.10"]


def boot_ms():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000000


class Filter(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.net = lib_netns.Net()
        cls.addClassCleanup(cls.net.close)
        net = cls.net
        v4 = ["172.16.3.3", "192.168.5.5", "198.18.1.1", "100.64.1.1", "169.254.7.7",
              "169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192",
              "198.51.100.10", "203.0.113.9", RESOLVER]
        v6 = ["fd00:ec2::254", "fd20:ce::254", "64:ff9b::10.77.0.2", "64:ff9b::169.254.169.254",
              "64:ff9b::198.51.100.10", "64:ff9b:1::1", "2002:a4d:2::1", "2001::a4d:2",
              "fec0::77", "2001:db8:1::10"]
        lan = net.peer("lan", "10.77.0.1/24", "10.77.0.2/24", *[a + "/32" for a in v4],
                       *[a + "/128" for a in v6], "fd77::2/64", "fe80::77/64",
                       routes=[a for a in v4 if a != RESOLVER] + v6)
        link = lan.link
        for address in ("fd77::1/64", "2001:db8:1::1/128"):
            net.run(["ip", "addr", "add", address, "dev", link, "nodad"])
        net.run(["ip", "addr", "add", "198.51.100.1/32", "dev", "lo"])
        net.run(["ip", "route", "add", "default", "via", "10.77.0.2"])
        lan.run(["ip", "-6", "route", "add", "default", "via", "fd77::1"])
        for names in UNREACHABLE.values():
            names[:] = [name.replace("LAN", link) for name in names]
        specs = [(k, a, 80) for a in v4 + v6 + ["10.77.0.2", "fd77::2"] for k in ("tcp", "udp")]
        specs += [(k, RESOLVER, 53) for k in ("tcp", "udp")]
        specs += [(k, "10.77.0.2", p) for k in ("tcp", "udp") for p in (53, 8081)]
        net.listen_in(lan.namespace, specs)
        net.listen_in(lan.namespace, [(k, "fe80::77%eth0", 80) for k in ("tcp", "udp")])
        net.listen_in(net.host, [(k, a, p) for a in HOST_OWN for k in ("tcp", "udp")
                                         for p in (80, 8081)])
        cls.lan = lan

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.resolv_conf = self.folder / "resolv.conf"
        self.resolv_conf.write_text(f"nameserver {RESOLVER}\n")
        self.addCleanup(self.nft_quietly, f"delete table inet {TABLE}")

    def start(self, *allow, env=None):
        watch = Watch(self.net, self.resolv_conf, *allow, env=env)
        self.addCleanup(watch.close)
        return watch

    def start_active(self, *allow, env=None):
        watch = self.start(*allow, env=env)
        watch.expect("active")
        return watch

    def nft(self, command):
        return self.net.run(["nft", "-f", "-"], input=command)

    def nft_quietly(self, command):
        subprocess.run(self.net.host_command(["nft", *command.split()]), stderr=subprocess.DEVNULL)

    def outcome(self, address, port=80, kind="tcp", uid=GUEST):
        return lib_netns.probe_as(self.net, uid, kind, address, port)

    def assert_reached(self, address, port=80, kinds=("tcp", "udp"), uid=GUEST):
        for kind in kinds:
            self.assertEqual(self.outcome(address, port, kind, uid)[0], "reached",
                             f"{kind} {address} {port} as {uid}")

    def assert_refused(self, address, port=80, kinds=("tcp", "udp"), uid=GUEST):
        for kind in kinds:
            outcome, ms = self.outcome(address, port, kind, uid)
            self.assertEqual(outcome, "refused", f"{kind} {address} {port} as {uid}")
            self.assertLess(ms, 1000, f"{kind} {address} fails, but slowly")

    def everything(self):
        return HOST_OWN + [a for names in UNREACHABLE.values() for a in names]

    # ---- what is reached ----

    def test_control_without_the_filter_everything_is_reached(self):
        for address in self.everything() + PUBLIC:
            self.assert_reached(address)

    def test_nothing_of_host_and_private_networks_is_reached(self):
        self.start_active()
        for address in self.everything():
            self.assert_refused(address)

    def test_public_hosts_are_reached(self):
        self.start_active()
        for address in PUBLIC:
            self.assert_reached(address)

    def test_resolver_is_reached_on_its_port_alone(self):
        self.start_active()
        self.assert_reached(RESOLVER, 53)
        self.assert_refused(RESOLVER, 80)
        self.assert_refused("10.77.0.2", 53)

    def test_resolver_on_the_loopback_is_reached(self):
        self.resolv_conf.write_text("nameserver 127.0.0.53\n")
        self.net.listen("127.0.0.53", 53)
        self.start_active()
        self.assert_reached("127.0.0.53", 53)
        self.assert_refused("127.0.0.1", 80)

    def test_exception_opens_its_port_by_tcp_but_never_the_host(self):
        self.start_active("10.77.0.0/24:8081")
        self.assert_reached("10.77.0.2", 8081, kinds=["tcp"])
        self.assert_refused("10.77.0.2", 8081, kinds=["udp"])
        self.assert_refused("10.77.0.2", 80)
        self.assert_refused("10.77.0.1", 8081)

    def test_an_address_that_the_host_gets_later_is_out_of_reach(self):
        self.start_active("10.77.0.0/24:8081")
        self.net.run(["ip", "addr", "add", "10.77.0.99/32", "dev", "lo"])
        self.addCleanup(self.net.run, ["ip", "addr", "del", "10.77.0.99/32", "dev", "lo"])
        self.net.listen("10.77.0.99", 8081)
        self.assert_reached("10.77.0.99", 8081, uid=0)
        self.assert_refused("10.77.0.99", 8081)

    def test_all_uids_of_the_range_and_no_other_are_bound(self):
        self.start_active()
        for uid in (FIRST, LAST):
            self.assert_refused("10.77.0.2", uid=uid)
        for uid in (0, BEFORE, BEHIND):
            self.assert_reached("10.77.0.2", uid=uid)

    def test_nat_of_the_host_opens_nothing(self):
        self.nft("table ip nat_of_test { chain output { type nat hook output priority -100; "
                 "ip daddr 203.0.113.77 dnat to 10.77.0.2; "
                 "ip daddr 10.99.9.9 dnat to 198.51.100.10; }; }")
        self.addCleanup(self.nft_quietly, "delete table ip nat_of_test")
        self.assert_reached("203.0.113.77")
        self.assert_reached("10.99.9.9")
        self.start_active()
        self.assert_refused("203.0.113.77")
        self.assert_refused("10.99.9.9")

    def test_an_accept_elsewhere_opens_nothing(self):
        self.nft("table inet other_of_test { chain output { type filter hook output "
                 "priority -400; policy accept; accept; }; }")
        self.addCleanup(self.nft_quietly, "delete table inet other_of_test")
        self.start_active()
        self.assert_refused("10.77.0.2")

    def test_multipath_tcp_and_mapped_addresses_are_bound(self):
        self.start_active()
        self.assert_refused("::ffff:10.77.0.2", kinds=["tcp"])
        self.assert_refused("::ffff:127.0.0.1", kinds=["tcp"])
        self.assert_refused("10.77.0.2", kinds=["mptcp"])
        self.assert_reached("198.51.100.10", kinds=["mptcp"])

    def test_multicast_and_broadcast_are_bound(self):
        self.start_active()
        for address in ("224.0.0.251", "255.255.255.255", "10.77.0.255", "ff02::1%" + self.lan.link):
            self.assertEqual(self.outcome(address, 5353, "broadcast")[0], "refused", address)
            self.assertEqual(self.outcome(address, 5353, "broadcast", uid=0)[0], "sent", address)

    def test_pings_are_bound(self):
        self.net.run(["sysctl", "-qw", "net.ipv4.ping_group_range=0 2147483647"])
        self.start_active()
        for address in ("127.0.0.1", "10.77.0.1", "10.77.0.2", RESOLVER, "169.254.169.254"):
            self.assertEqual(self.outcome(address, 0, "ping", uid=BEFORE)[0], "reached", address)
            self.assertEqual(self.outcome(address, 0, "ping")[0], "refused", address)
        self.assertEqual(self.outcome("198.51.100.10", 0, "ping")[0], "reached")

    def test_a_connection_from_before_is_cut(self):
        self.net.listen_in(self.lan.namespace, [("hold", "10.77.0.2", 9001)])
        script = ("import os, socket\n"
                  f"os.setresuid({GUEST}, {GUEST}, {GUEST})\n"
                  "s = socket.socket(); s.connect(('10.77.0.2', 9001))\n"
                  "print(s.recv(64).decode().strip(), flush=True)\n"
                  "input()\n"
                  "try:\n    s.settimeout(10); s.send(b'x'); print(s.recv(64))\n"
                  "except OSError as e:\n    print(type(e).__name__)\n")
        with subprocess.Popen(self.net.host_command([sys.executable, "-c", script]),
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            self.assertEqual(client.stdout.readline(), "paddock-test-listener\n")
            self.start_active()
            self.assertIn(client.communicate("\n", timeout=30)[0],
                          ("ConnectionRefusedError\n", "ConnectionResetError\n"))

    def test_a_listener_of_a_sandbox_uid_answers_no_private_host(self):
        self.net.listen_in(self.net.host, [("tcp", "0.0.0.0", 9002), ("udp", "0.0.0.0", 9002)],
                           uid=GUEST)
        for address in ("10.77.0.1", "127.0.0.1"):
            self.assert_reached(address, 9002, uid=0)
        self.start_active()
        for address in ("10.77.0.1", "127.0.0.1"):
            for kind in ("tcp", "udp"):
                self.assertNotEqual(lib_netns.probe_as(self.net, 0, kind, address, 9002, 1)[0],
                                    "reached", f"{kind} {address}")

    # ---- how it is watched ----

    def assert_repaired(self, watch, command):
        """After `command` the breach is told within 1 s, and the table is put back."""
        start = boot_ms()
        self.nft(command)
        broken, reason = watch.expect("broken")
        active, _ = watch.expect("active")
        print(f"    {command[:60]}: broken after {broken - start} ms, active after "
              f"{active - start} ms ({reason})")
        self.assertLess(broken - start, 1000)
        self.assert_refused("10.77.0.2", kinds=["tcp"])

    def test_breaches_are_told_within_a_second_and_repaired(self):
        watch = self.start_active()
        for command in (
                f"delete table inet {TABLE}",
                f"flush table inet {TABLE}",
                f"flush chain inet {TABLE} asked; delete chain inet {TABLE} asked",
                f"insert rule inet {TABLE} guests accept",
                f"add chain inet {TABLE} more; insert rule inet {TABLE} guests goto more",
                f"add table inet {TABLE} {{ flags dormant; }}",
                f"delete table inet {TABLE}; add table inet {TABLE}"):
            with self.subTest(command):
                self.assert_repaired(watch, command)

    def test_changes_of_other_tables_are_no_breach(self):
        watch = self.start_active()
        for _ in range(20):
            self.nft("add table inet other_of_test; delete table inet other_of_test")
        time.sleep(1.2)
        self.nft(f"delete table inet {TABLE}")
        watch.expect("broken")

    def test_repairs_succeed_while_others_change_their_tables(self):
        watch = self.start_active()
        change = "add table inet other_of_test; delete table inet other_of_test"
        with subprocess.Popen(self.net.host_command(
                ["sh", "-c", f"while :; do nft '{change}'; done"])) as churn:
            try:
                for _ in range(5):
                    self.assert_repaired(watch, f"delete table inet {TABLE}")
            finally:
                churn.kill()
        self.nft_quietly("delete table inet other_of_test")

    def test_what_others_slip_in_never_becomes_the_reference(self):
        self.start_active()
        pristine = self.table()
        # Each time a little later after the removal, so some of them meet the repair half-way.
        for step in range(60):
            self.net.run(["sh", "-c", f"nft delete table inet {TABLE}; sleep {step * 0.0005:.4f}; "
                                      f"nft insert rule inet {TABLE} guests accept || :"])
            wait_for(lambda: self.table() == pristine, 10, f"the table's repair in step {step}")
        self.assert_refused("10.77.0.2", kinds=["tcp"])

    def table(self):
        """The text of our table; empty while it isn't there."""
        listing = subprocess.run(self.net.host_command(["nft", "list", "table", "inet", TABLE]),
                                 capture_output=True, text=True, timeout=60)
        return listing.stdout

    def test_new_resolvers_are_taken(self):
        watch = self.start_active()
        self.resolv_conf.write_text("nameserver 10.77.0.2\n")
        wait_for(lambda: self.outcome("10.77.0.2", 53)[0] == "reached", 10,
                 "the new resolver")
        self.assert_refused(RESOLVER, 53)
        self.nft(f"delete table inet {TABLE}")
        watch.expect("broken")
        watch.expect("active")

    def test_the_table_outlives_a_killed_daemon_and_is_replaced_by_the_next(self):
        watch = self.start_active()
        watch.process.kill()
        watch.close()
        self.assert_refused("10.77.0.2", kinds=["tcp"])
        self.nft(f"insert rule inet {TABLE} guests accept")
        self.assert_reached("10.77.0.2", kinds=["tcp"])
        self.start_active()
        self.assert_refused("10.77.0.2", kinds=["tcp"])

    def test_removal_takes_only_our_table(self):
        self.nft("add table inet paddock_ffffffffffffffff")
        self.addCleanup(self.nft_quietly, "delete table inet paddock_ffffffffffffffff")
        watch = self.start_active()
        self.assertEqual(watch.close(b"remove\n"), 0)
        self.assertEqual(self.nft("list tables").split("\n"),
                         ["table inet paddock_ffffffffffffffff", ""])

    def test_without_rights_it_is_unavailable_and_says_why(self):
        args = ["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]
        command = self.net.host_command
        self.net.host_command = lambda rest: command(args + rest)
        try:
            watch = self.start()
        finally:
            self.net.host_command = command
        _, reason = watch.expect("unavailable")
        self.assertRegex(reason, "[Oo]peration not permitted|no right")

    def test_a_refused_exception_names_setting_and_value(self):
        watch = subprocess.run(
            self.net.host_command([f"{HOOKS_BUILD}/tests/system/filter-watch", INSTANCE, str(FIRST),
                                   str(COUNT), str(self.resolv_conf), "10.77.0.1:80"]),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        self.assertEqual(watch.returncode, 1)
        self.assertIn('network.allow_private: "10.77.0.1:80"', watch.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
