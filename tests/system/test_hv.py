"""The hypervisor layer alone, on real libvirt and QEMU (test-hv-libvirt.c)."""
import os
import subprocess
import unittest

import paddock


class HypervisorLayer(unittest.TestCase):
    def test_hypervisor_layer_on_real_qemu(self):
        program = os.path.join(paddock.HOOKS_BUILD, "tests/system/test-hv-libvirt")
        environment = dict(os.environ, PADDOCK_TEST_IMAGE=str(paddock.IMAGES / "minimal/current"))
        done = subprocess.run([program], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
