# SPDX-License-Identifier: MIT
"""The work "failover" of redis-py: a process a worker, which goes on whatever its calls raise, until
the driver ends the program.  The contract is in ../README.md.
"""

import ctypes
import multiprocessing
import os
import signal
import sys
import time

HOLD_S = 0.02
RETRY_S = 0.05  # after a call that failed
LONG_HOLD_PART = 0.4  # of the time of the run
LEASE_S = 10
SOCKET_TIMEOUT_S = 1
WARM_UP_PAIRS = 20
PR_SET_PDEATHSIG = 1


def report(worker, word, at=None):
    os.write(1, f"{worker} {word} {at or time.monotonic_ns()}\n".encode())


def acquire(worker, lock, errors):
    """Ask until it is granted."""
    report(worker, "asked")
    while True:
        try:
            if lock.acquire():
                break
        except errors:
            pass
        report(worker, "failed")
        time.sleep(RETRY_S)
    report(worker, "granted")


def release(worker, lock, lost, errors):
    try:
        lock.release()
        report(worker, "released")
    except lost:
        report(worker, "lost")
    except errors:
        report(worker, "unreleased")


def keep(lock, end, lost, errors):
    """Renew until then: its lock does not do so by itself.  False if the lock is lost."""
    valid_until = time.monotonic() + LEASE_S
    while time.monotonic() < end:
        time.sleep(min(LEASE_S / 3, max(0, end - time.monotonic())))
        while time.monotonic() < end:
            asked = time.monotonic()
            if asked > valid_until:
                return False
            try:
                lock.reacquire()
                valid_until = asked + LEASE_S
                break
            except lost:
                return False
            except errors:
                time.sleep(RETRY_S)
    return True


def worker_main(number, workers, pipe, hold, held, host, ports, name, seconds):
    # Imported here, so that `peer list` needs no package.
    import redis
    import redis.sentinel

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    lost = redis.exceptions.LockNotOwnedError
    errors = redis.exceptions.RedisError
    sentinel = redis.sentinel.Sentinel(
        [(host, int(port)) for port in ports.split(",")], socket_timeout=SOCKET_TIMEOUT_S
    )
    client = sentinel.master_for("main", socket_timeout=SOCKET_TIMEOUT_S)
    warm = client.lock(f"{name}-w{number}", timeout=LEASE_S)
    for _ in range(WARM_UP_PAIRS):
        warm.acquire()
        warm.release()
    lock = client.lock(name if number < workers else name + "-long", timeout=LEASE_S)
    pipe.send(None)
    pipe.recv()
    while number < workers:
        acquire(number, lock, errors)
        time.sleep(HOLD_S)
        report(number, "ended")
        release(number, lock, lost, errors)
    (hold if number == workers else held).wait()
    acquire(number, lock, errors)
    if number == workers:
        held.set()
        keep(lock, time.monotonic() + seconds * LONG_HOLD_PART, lost, errors)
    else:
        time.sleep(HOLD_S)
    report(number, "ended")
    release(number, lock, lost, errors)
    signal.pause()


def run(host, ports, name, workers, seconds):
    fork = multiprocessing.get_context("fork")
    hold, held = fork.Event(), fork.Event()
    pipes = []
    for number in range(workers + 2):
        mine, its = fork.Pipe()
        arguments = (number, workers, its, hold, held, host, ports, name, seconds)
        fork.Process(target=worker_main, args=arguments, daemon=True).start()
        its.close()
        pipes.append(mine)
    for pipe in pipes:
        pipe.recv()
    print("ready", flush=True)
    sys.stdin.readline()
    for pipe in pipes:
        pipe.send(None)
    if sys.stdin.readline():
        hold.set()
    signal.pause()
