"""Sizes, expiry, crashes, quotas, hangs: what a sandbox promises."""
import concurrent.futures
import datetime
import os
import signal
import subprocess
import time
import unittest

from paddock import Client, Daemon, SystemTest, wait_for


def due(record):
    return datetime.datetime.fromisoformat(record["expires_at"].replace("Z", "+00:00")).timestamp()


class Sizes(SystemTest):
    config = "small = 2/4096/40\n"

    def check(self, size, cpus, memory_mb, memory_share, disk_gb):
        sandbox = self.client.create(size=size)["id"]
        out = self.client.shell(sandbox, "nproc; awk '/MemTotal/ {print $2}' /proc/meminfo; "
                                         "df -B1 --output=size / | tail -n 1")["stdout"].split()
        self.assertEqual(int(out[0]), cpus)
        self.assertGreaterEqual(int(out[1]) * 1024, memory_mb * 1048576 * memory_share)
        self.assertLessEqual(int(out[1]) * 1024, memory_mb * 1048576)
        self.assertGreaterEqual(int(out[2]), disk_gb * 1e9 * 0.9)
        self.client.destroy(sandbox)

    def test_tiny_is_what_was_asked(self):
        self.check("tiny", 1, 256, 0.80, 2)

    def test_small_is_what_was_asked(self):
        self.check("small", 2, 4096, 0.95, 40)

    def test_numbers_instead_of_a_size(self):
        sandbox = self.client.create(vcpus=2, memory_mb=512, disk_gb=5)["id"]
        self.assertEqual(self.client.exec(sandbox, "nproc")["stdout"], "2\n")
        self.client.destroy(sandbox)


class Expiry(SystemTest):
    waits = True
    config = "[limits]\nmax_lifetime = 60\ndefault_timeout = 15\n"

    def test_gone_within_two_seconds_of_the_due_second(self):
        record = self.client.create(timeout_minutes=1)
        sandbox = record["id"]
        self.assertFalse(self.daemon.is_gone(sandbox))
        wait_for(lambda: time.time() >= due(record), 90, "the due second")
        wait_for(lambda: self.daemon.is_gone(sandbox), 2.2, "domain, disk and socket are gone")
        after = self.client.get(sandbox)
        self.assertEqual((after["status"], after["reason"]), ("deleted", "expired"))
        answer = self.client.call("POST", f"/v1/sandboxes/{sandbox}/exec", {"command": "true"})
        self.assertEqual((answer.status, answer.error[0]), (409, "sandbox_ended"))

    def test_extend_moves_the_expiry_but_not_beyond_the_limit(self):
        record = self.client.create(timeout_minutes=10)
        answer = self.client.call("POST", f"/v1/sandboxes/{record['id']}/extend", {"minutes": 5})
        self.assertEqual(answer.status, 200, answer)
        self.assertAlmostEqual(due(answer.json), due(record) + 300, delta=1)
        answer = self.client.call("POST", f"/v1/sandboxes/{record['id']}/extend", {"minutes": 50})
        self.assertEqual(answer.status, 400, answer)
        self.assertIn("60", answer.error[1])
        self.client.destroy(record["id"])


class DeadMan(unittest.TestCase):
    """paddockd stopped for good: the guest ends by itself."""
    waits = True

    def test_guests_power_off_by_themselves(self):
        daemon = Daemon().start()
        self.addCleanup(daemon.close)
        client = daemon.client()
        short = client.create(timeout_minutes=1)
        longer = client.create(timeout_minutes=1)
        answer = client.call("POST", f"/v1/sandboxes/{longer['id']}/extend", {"minutes": 1})
        self.assertEqual(answer.status, 200, answer)
        daemon.kill()
        wait_for(lambda: daemon.qemu_pid(short["id"]) is None, due(short) + 60 - time.time(),
                 "the guest is off within 60 s of its expiry", pause=0.5)
        self.assertIsNotNone(daemon.qemu_pid(longer["id"]), "the extended guest lives on")
        self.assertLess(time.time(), due(answer.json), "the extended one can still be told apart")
        wait_for(lambda: daemon.qemu_pid(longer["id"]) is None, due(answer.json) + 60 - time.time(),
                 "the guest is off within 60 s of the new expiry", pause=0.5)


class Crash(unittest.TestCase):
    waits = True

    def test_kill_nine_loses_nothing(self):
        daemon = Daemon().start()
        self.addCleanup(daemon.close)
        client = daemon.client()
        stay = [client.create(name=f"stay-{i}")["id"] for i in range(2)]
        for i, sandbox in enumerate(stay):
            client.shell(sandbox, f"echo {i} >/workspace/mark")
        leave = client.create(name="leave", timeout_minutes=1)
        daemon.kill()
        wait_for(lambda: time.time() > due(leave), 90, "one expires meanwhile", pause=0.2)
        for sandbox in stay + [leave["id"]]:
            self.assertTrue(daemon.leftovers(sandbox))
        daemon.start_again()
        client.port = daemon.port
        for i, sandbox in enumerate(stay):
            self.assertEqual(client.shell(sandbox, "cat /workspace/mark")["stdout"], f"{i}\n")
        wait_for(lambda: client.get(leave["id"])["status"] == "deleted", 20, "the expired one ends")
        self.assertEqual(client.get(leave["id"])["reason"], "expired")
        self.assertTrue(daemon.is_gone(leave["id"]), daemon.leftovers(leave["id"]))
        self.assertEqual(len(daemon.qemu_pids()), 2)
        for sandbox in stay:
            client.destroy(sandbox)
            self.assertTrue(daemon.is_gone(sandbox), daemon.leftovers(sandbox))

    def test_a_second_daemon_on_the_same_state_is_refused(self):
        daemon = Daemon().start()
        self.addCleanup(daemon.close)
        second = subprocess.run([daemon.build / "controlplane/daemon/paddockd", "--config",
                                 daemon.config_path], capture_output=True, text=True, timeout=30)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn("another paddockd", second.stderr)
        self.assertEqual(daemon.client().call("GET", "/v1/sandboxes").status, 200)


class Quota(SystemTest):
    is_heavy = True
    config = "[limits]\nsandboxes = 20\n"

    def create_many(self, client, count):
        body = {"size": "tiny", "image": "minimal"}
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            answers = list(pool.map(lambda _: client.call("POST", "/v1/sandboxes", body, timeout=300),
                                    range(count)))
        return answers

    def test_twenty_at_once_all_succeed(self):
        answers = self.create_many(self.client, 20)
        self.assertEqual([a.status for a in answers], [201] * 20,
                         [a for a in answers if a.status != 201][:2])
        ids = [a.json["id"] for a in answers]
        self.assertEqual(len(set(ids)), 20)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            outs = list(pool.map(lambda i: self.client.exec(i, "hostname")["exit_code"], ids))
            self.assertEqual(outs, [0] * 20)
            list(pool.map(self.client.destroy, ids))
        for sandbox in ids:
            self.assertTrue(self.daemon.is_gone(sandbox), self.daemon.leftovers(sandbox))


class SmallQuota(Quota):
    config = "[limits]\nsandboxes = 5\n"
    test_twenty_at_once_all_succeed = None

    def test_exactly_five_of_twenty_succeed(self):
        answers = self.create_many(self.client, 20)
        made = [a.json["id"] for a in answers if a.status == 201]
        refused = [a for a in answers if a.status != 201]
        self.assertEqual((len(made), len(refused)), (5, 15))
        for answer in refused:
            self.assertEqual(answer.status, 429, answer)
            self.assertEqual(answer.error[0], "quota_exceeded")
            self.assertIn("5", answer.error[1])
            self.assertIn("sandboxes", answer.error[1])
            self.assertIn("Retry-After", answer.headers)
        self.client.destroy(made.pop())
        made.append(self.client.create()["id"])
        for sandbox in made:
            self.client.destroy(sandbox)


class Hangs(SystemTest):
    """QEMU stopped by SIGSTOP: its agent is silent, and libvirt's calls about it don't come back."""
    is_heavy = True

    def test_a_stuck_sandbox_blocks_nobody_and_can_be_destroyed(self):
        stuck = self.client.create()["id"]
        other = self.client.create()["id"]
        pid = self.daemon.qemu_pid(stuck)
        os.kill(pid, signal.SIGSTOP)
        try:
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                hanging = pool.submit(self.client.call, "POST", f"/v1/sandboxes/{stuck}/exec",
                                      {"command": "true", "timeout_ms": 2000})
                extending = pool.submit(self.client.call, "POST", f"/v1/sandboxes/{stuck}/extend",
                                        {"minutes": 1})
                started = time.monotonic()
                self.assertEqual(self.client.exec(other, "echo", "fine")["stdout"], "fine\n")
                third = self.client.create()["id"]
                self.client.destroy(third)
                self.assertLess(time.monotonic() - started, 30)
                slowest = 0
                for _ in range(50):
                    start = time.monotonic()
                    self.client.get(stuck)
                    slowest = max(slowest, time.monotonic() - start)
                self.assertLess(slowest, 1)
                answer = extending.result()
                self.assertEqual((answer.status, answer.error[0]), (504, "timeout"), answer)
                answer = hanging.result()
                self.assertGreaterEqual(answer.status, 500, answer)
            started = time.monotonic()
            record = self.client.destroy(stuck)
            self.assertEqual(record["status"], "deleted")
            self.assertLess(time.monotonic() - started, 45)
        finally:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        self.assertTrue(self.daemon.is_gone(stuck), self.daemon.leftovers(stuck))
        self.assertEqual(self.client.exec(other, "true")["exit_code"], 0)
        self.client.destroy(other)

    def test_qemu_killed_from_outside_is_noticed(self):
        sandbox = self.client.create()["id"]
        os.kill(self.daemon.qemu_pid(sandbox), signal.SIGKILL)
        wait_for(lambda: self.client.get(sandbox)["status"] == "deleted", 15, "the sandbox is ended")
        self.assertNotEqual(self.client.get(sandbox)["reason"], "deleted")
        self.assertTrue(self.daemon.is_gone(sandbox), self.daemon.leftovers(sandbox))

    def test_a_guest_that_powers_off_is_gone(self):
        sandbox = self.client.create()["id"]
        os.kill(self.daemon.qemu_pid(sandbox), signal.SIGTERM)
        wait_for(lambda: self.client.get(sandbox)["status"] == "deleted", 15, "the sandbox is ended")


class Accounts(SystemTest):
    def test_another_accounts_sandbox_does_not_exist(self):
        mine = self.client.create(name="mine")["id"]
        other = self.daemon.client("other")
        operations = (("GET", "", None, None), ("DELETE", "", None, None),
                      ("POST", "/extend", {"minutes": 1}, None),
                      ("POST", "/exec", {"command": "true"}, None),
                      ("GET", "/files?path=/etc/hostname", None, None),
                      ("GET", "/files?path=/etc&list=true", None, None),
                      ("PUT", "/files?path=/workspace/x", None, b"x"),
                      ("PUT", "/files", {"path": "/workspace/x", "content": "x"}, None))
        for method, path, body, raw in operations:
            for name in (mine, "mine"):
                answer = other.call(method, f"/v1/sandboxes/{name}{path}", body, raw)
                self.assertEqual((answer.status, answer.error[0]), (404, "not_found"), f"{method} {path}")
                self.assertNotIn("account", answer.error[1])
        self.assertEqual(other.call("GET", "/v1/sandboxes").json["data"], [])
        self.assertEqual(self.client.get("mine")["status"], "running")
        theirs = other.create(name="mine")["id"]
        self.assertNotEqual(theirs, mine)
        other.destroy(theirs)
        self.client.destroy(mine)

    def test_a_revoked_key_stops_at_once(self):
        client = self.daemon.client()
        self.assertEqual(client.call("GET", "/v1/sandboxes").status, 200)
        keys = self.daemon.admin().call("GET", "/v1/admin/keys").json["data"]
        mine = [k for k in keys if k["hint"] and client.key.endswith(k["hint"])]
        self.assertEqual(len(mine), 1, keys)
        answer = self.daemon.admin().call("DELETE", f"/v1/admin/keys/{mine[0]['id']}")
        self.assertEqual(answer.status, 200, answer)
        answer = client.call("GET", "/v1/sandboxes")
        self.assertEqual((answer.status, answer.error[0]), (401, "unauthenticated"))

    def test_keys_are_stored_as_hashes_only(self):
        client = self.daemon.client()
        for path in self.daemon.state.rglob("paddock.db*"):
            self.assertNotIn(client.key.encode(), path.read_bytes())
            self.assertEqual(path.stat().st_mode & 0o077, 0)

    def test_admin_routes_are_not_on_the_network(self):
        for path in ("/v1/admin/keys", "/v1/admin/accounts", "/v1/admin/doctor"):
            self.assertEqual(self.client.call("GET", path).status, 404)

    def test_without_a_key_only_the_open_routes_answer(self):
        anonymous = Client(self.daemon.port)
        self.assertEqual(anonymous.call("GET", "/v1/sandboxes").status, 401)
        service = anonymous.call("GET", "/v1/service")
        self.assertEqual(service.status, 200)
        self.assertIn("minimal", str(service.json["images"]))
        for path in ("/healthz", "/readyz", "/openapi.json"):
            self.assertEqual(anonymous.call("GET", path).status, 200)


if __name__ == "__main__":
    unittest.main()
