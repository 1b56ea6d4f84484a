/* SPDX-License-Identifier: MIT
 * A copy of the shared library that the program loads: not the one that is linked to it. */
#ifndef LOADED_LIBRARY_H
#define LOADED_LIBRARY_H

#include "test.h"

#include <latchkey.h>

#include <dlfcn.h>
#include <string.h>

static struct {
	void *handle;
	lk_err (*client_open)(const char *, const lk_client_options *, lk_client **);
	lk_err (*client_close)(lk_client *);
	lk_err (*lock_open)(lk_client *, const char *, size_t, const lk_lock_options *, lk_lock **);
	lk_err (*lock_acquire)(lk_lock *, int64_t, uint64_t *);
	lk_err (*lock_release)(lk_lock *);
	lk_err (*doctor)(const char *, const lk_client_options *, lk_finding_fn *, void *,
	                 lk_fitness *);
	const char *(*errmsg)(void);
} lib;

static inline void library_find(const char *name, void *function)
{
	void *symbol = dlsym(lib.handle, name);

	ck_assert_msg(symbol != NULL, "%s", name);
	memcpy(function, &symbol, sizeof(symbol));
}

static inline void library_load(const char *path)
{
	lib.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(lib.handle != NULL, "%s", dlerror());
	library_find("lk_client_open", &lib.client_open);
	library_find("lk_client_close", &lib.client_close);
	library_find("lk_lock_open", &lib.lock_open);
	library_find("lk_lock_acquire", &lib.lock_acquire);
	library_find("lk_lock_release", &lib.lock_release);
	library_find("lk_doctor", &lib.doctor);
	library_find("lk_errmsg", &lib.errmsg);
}

#endif
