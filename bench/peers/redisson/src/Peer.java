// SPDX-License-Identifier: MIT
// One run of a Redisson contestant: a thread a worker in one JVM.  Contract: ../../README.md.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RedissonClient;

public final class Peer {
	private static final Logger NETTY = Logger.getLogger("io.netty.util");
	private static final long HOLD_MS = 1;
	private static final long BEFORE_COUNT_DOWN_MS = 20;
	/** By then the code of uncontended turns is compiled, also on a busy machine. */
	private static final int ALONE_TURNS = 10_000;
	private static final long ALONE_NS = 10_000_000_000L;
	private static final long WARM_UP_NS = 3_000_000_000L;

	/** Of one worker: asked, granted, released, and so on. */
	private static final class Times {
		private long[] times = new long[3 << 10];
		private int count;

		void add(long asked, long granted, long released) {
			if (count == times.length)
				times = Arrays.copyOf(times, 2 * count);
			times[count] = asked;
			times[count + 1] = granted;
			times[count + 2] = released;
			count += 3;
		}

		void print(int worker, StringBuilder text) {
			for (int i = 0; i < count; i += 3)
				text.append(String.format("%d %d %d %d%n", worker, times[i], times[i + 1],
						times[i + 2]));
		}
	}

	private final String work;
	private final String name;
	private final int workers;
	private final long lengthNs;
	private final Clients clients;
	private final RedissonClient[][] client;
	private final List<Times> times = new ArrayList<>();
	private final ExecutorService threads;
	private final AtomicInteger alone = new AtomicInteger();
	private final BufferedReader driver = new BufferedReader(new InputStreamReader(System.in));

	private Peer(String[] args) {
		work = args[1];
		name = args[4];
		workers = Integer.parseInt(args[5]);
		lengthNs = (long) (Double.parseDouble(args[6]) * 1e9);
		clients = new Clients(args[0], args[2], args[3], workers);
		threads = Executors.newFixedThreadPool(workers);
		client = new RedissonClient[workers][];
		for (int i = 0; i < workers; i++) {
			client[i] = clients.next();
			times.add(new Times());
		}
	}

	private interface Body {
		void run() throws Exception;
	}

	/** On a thread of the workers; an error there ends the run, for others may wait. */
	private Future<?> submit(Body body) {
		return threads.submit(() -> {
			try {
				body.run();
			} catch (Throwable thrown) {
				fail(thrown);
			}
		});
	}

	private static void fail(Throwable thrown) {
		thrown.printStackTrace();
		Runtime.getRuntime().halt(1);
	}

	private static void join(List<Future<?>> running) throws Exception {
		for (Future<?> one : running)
			one.get();
	}

	private void stage(String word) throws IOException {
		System.out.println(word);
		System.out.flush();
		driver.readLine();
	}

	private static BooleanSupplier until(long end) {
		return () -> System.nanoTime() < end;
	}

	/** Run the worker's turns on that name; without an array the times are dropped. */
	private void turns(int worker, String of, boolean hold, BooleanSupplier goOn, Times to)
			throws InterruptedException {
		Clients.Turns turns = clients.turns(client[worker], work, of);
		while (goOn.getAsBoolean()) {
			long asked = System.nanoTime();
			turns.acquire();
			long granted = System.nanoTime();
			if (hold)
				Thread.sleep(HOLD_MS);
			long released = System.nanoTime();
			turns.release();
			if (to != null)
				to.add(asked, granted, released);
		}
	}

	/** Alone first, then all on one name: the code of waiting must be warm, too. */
	private void warmUp(int worker, CyclicBarrier all) throws Exception {
		String own = name + "-w" + worker, common = name + "-w";
		if (work.equals("semaphore")) {
			clients.setPermits(client[worker][0], own);
			clients.setPermits(client[worker][0], common);
		}
		BooleanSupplier inTime = until(System.nanoTime() + ALONE_NS);
		turns(worker, own, false,
				() -> alone.incrementAndGet() <= ALONE_TURNS && inTime.getAsBoolean(), null);
		all.await();
		if (!work.equals("pairs"))
			turns(worker, common, true, until(System.nanoTime() + WARM_UP_NS), null);
	}

	private void runTurns() throws Exception {
		CyclicBarrier all = new CyclicBarrier(workers);
		CountDownLatch ready = new CountDownLatch(workers), go = new CountDownLatch(1);
		List<Future<?>> running = new ArrayList<>();
		boolean pairs = work.equals("pairs");
		if (work.equals("semaphore"))
			clients.setPermits(client[0][0], name);
		for (int i = 0; i < workers; i++) {
			int worker = i;
			running.add(submit(() -> {
				warmUp(worker, all);
				ready.countDown();
				go.await();
				turns(worker, pairs ? name + "-" + worker : name, !pairs,
						until(System.nanoTime() + lengthNs), times.get(worker));
			}));
		}
		ready.await();
		stage("ready");
		go.countDown();
		join(running);
		stage("done");
	}

	/** All wait for a new latch, which the counter's client opens. */
	private void round(RedissonClient counter, String of, boolean counts) throws Exception {
		RCountDownLatch latch = counter.getCountDownLatch(of);
		latch.trySetCount(1);
		long[] asked = new long[workers], granted = new long[workers];
		CountDownLatch calling = new CountDownLatch(workers);
		List<Future<?>> waiters = new ArrayList<>();
		for (int i = 0; i < workers; i++) {
			int worker = i;
			waiters.add(submit(() -> {
				RCountDownLatch its = client[worker][0].getCountDownLatch(of);
				asked[worker] = System.nanoTime();
				calling.countDown();
				its.await();
				granted[worker] = System.nanoTime();
			}));
		}
		calling.await();
		Thread.sleep(BEFORE_COUNT_DOWN_MS);
		long released = System.nanoTime();
		latch.countDown();
		join(waiters);
		for (int i = 0; counts && i < workers; i++)
			times.get(i).add(asked[i], granted[i], released);
	}

	private void rounds(RedissonClient counter, String of, long end, boolean counts)
			throws Exception {
		for (int number = 0; System.nanoTime() < end; number++)
			round(counter, of + "-" + number, counts);
	}

	private void runRounds() throws Exception {
		RedissonClient counter = clients.next()[0];
		rounds(counter, name + "-w", System.nanoTime() + WARM_UP_NS, false);
		stage("ready");
		rounds(counter, name, System.nanoTime() + lengthNs, true);
		stage("done");
	}

	private void run() throws Exception {
		switch (work) {
		case "latch" -> runRounds();
		case "pairs", "contend", "semaphore", "quorum" -> runTurns();
		default -> throw new IllegalArgumentException(work);
		}
		StringBuilder text = new StringBuilder();
		for (int i = 0; i < workers; i++)
			times.get(i).print(i, text);
		System.out.print(text);
		System.out.flush();
		Runtime.getRuntime().halt(0);
	}

	public static void main(String[] args) {
		if (args.length != 7) {
			System.err.println("usage: CONTESTANT WORK HOST PORT NAME WORKERS SECONDS");
			System.exit(2);
		}
		try {
			// Netty warns of one timer for each client: here a client represents a process.
			NETTY.setLevel(Level.OFF);
			if (args[1].equals("failover") || args[1].equals("cluster"))
				new Failover(args[0], args[2], args[3], args[4], Integer.parseInt(args[5]),
						Double.parseDouble(args[6])).run();
			new Peer(args).run();
		} catch (Throwable thrown) {
			fail(thrown);
		}
	}
}
