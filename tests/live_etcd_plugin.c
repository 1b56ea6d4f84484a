/* SPDX-License-Identifier: MIT
 * The store in etcd as a plug-in of the shared library: when it is loaded, from where, and the
 * error if it cannot be.  Each test has a copy of the library and its plug-in.  In a sanitized
 * build both are one file. */
#include "harness/etcd_server.h"
#include "harness/loaded_library.h"
#include "harness/process.h"
#include "harness/test.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SERIES ((int)(strrchr(LK_VERSION, '.') - LK_VERSION)), LK_VERSION /* for %.*s */
#define HAS_PLUGIN (!TSAN && !ASAN)
#define THREADS 4
#define NOWHERE "etcd://127.0.0.1:1" /* no server listens there */

static char build[1000]; /* the folder of this program's build */
static char root[200];   /* of the test: lib/ */
static char library[300], plugin[300];

/* Copy the library and its plug-in into the folder of the test. */
static void install(void)
{
	ssize_t len = readlink("/proc/self/exe", build, sizeof(build) - 1);

	ck_assert_int_gt(len, 0);
	build[len] = '\0';
	*strstr(build, "/tests/") = '\0';
	folder_make(root, sizeof(root));
	snprintf(library, sizeof(library), "%s/lib/liblatchkey.so.%.*s", root, SERIES);
	snprintf(plugin, sizeof(plugin), "%s/lib/latchkey/%.*s/etcd.so", root, SERIES);
	ck_assert_int_eq(shell("cp -a %s/lib %s/", build, root), 0);
}

static void put_other_plugin(const char *path)
{
	ck_assert_int_eq(shell("rm -f %s && cp %s/tests/other_plugin.so %s", path, build, path), 0);
}

static bool is_mapped(const char *path)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[5000];
	bool found = false;

	ck_assert(maps != NULL);
	while (!found && fgets(line, sizeof(line), maps))
		found = strstr(line, path) != NULL;
	fclose(maps);
	return found;
}

/* Open a client; there is no server. */
static lk_err try_open(const char *url)
{
	lk_client *client;
	lk_err err = lib.client_open(url, NULL, &client);

	ck_assert_int_ne(err, LK_OK);
	return err;
}

static void assert_unsupported(const char *first, const char *second)
{
	const char *texts[] = {plugin, first, second};

	for (int is_doctor = 0; is_doctor < 2; is_doctor++) {
		ck_assert_int_eq(is_doctor ? lib.doctor(NOWHERE, NULL, NULL, NULL, NULL)
		                           : try_open(NOWHERE),
		                 LK_EUNSUPPORTED);
		for (int i = 0; i < 3; i++)
			ck_assert_msg(strstr(lib.errmsg(), texts[i]) != NULL, "no \"%s\" in: %s",
			              texts[i], lib.errmsg());
	}
}

TEST_IF(first_url_of_etcd_loads_the_plugin, 20, HAS_PLUGIN)
{
	install();
	library_load(library);
	ck_assert_int_eq(try_open("redis+unix:///nowhere"), LK_ECONN);
	ck_assert_int_eq(try_open("etcd://"), LK_EINVALID);
	ck_assert(is_mapped(root));
	ck_assert(!is_mapped("/etcd.so"));
	ck_assert_int_eq(try_open(NOWHERE), LK_ECONN);
	ck_assert(is_mapped(plugin));
}

TEST_LIMIT(plugin_holds_a_lock, 60)
{
	static struct etcd_servers etcd;
	lk_fitness worst = LK_FIT;
	lk_client *client;
	lk_lock *lock;
	uint64_t fence = 0;

	install();
	library_load(library);
	etcd_start(&etcd, 1);
	ck_assert_msg(lib.client_open(etcd_url(&etcd, "", ""), NULL, &client) == LK_OK, "%s",
	              lib.errmsg());
	ck_assert_int_eq(lib.lock_open(client, "a", 0, NULL, &lock), LK_OK);
	ck_assert_int_eq(lib.lock_acquire(lock, 20000, &fence), LK_OK);
	ck_assert_uint_gt(fence, 0);
	ck_assert_int_eq(lib.lock_release(lock), LK_OK);
	ck_assert_int_eq(lib.client_close(client), LK_OK);
	ck_assert_int_eq(lib.doctor(etcd_url(&etcd, "", ""), NULL, NULL, NULL, &worst), LK_OK);
	ck_assert_int_ne(worst, LK_FIT); /* one member */
	ck_assert_int_eq(is_mapped(plugin), HAS_PLUGIN);
	etcd_stop(&etcd);
}

TEST_IF(missing_plugin_is_named_with_its_package, 20, HAS_PLUGIN)
{
	char package[60];

	install();
	library_load(library);
	snprintf(package, sizeof(package), "the package liblatchkey%.*s-etcd ", SERIES);
	ck_assert_int_eq(shell("mv %s %s.away", plugin, plugin), 0);
	assert_unsupported(package, "no file ");
	/* The program need not start again. */
	ck_assert_int_eq(shell("mv %s.away %s", plugin, plugin), 0);
	ck_assert_int_eq(try_open(NOWHERE), LK_ECONN);
}

TEST_IF(plugin_of_another_version_is_not_used, 20, HAS_PLUGIN)
{
	install();
	library_load(library);
	ck_assert_int_eq(shell("mv %s %s.away", plugin, plugin), 0);
	put_other_plugin(plugin);
	assert_unsupported("has version " LK_VERSION ",", "has version 9.9.9:");
	ck_assert(!is_mapped(plugin));
	ck_assert_int_eq(shell("cp %s/tests/still_clock.so %s.new && mv %s.new %s", build, plugin,
	                       plugin, plugin),
	                 0);
	assert_unsupported("no plug-in", "Latchkey");
	ck_assert_int_eq(shell("mv %s.away %s", plugin, plugin), 0);
	ck_assert_int_eq(try_open(NOWHERE), LK_ECONN);
}

TEST_IF(plugin_that_cannot_be_loaded_is_named_with_the_reason, 20, HAS_PLUGIN)
{
	install();
	library_load(library);
	ck_assert_int_eq(shell("rm %s && echo text >%s", plugin, plugin), 0);
	assert_unsupported("etcd: ", "file too short");
}

/* A path of the library that was relative when it was loaded means another file now. */
TEST_IF(plugin_is_beside_the_loaded_library, 20, HAS_PLUGIN)
{
	char other[400];

	install();
	ck_assert_int_eq(
		shell("cd %s && mkdir other && cp -a lib other/ && cp %s/tests/other_plugin.so "
	              "other/etcd.so",
	              root, build),
		0);
	snprintf(other, sizeof(other), "%s/other/lib/latchkey/%.*s/etcd.so", root, SERIES);
	put_other_plugin(other);
	ck_assert_int_eq(chdir(root), 0);
	library_load(library + strlen(root) + 1);
	ck_assert_int_eq(chdir("other"), 0);
	ck_assert_int_eq(shell("mv %s %s.away", plugin, plugin), 0);
	assert_unsupported("no file ", "liblatchkey");
	ck_assert_ptr_null(getenv("OTHER_PLUGIN"));
	ck_assert_int_eq(shell("mv %s.away %s", plugin, plugin), 0);
	ck_assert_int_eq(try_open(NOWHERE), LK_ECONN);
	ck_assert_ptr_null(getenv("OTHER_PLUGIN"));
	ck_assert(is_mapped(plugin));
}

/* The installed library is a link to its file, and others may link to that. */
TEST_IF(plugin_is_found_behind_a_link, 20, HAS_PLUGIN)
{
	char link[300];

	install();
	snprintf(link, sizeof(link), "%s/link.so", root);
	ck_assert_int_eq(symlink(library, link), 0);
	library_load(link);
	ck_assert_int_eq(try_open(NOWHERE), LK_ECONN);
	ck_assert(is_mapped(plugin));
}

static pthread_barrier_t barrier;

static void *open_at_once(void *arg)
{
	pthread_barrier_wait(&barrier);
	*(lk_err *)arg = try_open(NOWHERE);
	return NULL;
}

/* A worker: its threads load the plug-in at once. */
static int load_at_once(void *arg, int in, int out)
{
	pthread_t threads[THREADS];
	lk_err errs[THREADS];
	int status = 0;

	(void)arg;
	(void)in;
	(void)out;
	library_load(library);
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		ck_assert(!pthread_create(&threads[i], NULL, open_at_once, &errs[i]));
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		if (errs[i] != LK_ECONN)
			status = 2;
	}
	return status;
}

TEST_IF(threads_load_the_plugin_at_once, 60, HAS_PLUGIN)
{
	install();
	for (int i = 0; i < 10; i++) {
		struct process worker;
		int status;

		process_start(&worker, load_at_once, NULL);
		status = process_wait(&worker, 30000);
		ck_assert_msg(status == 0, "status %x", (unsigned)status);
	}
}

/* Threads of the client run the plug-in's code. */
TEST_IF(plugin_stays_when_the_library_is_closed, 20, HAS_PLUGIN)
{
	const lk_client_options options = {.connect_timeout_ms = 200};
	lk_client *client;

	install();
	library_load(library);
	ck_assert_int_eq(lib.client_open(NOWHERE "?lazy=1", &options, &client), LK_OK);
	ck_assert_int_eq(dlclose(lib.handle), 0);
	nap_ms(300); /* the background thread dials */
	ck_assert(is_mapped(plugin));
	ck_assert_int_eq(lib.client_close(client), LK_OK);
}
