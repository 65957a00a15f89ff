"""The hypervisor layer alone, on real libvirt and QEMU (test-hv-*.c)."""
import os
import subprocess
import unittest

import paddock


class HypervisorLayer(unittest.TestCase):
    def run_program(self, name):
        program = os.path.join(paddock.HOOKS_BUILD, "tests/system", name)
        environment = dict(os.environ, PADDOCK_TEST_IMAGE=str(paddock.IMAGES / "minimal/current"))
        done = subprocess.run([program], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_hypervisor_layer_on_real_qemu(self):
        self.run_program("test-hv-libvirt")

    def test_what_qemu_reaches_of_the_host(self):
        self.run_program("test-hv-isolation")

    def test_domains_of_a_daemon_that_died(self):
        self.run_program("test-hv-reattach")


if __name__ == "__main__":
    unittest.main()
