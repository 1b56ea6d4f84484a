// SPDX-License-Identifier: MIT
// The works "failover" and "cluster" of Redisson: a client and a thread a worker, which goes on whatever its calls
// throw, until the driver ends the program.  Contract: ../../README.md.

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

final class Failover {
	private static final long HOLD_MS = 20;
	/** After a call that failed. */
	private static final long RETRY_MS = 50;
	/** Of the time of the run. */
	private static final double LONG_HOLD_PART = 0.4;
	private static final int WARM_UP_PAIRS = 1000;

	private final FileOutputStream out = new FileOutputStream(FileDescriptor.out);
	private final CountDownLatch go = new CountDownLatch(1);
	private final CountDownLatch hold = new CountDownLatch(1);
	private final CountDownLatch held = new CountDownLatch(1);
	private final CountDownLatch ready;
	private final Clients clients;
	private final String name;
	private final int workers;
	private final long keepMs;

	Failover(String contestant, String host, String ports, String name, int workers,
			double seconds) {
		this.clients = new Clients(contestant, host, ports, workers);
		this.name = name;
		this.workers = workers;
		this.keepMs = (long) (seconds * LONG_HOLD_PART * 1000);
		this.ready = new CountDownLatch(workers + 2);
	}

	/** One write for each line. */
	private synchronized void report(int worker, String word) {
		try {
			String line = worker + " " + word + " " + System.nanoTime() + "\n";
			out.write(line.getBytes(StandardCharsets.US_ASCII));
		} catch (IOException thrown) {
			Runtime.getRuntime().halt(1);
		}
	}

	/** Ask until it is granted. */
	private void acquire(int worker, RLock lock) throws InterruptedException {
		report(worker, "asked");
		while (true) {
			try {
				lock.lock();
				break;
			} catch (RuntimeException thrown) {
				report(worker, "failed");
				Thread.sleep(RETRY_MS);
			}
		}
		report(worker, "granted");
	}

	private void release(int worker, RLock lock) {
		try {
			lock.unlock();
			report(worker, "released");
		} catch (IllegalMonitorStateException thrown) {
			report(worker, "lost");
		} catch (RuntimeException thrown) {
			report(worker, "unreleased");
		}
	}

	private void contend(int worker, RLock lock) throws InterruptedException {
		while (true) {
			acquire(worker, lock);
			Thread.sleep(HOLD_MS);
			report(worker, "ended");
			release(worker, lock);
		}
	}

	private void work(int worker) throws InterruptedException {
		RedissonClient client = clients.next()[0];
		RLock warm = client.getLock(name + "-w" + worker);
		for (int i = 0; i < WARM_UP_PAIRS; i++) {
			warm.lock();
			warm.unlock();
		}
		RLock lock = client.getLock(worker < workers ? name : name + "-long");
		ready.countDown();
		go.await();
		if (worker < workers)
			contend(worker, lock);
		(worker == workers ? hold : held).await();
		acquire(worker, lock);
		if (worker == workers)
			held.countDown();
		Thread.sleep(worker == workers ? keepMs : HOLD_MS);
		report(worker, "ended");
		release(worker, lock);
	}

	void run() throws Exception {
		BufferedReader driver = new BufferedReader(new InputStreamReader(System.in));
		for (int i = 0; i < workers + 2; i++) {
			int worker = i;
			new Thread(() -> {
				try {
					work(worker);
				} catch (Throwable thrown) {
					thrown.printStackTrace();
					Runtime.getRuntime().halt(1);
				}
			}).start();
		}
		ready.await();
		out.write("ready\n".getBytes(StandardCharsets.US_ASCII));
		driver.readLine();
		go.countDown();
		if (driver.readLine() != null)
			hold.countDown();
		Thread.currentThread().join();
	}
}
