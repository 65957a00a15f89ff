"""Commands that do their worst to the guest: the agent goes on answering, and time-outs still end them.

Each abuse is started as a command with a time-out of its own. While it goes on, /bin/true must still be run; once it is over,
nothing of it is left and commands work as before.
"""
import concurrent.futures
import contextlib
import time
import unittest

from paddock import LONG, SystemTest, wait_for

# For /bin/true while the guest is being abused. Emulated, and on a host that has other things to do.
WHILE_S = 10
AFTER_S = 5

BOMB = ":(){ :|:& };:; sleep 1000"
FORKS = """
import os
while True:
    try: os.fork()
    except OSError: pass
"""
SESSIONS = """
import os
while True:
    try:
        if os.fork() == 0: os.setsid()
    except OSError: pass
"""
EATER = """
import os, time
for _ in range(50):
    try:
        if os.fork() == 0: break
    except OSError: pass
kept = []
while True:
    try: kept.append(bytearray(1 << 20))
    except MemoryError: time.sleep(0.1)
"""
OPENER = """
import os, time
for _ in range(20):
    if os.fork() == 0: break
while True:
    try: os.dup(0) if os.getpid() % 2 else os.pipe()
    except OSError: time.sleep(0.1)
"""
ZOMBIES = """
import os, time
while True:
    try:
        if os.fork() == 0: os._exit(0)
    except OSError: time.sleep(0.1)
"""
# Each is left by a parent that ends at once.
ORPHANS = f"i=0; while [ $i -lt {10000 if LONG else 2000} ]; do (: &); i=$((i+1)); done"


class Containment(SystemTest):
    is_heavy = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.sandbox = cls.client.create(name="contained")["id"]

    def shell(self, command, **body):
        return self.client.shell(self.sandbox, command, **body)

    def true_within(self, seconds):
        started = time.monotonic()
        result = self.client.exec(self.sandbox, "/bin/true", timeout_ms=60000)
        took = time.monotonic() - started
        self.assertEqual(result["exit_code"], 0, result)
        self.assertLess(took, seconds)
        return took

    @contextlib.contextmanager
    def abuse(self, **body):
        """Runs a command beside the test, which must then wait for the result."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            body.setdefault("timeout_ms", 8000)
            yield pool.submit(self.client.exec, self.sandbox, **body)

    def others(self):
        """How many processes of the user there are but the one that counts."""
        script = ("import os\nn=0\nfor p in os.listdir('/proc'):\n try:\n"
                  "  n += p.isdigit() and int(p) != os.getpid() and os.stat('/proc/'+p).st_uid == 1000\n"
                  " except OSError: pass\nprint(n)\n")
        return int(self.client.exec(self.sandbox, "python3", "-c", script)["stdout"])

    def survives(self, settle=3, looks=3, **body):
        """The agent runs commands while that one goes on, and its time-out ends all of it."""
        with self.abuse(**body) as running:
            time.sleep(settle)  # long enough for it to have taken all that it can
            took = [self.true_within(WHILE_S) for _ in range(looks)]
            result = running.result()
        print("   while:", " ".join(f"{t:.2f}" for t in took), "s", flush=True)
        self.assertTrue(result["timed_out"], result)
        print(f"   after: {self.true_within(AFTER_S):.2f} s; took {result['duration_ms']} ms", flush=True)
        self.assertEqual(self.others(), 0)
        return result

    def test_a_fork_bomb(self):
        self.survives(command=BOMB)

    def test_a_bomb_of_python(self):
        self.survives(args=["python3", "-c", FORKS])

    def test_a_bomb_whose_processes_lead_sessions(self):
        self.survives(args=["python3", "-c", SESSIONS])

    def test_many_processes_that_take_all_memory(self):
        self.survives(args=["python3", "-c", EATER])

    def test_an_allocation_of_8_gib(self):
        at_once = self.client.exec(self.sandbox, "python3", "-c", "bytearray(8 << 30)")
        self.assertEqual(at_once["exit_code"], 1, at_once)
        self.assertIn("MemoryError", at_once["stderr"])
        in_pieces = self.client.exec(self.sandbox, "python3", "-c",
                                     "kept = [bytearray(1 << 20) for _ in range(8 << 10)]", timeout_ms=60000)
        self.assertEqual((in_pieces["exit_code"], in_pieces["signal"]), (137, 9), in_pieces)
        self.true_within(AFTER_S)

    def test_every_descriptor_there_is(self):
        self.survives(args=["python3", "-c", OPENER])

    def test_zombies_without_end(self):
        self.survives(args=["python3", "-c", ZOMBIES])

    def test_thousands_of_orphans(self):
        with self.abuse(args=["sh", "-c", ORPHANS], timeout_ms=150000) as running:
            took = []
            while not running.done():
                took.append(self.true_within(WHILE_S))
            self.assertEqual(running.result()["exit_code"], 0, running.result())
        print(f"   while: {max(took):.2f} s at most", flush=True)
        self.true_within(AFTER_S)
        wait_for(lambda: self.others() == 0, 10, "all are reaped", pause=0.5)

    def test_full_file_systems(self):
        places = "/tmp", "/dev/shm", "/run/lock"
        self.addCleanup(self.shell, "rm -f " + " ".join(f"{place}/full" for place in places))
        for place in places:
            full = self.shell(f"cat /dev/zero >{place}/full", timeout_ms=120000)
            self.assertIn("No space left", full["stderr"], place)
            self.true_within(AFTER_S)
        put = ("PUT", f"/v1/sandboxes/{self.sandbox}/files?path=/workspace/x")
        self.assertEqual(self.client.call(*put, raw=b"x" * 100000).json["error"]["code"], "no_space")
        longer = self.client.call("POST", f"/v1/sandboxes/{self.sandbox}/extend", {"minutes": 1})
        self.assertEqual(longer.status, 200, longer)
        self.shell("rm /tmp/full")
        self.assertEqual(self.client.call(*put, raw=b"x" * 100000).status, 200)

    def test_kill_9_to_everything_reaches_only_the_users_own(self):
        with self.abuse(command="sleep 1000") as running, self.abuse(command="sleep 1000") as other:
            wait_for(lambda: self.others() >= 2, 10, "the others run", pause=0.1)
            self.shell("kill -9 -1")
            for one in running, other:
                self.assertEqual(one.result()["signal"], 9, one.result())
        self.true_within(AFTER_S)

    def test_kill_9_to_everything_ends_a_bomb_that_was_left_behind(self):
        self.shell(":(){ :|:& };:")
        time.sleep(2)
        self.true_within(WHILE_S)
        self.shell("kill -9 -1", timeout_ms=60000)
        wait_for(lambda: self.others() == 0, 30, "the bomb is over", pause=0.5)

    def test_two_bombs_at_once(self):
        with self.abuse(command=BOMB) as one, self.abuse(args=["python3", "-c", SESSIONS]) as two:
            time.sleep(4)
            self.true_within(WHILE_S)
            for bomb in one, two:
                self.assertTrue(bomb.result()["timed_out"])
        self.true_within(AFTER_S)
        self.assertEqual(self.others(), 0)

    def test_tricks_to_outlive_a_time_out(self):
        result = self.shell("trap '' TERM INT HUP; (trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000') & "
                            "sleep 1000; sleep 1000", timeout_ms=1000)
        self.assertTrue(result["timed_out"])
        self.assertEqual(self.others(), 0)


if __name__ == "__main__":
    unittest.main()
