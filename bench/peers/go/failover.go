// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

const (
	shortHold    = 20 * time.Millisecond
	retryAfter   = 50 * time.Millisecond // a call that failed
	longHoldPart = 0.4                   // of the time of the run
	ttl          = 10 * time.Second
	waitMax      = time.Minute // then the wait goes on by another call
)

// A crew is the workers of the work "cluster", which go on whatever their calls return, until the
// driver ends the program.
type crew struct {
	addrs             []string
	reload            time.Duration // of the state of the Cluster, 0 = the default
	name              string
	workers           int
	keep              time.Duration
	ready             sync.WaitGroup
	start, hold, held chan struct{}
	out               sync.Mutex
}

func (c *crew) report(worker int, word string) {
	c.out.Lock()
	defer c.out.Unlock()
	// One write, so that lines of several workers do not mix.
	if _, err := os.Stdout.WriteString(fmt.Sprintf("%d %s %d\n", worker, word, now())); err != nil {
		os.Exit(1)
	}
}

// acquire asks until it is granted.
func (c *crew) acquire(worker int, locker *redislock.Client, name string) *redislock.Lock {
	c.report(worker, "asked")
	for {
		ctx, cancel := context.WithTimeout(context.Background(), waitMax)
		lock, err := locker.Obtain(ctx, name, ttl, &redislock.Options{
			RetryStrategy: exponential(16*time.Millisecond, 250*time.Millisecond)})
		cancel()
		if err == nil {
			c.report(worker, "granted")
			return lock
		}
		// To be out of time, or of tries, is no error of the call.
		if !errors.Is(err, redislock.ErrNotObtained) && !errors.Is(err, context.DeadlineExceeded) {
			c.report(worker, "failed")
			time.Sleep(retryAfter)
		}
	}
}

func (c *crew) release(worker int, lock *redislock.Lock) {
	c.report(worker, "ended")
	err := lock.Release(context.Background())
	switch {
	case err == nil:
		c.report(worker, "released")
	case errors.Is(err, redislock.ErrLockNotHeld):
		c.report(worker, "lost")
	default:
		c.report(worker, "unreleased")
	}
}

// renew renews the long hold until its end, or until it is lost, or may be.
func (c *crew) renew(lock *redislock.Lock) {
	end := time.Now().Add(c.keep)
	validUntil := time.Now().Add(ttl)
	for time.Now().Before(end) {
		time.Sleep(min(ttl/3, time.Until(end)))
		for time.Now().Before(end) {
			asked := time.Now()
			err := lock.Refresh(context.Background(), ttl, nil)
			if err == nil {
				validUntil = asked.Add(ttl)
				break
			}
			if errors.Is(err, redislock.ErrNotObtained) || time.Now().After(validUntil) {
				return
			}
			time.Sleep(retryAfter)
		}
	}
}

func (c *crew) work(worker int) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.addrs, ClusterStateReloadInterval: c.reload})
	locker := redislock.New(client)
	for range warmups {
		lock, err := locker.Obtain(context.Background(), fmt.Sprintf("%s-w%d", c.name, worker), ttl, nil)
		if err == nil {
			err = lock.Release(context.Background())
		}
		if err != nil {
			fail(err)
		}
	}
	c.ready.Done()
	<-c.start
	for worker < c.workers {
		lock := c.acquire(worker, locker, c.name)
		time.Sleep(shortHold)
		c.release(worker, lock)
	}
	if worker == c.workers {
		<-c.hold
	} else {
		<-c.held
	}
	lock := c.acquire(worker, locker, c.name+"-long")
	if worker == c.workers {
		close(c.held)
		c.renew(lock)
	} else {
		time.Sleep(shortHold)
	}
	c.release(worker, lock)
}

// A silence is a log that keeps nothing: the driver reads the events.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func failover(reloads bool, addrs []string, name string, workers int, seconds float64) {
	c := &crew{addrs: addrs, name: name, workers: workers, keep: time.Duration(seconds * longHoldPart * float64(time.Second)),
		start: make(chan struct{}), hold: make(chan struct{}), held: make(chan struct{})}
	if reloads {
		c.reload = time.Second
	}
	redis.SetLogger(silence{})
	c.ready.Add(workers + 2)
	for w := range workers + 2 {
		go c.work(w)
	}
	c.ready.Wait()
	in := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	_, _ = in.ReadString('\n')
	close(c.start)
	if line, _ := in.ReadString('\n'); line != "" {
		close(c.hold)
	}
	select {}
}
