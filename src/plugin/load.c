/* SPDX-License-Identifier: MIT
 * Loads the store in etcd when a program first uses it, from latchkey/MAJOR.MINOR/etcd.so in the
 * folder of this library.  No other place is searched: replacing the plug-in takes
 * the rights that replacing the library takes.  Neither is ever unloaded. */
#include "plugin.h"

#include "net/fork.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SERIES_LEN ((int)(strrchr(LK_VERSION, '.') - LK_VERSION)) /* of "MAJOR.MINOR" */

static const struct lk__host host = {
#define MEMBER(function) function,
	LK__HOST_MAP(MEMBER)
#undef MEMBER
};

static const struct lk__store_ops *_Atomic loaded;
static char *place; /* of this library, if the loader has no absolute path of it; else NULL */

/* The program may change its working directory later. */
__attribute__((constructor)) static void note_place(void)
{
	Dl_info info;

	if (dladdr(&host, &info) && info.dli_fname[0] != '/')
		place = realpath(info.dli_fname, NULL);
}

/* The path of the plug-in.  Follows links: the plug-in is beside the file, as installed. */
static bool find(char path[PATH_MAX])
{
	const char *library = place;
	char *name;
	size_t room;
	Dl_info info;

	if (!library && dladdr(&host, &info) && info.dli_fname[0] == '/')
		library = info.dli_fname;
	if (!library || !realpath(library, path))
		return false;
	name = strrchr(path, '/');
	room = PATH_MAX - (size_t)(name - path);
	return snprintf(name, room, "/latchkey/%.*s/etcd.so", SERIES_LEN, LK_VERSION) < (int)room;
}

/* The plug-in in that file, if it belongs to this library. */
static const struct lk__store_ops *check(void *handle, const char *path, struct lk__why *why)
{
	const struct lk__plugin *plugin = dlsym(handle, LK__PLUGIN_SYMBOL);

	if (!plugin) {
		lk__why_set(why, LK_EUNSUPPORTED, "etcd: %s is no plug-in of Latchkey", path);
		return NULL;
	}
	if (strncmp(plugin->version, LK_VERSION, sizeof(plugin->version)) != 0) {
		lk__why_set(why, LK_EUNSUPPORTED,
		            "etcd: the library has version %s, but %s has version %.*s: install "
		            "both from one build, and restart the program",
		            LK_VERSION, path, (int)sizeof(plugin->version), plugin->version);
		return NULL;
	}
	*plugin->host = &host;
	return plugin->ops;
}

static const struct lk__store_ops *load(const char *path, struct lk__why *why)
{
	const struct lk__store_ops *ops;
	void *handle;

	if (access(path, F_OK)) {
		lk__why_set(why, LK_EUNSUPPORTED,
		            "etcd: install the package liblatchkey%.*s-etcd (no file %s)",
		            SERIES_LEN, LK_VERSION, path);
		return NULL;
	}
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		lk__why_set(why, LK_EUNSUPPORTED, "etcd: %s", dlerror());
		return NULL;
	}
	ops = check(handle, path, why);
	if (!ops)
		dlclose(handle);
	return ops;
}

const struct lk__store_ops *lk__plugin_etcd(struct lk__why *why)
{
	const struct lk__store_ops *ops = loaded;
	char path[PATH_MAX];

	if (ops)
		return ops;
	if (!find(path)) {
		lk__why_set(why, LK_EUNSUPPORTED,
		            "etcd: cannot load it: the folder of this library is unknown");
		return NULL;
	}
	/* Threads that come at the same time load the same file.  fork() waits: a child has all of
	 * it or nothing. */
	lk__fork_hold();
	ops = load(path, why);
	lk__fork_let();
	if (ops)
		loaded = ops;
	return ops;
}
