// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"time"

	"go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/client/v3/experimental/recipes"
)

type etcdClient struct {
	etcd    *clientv3.Client
	session *concurrency.Session
}

func openEtcd(addr string) (client, error) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(etcd, concurrency.WithTTL(10))
	return &etcdClient{etcd, session}, err
}

func (c *etcdClient) lock(name string) (func() error, error) {
	mutex := concurrency.NewMutex(c.session, "/"+name)
	if err := mutex.Lock(context.Background()); err != nil {
		return nil, err
	}
	return func() error { return mutex.Unlock(context.Background()) }, nil
}

func (c *etcdClient) set(name string) error {
	return recipe.NewBarrier(c.etcd, "/"+name).Hold()
}

func (c *etcdClient) await(name string) error {
	return recipe.NewBarrier(c.etcd, "/"+name).Wait()
}

func (c *etcdClient) open(name string) error {
	return recipe.NewBarrier(c.etcd, "/"+name).Release()
}

func (c *etcdClient) close() error {
	if err := c.session.Close(); err != nil {
		return err
	}
	return c.etcd.Close()
}
