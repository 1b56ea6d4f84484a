// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

type retry = redislock.RetryStrategy

var (
	linear      = redislock.LinearBackoff
	exponential = redislock.ExponentialBackoff
)

type redislockClient struct {
	redis  *redis.Client
	locker *redislock.Client
	retry  func() retry // a new one for each wait: it counts
}

func openRedislock(strategy func() retry) func(addr string) (client, error) {
	return func(addr string) (client, error) {
		c := &redislockClient{redis: redis.NewClient(&redis.Options{Addr: addr}), retry: strategy}
		c.locker = redislock.New(c.redis)
		return c, nil
	}
}

func (c *redislockClient) lock(name string) (func() error, error) {
	// Without a deadline in the context it gives up after the TTL.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lock, err := c.locker.Obtain(ctx, name, 10*time.Second,
		&redislock.Options{RetryStrategy: c.retry()})
	if err != nil {
		return nil, err
	}
	return func() error { return lock.Release(context.Background()) }, nil
}

func (c *redislockClient) close() error {
	return c.redis.Close()
}
