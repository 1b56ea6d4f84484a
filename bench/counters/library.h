/* SPDX-License-Identifier: MIT
 * The library loaded from a file, so that one program can use two builds of it. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <latchkey.h>

#include <dlfcn.h>
#include <stdbool.h>

struct library {
	lk_err (*client_open)(const char *, const lk_client_options *, lk_client **);
	lk_err (*lock_open)(lk_client *, const char *, size_t, const lk_lock_options *, lk_lock **);
	lk_err (*acquire)(lk_lock *, int64_t, uint64_t *);
	lk_err (*release)(lk_lock *);
	lk_err (*counters)(lk_client *, lk_counters *);
	lk_err (*client_close)(lk_client *);
};

/* False on failure, with the reason in dlerror().  The library stays loaded. */
static inline bool library_load(struct library *library, const char *path)
{
	void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	/* POSIX: a function's address survives the way through void *. */
	return file && (*(void **)&library->client_open = dlsym(file, "lk_client_open")) &&
	       (*(void **)&library->lock_open = dlsym(file, "lk_lock_open")) &&
	       (*(void **)&library->acquire = dlsym(file, "lk_lock_acquire")) &&
	       (*(void **)&library->release = dlsym(file, "lk_lock_release")) &&
	       (*(void **)&library->counters = dlsym(file, "lk_client_counters")) &&
	       (*(void **)&library->client_close = dlsym(file, "lk_client_close"));
}

#endif
