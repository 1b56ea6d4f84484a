// SPDX-License-Identifier: MIT
// One run of redlock: a process a worker, for node has one thread.
// The contract is in ../README.md.  The parent starts the workers and sends them the times.

import { fork } from "node:child_process";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const HOLD_MS = 1;
const LEASE_MS = 10000;
const WARM_UP_NS = 1e9;
const START_DELAY_NS = 20e6; // until the last worker has read when to start

const five = "redlock 5.0.0-beta.2 on ioredis 6.0.0, a process a worker: ";
const tuned =
	"retryDelay and retryJitter the best we found: 1 ms for each worker (on a quorum 10 ms)";
const contestants = {
	redlock:
		five +
		"using() of a 10 s lease, retryDelay 200 and retryJitter 100 as they come " +
		"(on a quorum also retryCount 10, and after that called again)",
	"redlock-tuned":
		five +
		`using() of a 10 s lease, ${tuned}; on a quorum retryCount 0, and called again after ` +
		"the same delay: only the last try returns the servers that it has got",
	"redlock-4-tuned":
		"redlock 4.2.0 (npm's \"latest\") on ioredis 6.0.0, a process a worker: " +
		`lock() of a 10 s lease, which nothing renews, ${tuned}`,
};

const now = () => Number(process.hrtime.bigint());

// A function that holds a name while it awaits another, on connections of this process.
async function holder(contestant, host, ports, workers) {
	const { Redis } = await import("ioredis");
	const servers = ports.split(",").map((port) => new Redis({ host, port: Number(port) }));
	for (const redis of servers)
		redis.on("error", (error) => {
			console.error(error.message);
			process.exit(1);
		});
	// -1: no limit of tries, else acquire raises after ten.
	const settings = { retryCount: -1, retryDelay: 200, retryJitter: 100 };
	if (contestant.endsWith("-tuned")) {
		// All of them together ask about once in 1 ms; more often only delays the holder, and on a
		// quorum splits the votes.
		settings.retryDelay = servers.length > 1 ? 10 * workers : workers;
		settings.retryJitter = settings.retryDelay;
	}
	if (contestant === "redlock-4-tuned") {
		const { default: Redlock } = await import("redlock-4");
		const redlock = new Redlock(servers, settings);
		return async (name, hold) => {
			const lock = await redlock.lock(name, LEASE_MS);
			await hold();
			await lock.unlock();
		};
	}
	const { default: Redlock, ExecutionError } = await import("redlock");
	// From try to try it keeps the servers that it has got, until the last try: so with tries
	// without end, a split vote lasts for a lease.
	if (servers.length > 1) settings.retryCount = contestant === "redlock" ? 10 : 0;
	const redlock = new Redlock(servers, settings);
	return async (name, hold) => {
		for (let held = false; !held; ) {
			try {
				await redlock.using([name], LEASE_MS, () => {
					held = true;
					return hold();
				});
			} catch (error) {
				if (held || !(error instanceof ExecutionError)) throw error;
				const jitter = (Math.random() * 2 - 1) * settings.retryJitter;
				await sleep(settings.retryDelay + jitter);
			}
		}
	};
}

async function turn(hold, name, holds, times) {
	times.push(now());
	await hold(name, async () => {
		times.push(now());
		if (holds) await sleep(HOLD_MS);
		times.push(now());
	});
}

function message() {
	return new Promise((resolve) => process.once("message", resolve));
}

// Warm up and report it; work between the two given times and report it; send the figures.
async function worker(number, contestant, work, host, ports, name, workers) {
	process.once("disconnect", () => process.exit(1));
	const hold = await holder(contestant, host, ports, Number(workers));
	for (const end = now() + WARM_UP_NS; now() < end; )
		await turn(hold, `${name}-w${number}`, false, []);
	process.send("ready");
	const { start, end } = await message();
	await sleep(Math.max(0, start - now()) / 1e6);
	const times = [];
	const own = work === "pairs" ? `${name}-${number}` : name;
	while (now() < end) await turn(hold, own, work !== "pairs", times);
	process.send("done");
	await message();
	process.send(times, () => process.exit(0));
}

// The next message of every worker.
function messages(children) {
	return Promise.all(
		children.map((child) => new Promise((resolve) => child.once("message", resolve))),
	);
}

async function run(contestant, work, host, ports, name, workers, seconds) {
	if (!contestants[contestant] || !["pairs", "contend", "quorum"].includes(work))
		throw new Error(`npm: no ${contestant} that does ${work}`);
	const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
	const stage = async (word) => {
		process.stdout.write(word + "\n");
		await lines.next();
	};
	const children = [];
	for (let number = 0; number < Number(workers); number++) {
		const stdio = ["ignore", "ignore", "inherit", "ipc"];
		const args = ["worker", `${number}`, contestant, work, host, ports, name, workers];
		const child = fork(fileURLToPath(import.meta.url), args, {
			serialization: "advanced",
			stdio,
		});
		// It printed the error; the others end with this process.
		child.once("exit", (status) => status === 0 || process.exit(1));
		children.push(child);
	}
	await messages(children);
	await stage("ready");
	const start = now() + START_DELAY_NS;
	const done = messages(children);
	for (const child of children) child.send({ start, end: start + Number(seconds) * 1e9 });
	await done;
	await stage("done");
	const figures = messages(children);
	for (const child of children) child.send("stop");
	for (const [number, times] of (await figures).entries()) {
		let text = "";
		for (let i = 0; i < times.length; i += 3)
			text += `${number} ${times[i]} ${times[i + 1]} ${times[i + 2]}\n`;
		process.stdout.write(text);
	}
	process.stdin.destroy();
}

const [command, ...rest] = process.argv.slice(2);
if (command === "list" && rest.length === 0)
	for (const [contestant, settings] of Object.entries(contestants))
		process.stdout.write(`${contestant}\tpairs contend quorum\t${settings}\n`);
else if (command === "run" && rest.length === 7) await run(...rest);
else if (command === "worker" && process.send) await worker(...rest);
else {
	console.error("usage: work.mjs list | run CONTESTANT WORK HOST PORT NAME WORKERS SECONDS");
	process.exitCode = 2;
}
