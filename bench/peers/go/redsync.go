// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	lockredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type redsyncClient struct {
	servers []*redis.Client
	sync    *redsync.Redsync
	options []redsync.Option
}

// openRedsync opens redsync with its own retry delay (0) or the given one.
func openRedsync(delay time.Duration) func(addrs []string) (client, error) {
	return func(addrs []string) (client, error) {
		c := &redsyncClient{
			options: []redsync.Option{redsync.WithExpiry(10 * time.Second), redsync.WithTries(1 << 30)},
		}
		var pools []lockredis.Pool
		for _, addr := range addrs {
			server := redis.NewClient(&redis.Options{Addr: addr})
			c.servers = append(c.servers, server)
			pools = append(pools, goredis.NewPool(server))
		}
		c.sync = redsync.New(pools...)
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
	for _, server := range c.servers {
		if err := server.Close(); err != nil {
			return err
		}
	}
	return nil
}
