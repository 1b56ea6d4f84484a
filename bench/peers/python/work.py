# SPDX-License-Identifier: MIT
"""One run of a Python lock: a process a worker, for threads of Python do not run at once.

The contract is in ../README.md.  The parent starts the workers and passes its driver's words on.
"""

import array
import ctypes
import multiprocessing
import os
import signal
import sys
import time

import failover

HOLD_S = 0.001
LEASE_S = 10
START_DELAY_NS = 20_000_000  # until the last worker has read when to start
WARM_UP_PAIRS = 50
PR_SET_PDEATHSIG = 1

REDIS = "redis 8.1.0 with hiredis, a process a worker: "
SIGNAL = "python-redis-lock 4.0.1 (BLPOP) on redis 8.1.0 with hiredis, a process a worker: "
CONTESTANTS = {
    "redis-py": REDIS + "Lock(timeout=10) as it comes, asks again every 0.1 s",
    "redis-py-tuned": REDIS
    + "Lock(timeout=10, sleep=S), the best S we found: 0.3 ms for each worker, at least 1 ms",
    "python-redis-lock": SIGNAL + "Lock(expire=10), no renewal",
    "python-redis-lock-renewed": SIGNAL + "Lock(expire=10, auto_renewal=True), a thread a hold",
}
FAILOVER = "redis-py-sentinel"
FAILOVER_SETTINGS = (
    REDIS + "Sentinel(...).master_for(...).lock(timeout=10), socket_timeout=1; "
    "the worker renews the long hold by reacquire(), every third of the lease"
)


def lock_maker(contestant, host, port, workers):
    """A function from a name to a lock of this process, on a connection of its own."""
    # Imported here, so that `peer list` needs no package.
    import redis

    if contestant.startswith("redis-py"):
        client = redis.Redis(host, port, single_connection_client=True)
        # All of them together ask once in 0.3 ms; more often only delays the holder.
        sleep = max(0.001, workers * 0.0003) if contestant == "redis-py-tuned" else 0.1
        return lambda name: client.lock(name, timeout=LEASE_S, sleep=sleep)

    import redis_lock

    # No timeout on the socket: its own BLPOP waits for a lease.
    client = redis.Redis(host, port, socket_timeout=None)
    renewal = contestant == "python-redis-lock-renewed"
    return lambda name: redis_lock.Lock(client, name, expire=LEASE_S, auto_renewal=renewal)


def turn(lock, hold):
    asked = time.monotonic_ns()
    if not lock.acquire():
        raise RuntimeError("acquire() without a limit of time gave up")
    granted = time.monotonic_ns()
    if hold:
        time.sleep(HOLD_S)
    released = time.monotonic_ns()
    lock.release()
    return asked, granted, released


def worker(number, pipe, contestant, work, host, port, name, workers):
    """Warm up and report it; work between the two given times and report it; send the figures."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    make = lock_maker(contestant, host, port, workers)
    warm = make(f"{name}-w{number}")
    for _ in range(WARM_UP_PAIRS):
        turn(warm, False)
    lock = make(f"{name}-{number}" if work == "pairs" else name)
    pipe.send(None)
    start, end = pipe.recv()
    time.sleep(max(0, start - time.monotonic_ns()) / 1e9)
    times = array.array("q")
    while time.monotonic_ns() < end:
        times.extend(turn(lock, work == "contend"))
    pipe.send(None)
    pipe.recv()
    pipe.send(times)


def stage(word):
    print(word, flush=True)
    sys.stdin.readline()


def run(contestant, work, host, port, name, workers, seconds):
    if contestant not in CONTESTANTS or work not in ("pairs", "contend"):
        sys.exit(f"python: no {contestant} that does {work}")
    fork = multiprocessing.get_context("fork")
    pipes, children = [], []
    for number in range(workers):
        mine, its = fork.Pipe()
        arguments = (number, its, contestant, work, host, port, name, workers)
        child = fork.Process(target=worker, args=arguments, daemon=True)
        child.start()
        its.close()
        pipes.append(mine)
        children.append(child)
    for pipe in pipes:
        pipe.recv()
    stage("ready")
    start = time.monotonic_ns() + START_DELAY_NS
    for pipe in pipes:
        pipe.send((start, start + int(seconds * 1e9)))
    for pipe in pipes:
        pipe.recv()
    stage("done")
    for number, pipe in enumerate(pipes):
        pipe.send(None)
        times = pipe.recv()
        for i in range(0, len(times), 3):
            print(number, times[i], times[i + 1], times[i + 2])
    for child in children:
        child.join()
    sys.stdout.flush()


def main():
    if sys.argv[1:] == ["list"]:
        for contestant, settings in CONTESTANTS.items():
            print(contestant, "pairs contend", settings, sep="\t")
        print(FAILOVER, "failover", FAILOVER_SETTINGS, sep="\t")
    elif len(sys.argv) == 9 and sys.argv[1] == "run":
        try:
            contestant, work, host, port, name, workers, seconds = sys.argv[2:]
            if (contestant, work) == (FAILOVER, "failover"):
                failover.run(host, port, name, int(workers), float(seconds))
            run(contestant, work, host, int(port), name, int(workers), float(seconds))
        except EOFError:
            # The worker printed the error; the others end with this process.
            sys.stderr.flush()
            os._exit(1)
    else:
        sys.exit("usage: work.py list | run CONTESTANT WORK HOST PORT NAME WORKERS SECONDS")


if __name__ == "__main__":
    main()
