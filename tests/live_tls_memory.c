/* SPDX-License-Identifier: MIT
 * No memory (C20 of the fault list) with TLS: the n-th request of the library or of OpenSSL fails.
 *
 * LDFLAGS: -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=strdup
 */
#include "harness/process.h"
#include "harness/short_memory.h"
#include "harness/test.h"
#include "harness/tls_store.h"

#include <openssl/crypto.h>
#include <stdlib.h>

/* OpenSSL's requests, for which the linker wraps nothing in a shared library. */
static void *take(size_t size, const char *file, int line)
{
	(void)file;
	(void)line;
	return size ? malloc(size) : NULL;
}

static void *take_again(void *old, size_t size, const char *file, int line)
{
	(void)file;
	(void)line;
	return realloc(old, size);
}

static void give(void *old, const char *file, int line)
{
	(void)file;
	(void)line;
	free(old);
}

TEST_LIMIT(c20_failing_allocations_with_tls, 400)
{
	static struct tls_redis redis;

	ck_assert_int_eq(CRYPTO_set_mem_functions(take, take_again, give), 1);
	tls_redis_start(&redis, NULL);
	memory.step = 31;
	memory.misreported = true;
	shortage_everywhere(&redis.server, redis.url, &memory, 1000);
}
