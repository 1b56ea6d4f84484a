/* SPDX-License-Identifier: MIT
 * Random values for the comparison with protobuf-c. */
#ifndef ETCD_RANDOM_H
#define ETCD_RANDOM_H

#include "etcd/messages.h"
#include "messages.pb-c.h"

#include "test.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS 2000
#define SPACE 20000 /* the bytes of a message */

static unsigned short random_state[3];

static inline void begin(void)
{
	random_state[0] = (unsigned short)test_seed();
	random_state[1] = (unsigned short)(test_seed() >> 16);
}

static inline unsigned below(unsigned limit)
{
	return (unsigned)nrand48(random_state) % limit;
}

/* Often 0, often small, sometimes any. */
static inline int64_t number(void)
{
	uint64_t bits =
		(uint64_t)(uint32_t)jrand48(random_state) << 32 | (uint32_t)jrand48(random_state);

	return (int64_t)(below(4) ? bits >> below(64) : 0);
}

static inline bool flag(void)
{
	return below(2);
}

/* Their bytes; ours are the same. */
static inline ProtobufCBinaryData bytes(void)
{
	static uint8_t pool[1024];
	size_t len = below(3) ? below(20) : below(8) ? 0 : below(300);

	if (!pool[0])
		for (size_t i = 0; i < sizeof(pool); i++)
			pool[i] = (uint8_t)(1 + below(255));
	return (ProtobufCBinaryData){len, pool + below((unsigned)(sizeof(pool) - len))};
}

static inline struct lk__bytes same(ProtobufCBinaryData data)
{
	return (struct lk__bytes){data.data, data.len};
}

#endif
