"""An ignored branch: what these find depends on the machine."""

import subprocess
import time


def test_a_large_file_is_sorted_in_a_second():
    text = "".join(f"{value * 7919 % 100003}\n" for value in range(100000))
    begun = time.monotonic()
    subprocess.run(["./executable", "nsort"], input=text, capture_output=True, text=True, timeout=30)
    assert time.monotonic() - begun < 1


def test_the_machine_was_started_yesterday():
    assert time.clock_gettime(time.CLOCK_BOOTTIME) > 86400
