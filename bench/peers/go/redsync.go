// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type redsyncClient struct {
	redis   *redis.Client
	sync    *redsync.Redsync
	options []redsync.Option
}

// openRedsync opens redsync with its own retry delay (0) or the given one.
func openRedsync(delay time.Duration) func(addr string) (client, error) {
	return func(addr string) (client, error) {
		c := &redsyncClient{
			redis:   redis.NewClient(&redis.Options{Addr: addr}),
			options: []redsync.Option{redsync.WithExpiry(10 * time.Second), redsync.WithTries(1 << 30)},
		}
		c.sync = redsync.New(goredis.NewPool(c.redis))
		if delay > 0 {
			c.options = append(c.options, redsync.WithRetryDelay(delay))
		}
		return c, nil
	}
}

func (c *redsyncClient) lock(name string) (func() error, error) {
	mutex := c.sync.NewMutex(name, c.options...)
	if err := mutex.Lock(); err != nil {
		return nil, err
	}
	return func() error {
		if ok, err := mutex.Unlock(); err != nil {
			return err
		} else if !ok {
			return errors.New("redsync: the lock was lost")
		}
		return nil
	}, nil
}

func (c *redsyncClient) close() error {
	return c.redis.Close()
}
