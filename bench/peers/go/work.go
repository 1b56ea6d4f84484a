// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	warmups  = 20
	hold     = time.Millisecond
	latchAge = 20 * time.Millisecond // from the last await to the count-down
)

type job struct {
	open    func() (client, error)
	work    string
	name    string
	workers int
	length  time.Duration
	in      *bufio.Reader
}

// turn is one acquisition, in CLOCK_MONOTONIC's ns.
type turn struct{ asked, granted, released int64 }

func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		fail(err)
	}
	return ts.Nano()
}

// say writes a line and waits for a line of the driver.
func (j *job) say(line string) {
	fmt.Println(line)
	_, _ = j.in.ReadString('\n')
}

// all runs fn for each worker at once; if start is not nil, all wait for it.
func (j *job) all(fn func(worker int)) {
	var done sync.WaitGroup
	for w := range j.workers {
		done.Add(1)
		go func() {
			defer done.Done()
			fn(w)
		}()
	}
	done.Wait()
}

func run(j *job) {
	clients := make([]client, j.workers)
	turns := make([][]turn, j.workers)
	j.all(func(w int) {
		var err error
		if clients[w], err = j.open(); err != nil {
			fail(err)
		}
		for range warmups {
			once(clients[w], fmt.Sprintf("%s-w%d", j.name, w), 0)
		}
		turns[w] = make([]turn, 0, 1<<16)
	})
	if j.work == "latch" {
		j.latch(clients, turns)
	} else {
		j.lock(clients, turns)
	}
	out := bufio.NewWriter(os.Stdout)
	for w := range turns {
		for _, t := range turns[w] {
			fmt.Fprintln(out, w, t.asked, t.granted, t.released)
		}
	}
	if err := out.Flush(); err != nil {
		fail(err)
	}
	j.all(func(w int) {
		if err := clients[w].close(); err != nil {
			fail(err)
		}
	})
}

// once acquires, holds for that long, and releases.
func once(c client, name string, length time.Duration) turn {
	var t turn
	t.asked = now()
	release, err := c.lock(name)
	t.granted = now()
	if err != nil {
		fail(err)
	}
	if length > 0 {
		time.Sleep(length)
	}
	t.released = now()
	if err := release(); err != nil {
		fail(err)
	}
	return t
}

func (j *job) lock(clients []client, turns [][]turn) {
	j.say("ready")
	end := now() + j.length.Nanoseconds()
	j.all(func(w int) {
		name, length := j.name, hold
		if j.work == "pairs" {
			name, length = fmt.Sprintf("%s-%d", j.name, w), 0
		}
		for now() < end {
			turns[w] = append(turns[w], once(clients[w], name, length))
		}
	})
	j.say("done")
}

func (j *job) latch(clients []client, turns [][]turn) {
	opener, err := j.open()
	if err != nil {
		fail(err)
	}
	j.round(clients, turns, opener, -1)
	for w := range turns {
		turns[w] = turns[w][:0]
	}
	j.say("ready")
	end := now() + j.length.Nanoseconds()
	for round := 0; now() < end; round++ {
		j.round(clients, turns, opener, round)
	}
	j.say("done")
	if err := opener.close(); err != nil {
		fail(err)
	}
}

// round lets all await one new latch, and opens it.
func (j *job) round(clients []client, turns [][]turn, opener client, round int) {
	var asked atomic.Int32
	var released int64
	name := fmt.Sprintf("%s-%d", j.name, round)
	if err := opener.(gate).set(name); err != nil {
		fail(err)
	}
	opened := make(chan struct{})
	go func() {
		for asked.Load() < int32(j.workers) {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(latchAge)
		released = now()
		if err := opener.(gate).open(name); err != nil {
			fail(err)
		}
		close(opened)
	}()
	j.all(func(w int) {
		t := turn{asked: now()}
		asked.Add(1)
		if err := clients[w].(gate).await(name); err != nil {
			fail(err)
		}
		t.granted = now()
		turns[w] = append(turns[w], t)
	})
	<-opened
	for w := range turns {
		turns[w][len(turns[w])-1].released = released
	}
}
