/* SPDX-License-Identifier: MIT
 * Acquire and release a lock COUNT times with the library in a file, for callgrind to count the
 * instructions (bench/case_counters.c).
 *
 *   pairs LIBRARY URL COUNT */
#include "library.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	struct library library;
	lk_client *client;
	lk_lock *lock;
	long count;

	if (argc != 4 || !library_load(&library, argv[1])) {
		fprintf(stderr, "pairs: %s\n", argc == 4 ? dlerror() : "LIBRARY URL COUNT");
		return 1;
	}
	if (library.client_open(argv[2], NULL, &client) ||
	    library.lock_open(client, "bench:pairs", 0, NULL, &lock))
		return 1;
	count = strtol(argv[3], NULL, 10);
	for (long i = 0; i < count; i++)
		if (library.acquire(lock, LK_FOREVER, NULL) || library.release(lock))
			return 1;
	return library.client_close(client) ? 1 : 0;
}
