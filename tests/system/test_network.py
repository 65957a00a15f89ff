"""What a guest reaches, from a real guest against listeners on the host and in namespaces beside it."""
import json
import os
import pathlib
import subprocess
import time
import unittest

import lib_netns
from paddock import BUILD, HOOKS_BUILD, Daemon, wait_for

# Runs in the guest, on the few modules that python3-minimal has. Prints an outcome for each target, in their order.
PROBE = r"""
import socket, sys, threading

def probe(kind, address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as s:
            s.settimeout(4)
            s.connect((address, port))
            if kind == "udp":
                s.send(b"?")
            return "reached" if s.recv(64) else "refused"
    except (ConnectionRefusedError, ConnectionResetError):
        return "refused"
    except TimeoutError:
        return "silent"
    except OSError as error:
        return "refused" if error.errno in (101, 113, 13, 1) else str(error)

targets = [t.split("/") for t in sys.argv[1:]]
outcomes = [None] * len(targets)

def run(i):
    kind, address, port = targets[i]
    outcomes[i] = probe(kind, address, int(port))

threads = [threading.Thread(target=run, args=(i,)) for i in range(len(targets))]
for t in threads:
    t.start()
for t in threads:
    t.join()
print("\n".join(outcomes))
"""
PUBLIC = [("tcp", "203.0.113.9", 80), ("udp", "203.0.113.9", 80)]
MIRROR = ("tcp", "10.77.0.2", 8081)


class Surroundings:
    """Listeners that a guest may or may not reach."""

    def __init__(self):
        self.net = lib_netns.Net(inside=False)
        extra = ["169.254.7.7", "169.254.169.254", "203.0.113.9", "100.64.1.1"]
        lan = self.net.peer("lan", "10.77.0.1/24", "10.77.0.2/24", *[a + "/32" for a in extra],
                            routes=extra)
        self.sent = pathlib.Path(f"/sys/class/net/{lan.link}/statistics/tx_packets")
        # One each: the answer of a UDP socket that is bound to no address comes from another one.
        for address in ["10.77.0.2", *extra]:
            lan.listen(address, 80)
        lan.listen("10.77.0.2", 8081)
        # The host's own: loopback alone, and all addresses.
        self.net.listen("127.0.0.1", 18471)
        self.net.listen("0.0.0.0", 18472)

    def close(self):
        self.net.close()

    def packets(self):
        """How many have left the host for the namespace."""
        return int(self.sent.read_text())

    def forbidden(self, paddockd_port):
        """Every one of these must be out of reach."""
        own = [a["local"] for link in json.loads(lib_netns.sh(["ip", "-j", "-4", "addr"]))
               for a in link["addr_info"]]
        targets = [("tcp", "10.0.2.2", paddockd_port)]
        for kind in ("tcp", "udp"):
            targets += [(kind, "10.0.2.2", 18471), (kind, "10.0.2.2", 18472)]
            targets += [(kind, address, 18472) for address in own if not address.startswith("127.")]
            targets += [(kind, address, 80) for address in
                        ("10.77.0.2", "169.254.7.7", "169.254.169.254", "100.64.1.1")]
        return targets


class Guest:
    def __init__(self, build, environment=None, config="", uri="embed"):
        self.daemon = Daemon(config, build=build, environment=environment, uri=uri).start()
        try:
            self.client = self.daemon.client()
            self.sandbox = self.client.create(network="egress")["id"]
        except BaseException:
            self.daemon.close()
            raise

    def probe(self, targets):
        """{target: outcome}"""
        words = [f"{kind}/{address}/{port}" for kind, address, port in targets]
        result = self.client.exec(self.sandbox, "python3", "-c", PROBE, *words)
        if result["exit_code"] != 0:
            raise AssertionError(result["stderr"])
        return dict(zip(targets, result["stdout"].split("\n")))

    @property
    def table(self):
        return self.daemon.admin().call("GET", "/v1/admin/status").json["filter_table"]


class Egress(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.around = Surroundings()
        cls.addClassCleanup(cls.around.close)

    def start(self, *args, **kwargs):
        guest = Guest(*args, **kwargs)
        self.addCleanup(guest.daemon.close)
        return guest

    def assert_outcomes(self, outcomes, wanted):
        wrong = {target: outcome for target, outcome in outcomes.items() if outcome not in wanted}
        self.assertEqual(wrong, {})

    def test_public_is_reached_and_nothing_else_also_after_the_table_was_deleted(self):
        guest = self.start(BUILD)
        forbidden = self.around.forbidden(guest.daemon.port)
        self.assertGreater(len(forbidden), 12)
        self.assert_outcomes(guest.probe(PUBLIC), {"reached"})
        self.assert_outcomes(guest.probe(forbidden), {"refused", "silent"})
        self.assert_outcomes(guest.probe([t for t in forbidden if t[0] == "tcp"]), {"refused"})
        for damage in (["delete", "table"], ["flush", "table"]):
            lib_netns.sh(["nft", *damage, "inet", guest.table.split()[-1]])
            time.sleep(1)
            self.assert_outcomes(guest.probe(forbidden), {"refused", "silent"})
            self.assert_outcomes(guest.probe(PUBLIC), {"reached"})

    def test_links_are_down_while_the_filter_can_not_be_put_back(self):
        broken = pathlib.Path(f"/tmp/paddock-filter-fails-{os.getpid()}")
        self.addCleanup(broken.unlink, missing_ok=True)
        guest = self.start(HOOKS_BUILD, {"PADDOCK_TEST_FILTER_FAIL_FILE": str(broken)})
        self.assert_outcomes(guest.probe(PUBLIC), {"reached"})
        broken.touch()
        lib_netns.sh(["nft", "delete", "table", "inet", guest.table.split()[-1]])
        time.sleep(1)
        outcomes = guest.probe(PUBLIC + self.around.forbidden(guest.daemon.port))
        self.assertNotIn("reached", outcomes.values())
        answer = guest.client.call("POST", "/v1/sandboxes",
                                   {"size": "tiny", "network": "egress"})
        self.assertEqual((answer.status, answer.error[0]), (503, "unavailable"), answer)
        unasked = guest.client.create()
        self.assertEqual(unasked["network"], "none")
        broken.unlink()
        wait_for(lambda: set(guest.probe(PUBLIC).values()) == {"reached"}, 30, "the link is back")
        self.assert_outcomes(guest.probe(self.around.forbidden(guest.daemon.port)),
                             {"refused", "silent"})

    def test_control_without_the_filter_the_same_probes_succeed(self):
        guest = self.start(HOOKS_BUILD, {"PADDOCK_TEST_NO_FILTER": "1"})
        self.assert_outcomes(guest.probe(PUBLIC), {"reached"})
        forbidden = self.around.forbidden(guest.daemon.port)
        # paddockd itself speaks only when spoken to in HTTP; that the connection stands shows in "silent".
        outcomes = guest.probe([t for t in forbidden if t[2] != guest.daemon.port])
        self.assert_outcomes(outcomes, {"reached"})
        self.assertEqual(guest.probe(forbidden[:1])[forbidden[0]], "silent")

    def test_the_operators_private_mirror_is_reached_and_its_environment_is_there(self):
        guest = self.start(BUILD, config="[network]\nallow_private = 10.77.0.0/24:8081\n"
                                         "[guest]\nenv = PIP_INDEX_URL=http://10.77.0.2:8081/simple\n"
                                         "env = HTTP_PROXY=http://10.77.0.2:8081\n")
        outcomes = guest.probe([MIRROR, ("tcp", "10.77.0.2", 80)])
        self.assertEqual(list(outcomes.values()), ["reached", "refused"])
        out = guest.client.shell(guest.sandbox, "echo $PIP_INDEX_URL $HTTP_PROXY")["stdout"]
        self.assertEqual(out, "http://10.77.0.2:8081/simple http://10.77.0.2:8081\n")

    def test_network_none_has_no_card(self):
        daemon = Daemon().start()
        self.addCleanup(daemon.close)
        client = daemon.client()
        sandbox = client.create(network="none")["id"]
        self.assertEqual(client.shell(sandbox, "ls /sys/class/net")["stdout"].split(), ["lo"])

    def test_guest_ca_file_is_trusted_in_the_guest(self):
        directory = pathlib.Path(lib_netns.sh(["mktemp", "-d", "/tmp/paddock-ca-XXXXXX"]).strip())
        self.addCleanup(subprocess.run, ["rm", "-r", str(directory)])
        lib_netns.sh(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                      "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                      "/CN=Paddock test CA", "-keyout", str(directory / "key"), "-out",
                      str(directory / "ca.pem")])
        daemon = Daemon(f"[guest]\nca_file = {directory}/ca.pem\n").start()
        self.addCleanup(daemon.close)
        client = daemon.client()
        sandbox = client.create(network="none")["id"]
        out = client.shell(sandbox, "cat $SSL_CERT_FILE")["stdout"]
        self.assertIn((directory / "ca.pem").read_text().strip(), out)


class Settings(unittest.TestCase):
    def test_exceptions_that_would_open_the_host_are_refused_by_name(self):
        for entry in ("127.0.0.0/8:80", "169.254.169.254:80", "10.0.0.0/8", "0.0.0.0/0:80"):
            daemon = Daemon(f"[network]\nallow_private = {entry}\n")
            self.addCleanup(daemon.close)
            done = subprocess.run([BUILD / "controlplane/daemon/paddockd", "--config",
                                   daemon.config_path], capture_output=True, text=True, timeout=30)
            self.assertNotEqual(done.returncode, 0, entry)
            self.assertIn("network.allow_private", done.stderr)
            self.assertIn(entry.split(":")[0].split("/")[0], done.stderr)

    def test_release_builds_have_no_switch_for_the_filter(self):
        strings = lib_netns.sh(["strings", str(BUILD / "controlplane/daemon/paddockd")])
        self.assertIn("allow_private", strings)
        self.assertNotIn("PADDOCK_TEST_", strings)


if __name__ == "__main__":
    unittest.main()
