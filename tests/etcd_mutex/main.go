// SPDX-License-Identifier: MIT

// Locks of etcd's own client, concurrency.Mutex, for tests and for the bench:
//
//	mutex ENDPOINT hold PREFIX TTL            prints its key when it holds it; SIGTERM ends that
//	mutex ENDPOINT try PREFIX TTL             prints "held" or "busy"
//	mutex ENDPOINT crowd PREFIX TTL N ROUNDS  that many clients, and turns of each: see crowd
//	mutex ENDPOINT turns PREFIX TTL N         a turn for each line of its input: see turns
//
// Each client has a connection and a session of its own.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutex:", err)
		os.Exit(1)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

// A client with a session and the mutex of that prefix.
type member struct {
	client  *clientv3.Client
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func open(endpoint, prefix string, ttl int) *member {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 60 * time.Second})
	check(err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	check(err)
	return &member{client, session, concurrency.NewMutex(session, prefix)}
}

func (m *member) close() {
	check(m.session.Close())
	check(m.client.Close())
}

func hold(m *member) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := m.mutex.Lock(ctx)
	if err == nil {
		fmt.Println(m.mutex.Key())
		select {
		case <-ctx.Done():
			check(m.mutex.Unlock(context.Background()))
		case <-m.session.Done():
			check(errors.New("the session has ended"))
		}
	}
	m.close()
}

func try(m *member) {
	err := m.mutex.TryLock(context.Background())
	if errors.Is(err, concurrency.ErrLocked) {
		fmt.Println("busy")
	} else {
		check(err)
		fmt.Println("held")
	}
	m.close()
}

// crowd creates and removes the folder CROWD_FOLDER in each turn; an error is an overlap.
func crowd(members []*member, rounds int) {
	folder := os.Getenv("CROWD_FOLDER")
	var all sync.WaitGroup
	for _, m := range members {
		all.Go(func() {
			for range rounds {
				check(m.mutex.Lock(context.Background()))
				check(os.Mkdir(folder, 0o700))
				check(os.Remove(folder))
				check(m.mutex.Unlock(context.Background()))
			}
			m.close()
		})
	}
	all.Wait()
}

type tally struct {
	ops, waits, sum, longest int64
}

// The first wait is left out, during which the queue still forms.
func (m *member) turn(until time.Time) (t tally) {
	for before := time.Now(); before.Before(until); before = time.Now() {
		check(m.mutex.Lock(context.Background()))
		wait := time.Since(before).Nanoseconds()
		check(m.mutex.Unlock(context.Background()))
		if t.ops++; t.ops > 1 {
			t.waits++
			t.sum += wait
			t.longest = max(t.longest, wait)
		}
	}
	return
}

// turns reads milliseconds, works for so long, and prints: acquisitions, waits, their sum and the
// longest in nanoseconds, and the fewest acquisitions of a client.
func turns(members []*member) {
	input := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	for input.Scan() {
		until := time.Now().Add(time.Duration(number(input.Text())) * time.Millisecond)
		tallies := make([]tally, len(members))
		var all sync.WaitGroup
		for i, m := range members {
			all.Go(func() { tallies[i] = m.turn(until) })
		}
		all.Wait()
		sum, fewest := tally{}, tallies[0].ops
		for _, t := range tallies {
			sum.ops += t.ops
			sum.waits += t.waits
			sum.sum += t.sum
			sum.longest = max(sum.longest, t.longest)
			fewest = min(fewest, t.ops)
		}
		fmt.Println(sum.ops, sum.waits, sum.sum, sum.longest, fewest)
	}
	for _, m := range members {
		m.close()
	}
}

func main() {
	args := os.Args
	if len(args) < 5 {
		check(errors.New("see main.go"))
	}
	count := 1
	if len(args) > 5 {
		count = number(args[5])
	}
	members := make([]*member, count)
	for i := range members {
		members[i] = open(args[1], args[3], number(args[4]))
	}
	switch args[2] {
	case "hold":
		hold(members[0])
	case "try":
		try(members[0])
	case "crowd":
		crowd(members, number(args[6]))
	case "turns":
		turns(members)
	default:
		check(errors.New(args[2] + ": unknown"))
	}
}
