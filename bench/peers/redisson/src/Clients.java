// SPDX-License-Identifier: MIT
// The Redisson clients of a run and their settings, and the locks that its workers use.

import io.netty.channel.EventLoopGroup;
import io.netty.channel.epoll.EpollEventLoopGroup;
import java.util.Arrays;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.LockOptions;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.SentinelServersConfig;
import org.redisson.config.TransportMode;

final class Clients {
	/** A lock that one thread acquires and releases in turns. */
	interface Turns {
		void acquire() throws InterruptedException;

		void release();
	}

	static final int LEASE_MS = 10_000;
	static final int PERMITS = 3;
	private static final int LOOPS = Runtime.getRuntime().availableProcessors();
	/** Its thread sends one request at a time, but unlock() returns before its last DEL. */
	private static final int OWN_POOL = 2;

	private final String contestant;
	private final String host;
	/** Of more than one server only for Sentinel, a Cluster, and a quorum. */
	private final String[] ports;
	private final int workers;
	private final EventLoopGroup loops = new EpollEventLoopGroup(LOOPS);
	private final ExecutorService executor = Executors.newCachedThreadPool();
	private final RedissonClient[] shared;

	Clients(String contestant, String host, String ports, int workers) {
		this.contestant = contestant;
		this.host = host;
		this.ports = ports.split(",");
		this.workers = workers;
		this.shared = contestant.equals("redisson-shared") ? create(workers + 1) : null;
	}

	/** The clients of one more worker: one, but of a quorum one for each server. */
	RedissonClient[] next() {
		return shared != null ? shared : create(OWN_POOL);
	}

	private RedissonClient[] create(int connections) {
		if (!isQuorum())
			return new RedissonClient[] {create(ports[0], connections)};
		return Arrays.stream(ports).map(port -> create(port, connections))
				.toArray(RedissonClient[]::new);
	}

	private RedissonClient create(String port, int connections) {
		Config config = new Config();
		config.setTransportMode(TransportMode.EPOLL);
		config.setEventLoopGroup(loops);
		config.setExecutor(executor);
		if (contestant.equals("redisson-sentinel")) {
			useSentinels(config, connections);
			return Redisson.create(config);
		}
		if (contestant.equals("redisson-cluster")) {
			useCluster(config, connections);
			return Redisson.create(config);
		}
		config.setLockWatchdogTimeout(LEASE_MS);
		config.useSingleServer()
				.setAddress("redis://" + host + ":" + port)
				.setDnsMonitoringInterval(-1)
				.setConnectionPoolSize(connections)
				.setConnectionMinimumIdleSize(connections)
				.setSubscriptionConnectionPoolSize(1)
				.setSubscriptionConnectionMinimumIdleSize(1);
		return Redisson.create(config);
	}

	/** With its defaults, except that each of the clients has few connections. */
	private void useSentinels(Config config, int connections) {
		SentinelServersConfig servers = config.useSentinelServers()
				.setMasterName("main")
				.setMasterConnectionPoolSize(connections)
				.setMasterConnectionMinimumIdleSize(connections)
				.setSlaveConnectionPoolSize(connections)
				.setSlaveConnectionMinimumIdleSize(1)
				.setSubscriptionConnectionPoolSize(2)
				.setSubscriptionConnectionMinimumIdleSize(1);
		for (String one : ports)
			servers.addSentinelAddress("redis://" + host + ":" + one);
	}

	/** The same in a Cluster. */
	private void useCluster(Config config, int connections) {
		ClusterServersConfig servers = config.useClusterServers()
				.setMasterConnectionPoolSize(connections)
				.setMasterConnectionMinimumIdleSize(1)
				.setSlaveConnectionPoolSize(connections)
				.setSlaveConnectionMinimumIdleSize(1)
				.setSubscriptionConnectionPoolSize(2)
				.setSubscriptionConnectionMinimumIdleSize(1);
		for (String one : ports)
			servers.addNodeAddress("redis://" + host + ":" + one);
	}

	private boolean isQuorum() {
		return contestant.equals("redisson-redlock") || contestant.equals("redisson-multi");
	}

	Turns turns(RedissonClient[] clients, String work, String name) {
		RedissonClient client = clients[0];
		if (isQuorum())
			return turns(quorum(clients, name), false);
		if (!work.equals("semaphore"))
			return turns(lock(client, name), contestant.equals("redisson-leased"));
		if (contestant.equals("redisson-permit"))
			return turns(client.getPermitExpirableSemaphore(name));
		return turns(client.getSemaphore(name));
	}

	/** Redisson needs the number of permits set first. */
	void setPermits(RedissonClient client, String name) {
		if (contestant.equals("redisson-permit"))
			client.getPermitExpirableSemaphore(name).trySetPermits(PERMITS);
		else
			client.getSemaphore(name).trySetPermits(PERMITS);
	}

	/** Of a majority of the servers, or of all. */
	@SuppressWarnings("deprecation")
	private RLock quorum(RedissonClient[] clients, String name) {
		RLock[] locks = Arrays.stream(clients).map(client -> client.getLock(name))
				.toArray(RLock[]::new);
		if (contestant.equals("redisson-redlock"))
			return new RedissonRedLock(locks);
		return clients[0].getMultiLock(locks);
	}

	private RLock lock(RedissonClient client, String name) {
		switch (contestant) {
		case "redisson-fair":
			return client.getFairLock(name);
		case "redisson-spin":
			return client.getSpinLock(name, spinning());
		case "redisson", "redisson-leased", "redisson-shared":
			return client.getLock(name);
		default:
			throw new IllegalArgumentException(contestant);
		}
	}

	/** The default, which is exponential, lets waiters sleep up to 128 ms. */
	private LockOptions.BackOff spinning() {
		return new LockOptions.ConstantBackOff().delay(Math.max(1, workers / 4));
	}

	/** A lock with a lease of its own is not renewed. */
	private static Turns turns(RLock lock, boolean leased) {
		return new Turns() {
			@Override
			public void acquire() {
				if (leased)
					lock.lock(LEASE_MS, TimeUnit.MILLISECONDS);
				else
					lock.lock();
			}

			@Override
			public void release() {
				lock.unlock();
			}
		};
	}

	private static Turns turns(RSemaphore semaphore) {
		return new Turns() {
			@Override
			public void acquire() throws InterruptedException {
				semaphore.acquire();
			}

			@Override
			public void release() {
				semaphore.release();
			}
		};
	}

	private static Turns turns(RPermitExpirableSemaphore semaphore) {
		return new Turns() {
			private String permit;

			@Override
			public void acquire() throws InterruptedException {
				permit = semaphore.acquire(LEASE_MS, TimeUnit.MILLISECONDS);
			}

			@Override
			public void release() {
				semaphore.release(permit);
			}
		};
	}
}
