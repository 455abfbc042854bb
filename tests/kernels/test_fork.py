"""A process forks while its kernels run: each child has helpers of its own and waits for no thread of its parent."""

from __future__ import annotations

import os
import subprocess
import sys

from small_kernels import COUNT

RUN = """
import os, signal, sys, threading, time
import numpy as np
from mgraph.device import Device
from mgraph.kernels import load

CHILDREN, LIMIT, N, HELPERS = 40, 20, 20_000, 2
sys.setswitchinterval(0.0005)  # seconds; the threads at work leave the interpreter to what forks
kernel = load(Device("cpu", threads=3), sys.argv[1]).Count


def run():
    out = np.zeros(N, np.int64)
    kernel(N, n=N, out=out)
    return bool((out == np.arange(N)).all())


def child(generations):
    right = run() and len(os.listdir("/proc/self/task")) == 1 + HELPERS
    if right and generations > 1:
        pid = os.fork()
        if pid == 0:
            child(generations - 1)
        right = wait(pid)
    os._exit(not right)


def wait(pid):
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        if (found := os.waitpid(pid, os.WNOHANG))[0]:
            return found[1] == 0
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    print("a child hung", flush=True)
    return False


def work():
    while not stop.is_set():
        results.append(run())


stop, results = threading.Event(), []
teams = [threading.Thread(target=work) for _ in range(2)]  # the second finds the helpers busy
for team in teams:
    team.start()
done = 0
for i in range(CHILDREN):
    pid = os.fork()
    if pid == 0:
        child(1 + i % 2)
    if not wait(pid):
        break
    done += 1
stop.set()
for team in teams:
    team.join()
print(done, "children of", CHILDREN, "and", all(results))
"""


def test_children_forked_beside_running_kernels_end(write):
    environment = {**os.environ, "MGRAPH_HOST_BUILD": "plain", "LD_PRELOAD": ""}
    command = [sys.executable, "-c", RUN, write(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert done.stdout == "40 children of 40 and True\n", done.stderr
