// SPDX-License-Identifier: MIT

// Go's lock libraries at the work of ../README.md: `peer list`, `peer run ...`.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// A contestant is one library with its settings.
type contestant struct {
	name, works, what, server string
	open                      func(addrs []string) (client, error)
}

// A client belongs to one worker: own connection, own identity.
type client interface {
	// lock acquires the lock and returns the function that releases it.
	lock(name string) (release func() error, err error)
	close() error
}

// A gate is a latch of count 1.
type gate interface {
	set(name string) error
	await(name string) error
	open(name string) error
}

var contestants = []contestant{
	{"rueidislock", "pairs contend", "rueidislock 1.0.79, Go, a client a worker; KeyMajority 1 and " +
		"NoLoopTracking as its README wants for one new Redis, validity 10 s, TryNextAfter 5 s; " +
		"waits for the server's invalidation of the key, anew after 1 s, since its wake-ups may be lost", "redis",
		one(openRueidislock)},
	{"redsync", "pairs contend quorum", "redsync 4.18.1 on go-redis 9.23, Go, a client a worker; expiry 10 s, " +
		"retry delay 5 ms: between many requests and long waits (10 ms does more, and waits longer)", "redis",
		openRedsync(5 * time.Millisecond)},
	{"redsync-default", "contend quorum", "redsync 4.18.1 on go-redis 9.23, Go, a client a worker; expiry 10 s, " +
		"its own retry delay of 50 to 250 ms", "redis", openRedsync(0)},
	{"redislock", "pairs contend", "bsm/redislock 0.9.4 on go-redis 9.23, Go, a client a worker; TTL 10 s, " +
		"LinearBackoff(5 ms), for the same reason as redsync", "redis",
		one(openRedislock(func() retry { return linear(5 * time.Millisecond) }))},
	{"redislock-default", "contend", "bsm/redislock 0.9.4 on go-redis 9.23, Go, a client a worker; TTL 10 s, " +
		"ExponentialBackoff(16 ms, 250 ms): its documentation recommends 16 ms or more", "redis",
		one(openRedislock(func() retry { return exponential(16*time.Millisecond, 250*time.Millisecond) }))},
	{"redislock-cluster", "cluster", "bsm/redislock 0.9.4 on go-redis 9.23's ClusterClient, Go, a client a " +
		"worker in one process; TTL 10 s, ExponentialBackoff(16 ms, 250 ms); the worker renews the long hold " +
		"by Refresh(), every third of the TTL", "redis", nil},
	{reloading, "cluster", "the same with ClusterStateReloadInterval 1 s (default 60 s)", "redis", nil},
	{"etcd", "pairs contend latch", "etcd's own Go client 3.5.35 (concurrency.Mutex, recipe.Barrier), a client " +
		"and a session (10 s, kept alive) a worker; one etcd server, data on disk: each step is synced", "etcd",
		one(openEtcd)},
}

// reloading asks for the slots of the Cluster often.
const reloading = "redislock-reloading"

// one is for libraries of a single server.
func one(open func(addr string) (client, error)) func([]string) (client, error) {
	return func(addrs []string) (client, error) { return open(addrs[0]) }
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "go:", err)
	os.Exit(1)
}

func find(name string) contestant {
	for _, c := range contestants {
		if c.name == name {
			return c
		}
	}
	fail(fmt.Errorf("no contestant %q", name))
	return contestant{}
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "list" {
		for _, c := range contestants {
			fmt.Printf("%s\t%s\t%s\t%s\n", c.name, c.works, c.what, c.server)
		}
		return
	}
	if len(os.Args) != 9 || os.Args[1] != "run" {
		fail(fmt.Errorf("usage: list | run CONTESTANT WORK HOST PORT NAME WORKERS SECONDS"))
	}
	c := find(os.Args[2])
	workers, err := strconv.Atoi(os.Args[7])
	if err != nil || workers < 1 {
		fail(fmt.Errorf("bad number of workers %q", os.Args[7]))
	}
	seconds, err := strconv.ParseFloat(os.Args[8], 64)
	if err != nil || seconds <= 0 {
		fail(fmt.Errorf("bad number of seconds %q", os.Args[8]))
	}
	if !strings.Contains(" "+c.works+" ", " "+os.Args[3]+" ") {
		fail(fmt.Errorf("%s does not have %q", c.name, os.Args[3]))
	}
	var addrs []string
	for _, port := range strings.Split(os.Args[5], ",") {
		addrs = append(addrs, os.Args[4]+":"+port)
	}
	if os.Args[3] == "cluster" {
		failover(c.name == reloading, addrs, os.Args[6], workers, seconds)
	}
	run(&job{
		open:    func() (client, error) { return c.open(addrs) },
		work:    os.Args[3],
		name:    os.Args[6],
		workers: workers,
		length:  time.Duration(seconds * float64(time.Second)),
		in:      bufio.NewReader(os.Stdin),
	})
}
