/* SPDX-License-Identifier: MIT
 * Name look-up in a thread of its own.  Caller and thread share a reference-counted block, so that
 * a look-up that hangs costs a thread and delays no caller. */
#include "resolve.h"

#include "../base/os.h"

#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT_SIZE 8

struct lookup {
	pthread_mutex_t mutex;
	int references;
	bool done;
	struct lk__wake wake; /* notified when done */
	int status;           /* of getaddrinfo() */
	int system_error;     /* errno, if status is EAI_SYSTEM */
	struct lk__address addresses[LK__RESOLVE_MAX];
	size_t count;
	char port[PORT_SIZE];
	char host[]; /* NUL-ended */
};

static void lookup_release(struct lookup *lookup)
{
	int left;

	pthread_mutex_lock(&lookup->mutex);
	left = --lookup->references;
	pthread_mutex_unlock(&lookup->mutex);
	if (left)
		return;
	lk__wake_fini(&lookup->wake);
	pthread_mutex_destroy(&lookup->mutex);
	free(lookup);
}

/* port has PORT_SIZE bytes. */
static struct lookup *lookup_new(const char *host, const char *port, lk_err *err,
                                 struct lk__why *why)
{
	size_t len = strlen(host);
	struct lookup *lookup = calloc(1, sizeof(*lookup) + len + 1);

	if (!lookup) {
		*err = lk__why_set(why, LK_ENOMEM, "out of memory");
		return NULL;
	}
	if (!lk__wake_init(&lookup->wake)) {
		free(lookup);
		*err = lk__why_set(why, LK_ESYSTEM, "no descriptor left for the name look-up");
		return NULL;
	}
	pthread_mutex_init(&lookup->mutex, NULL);
	lookup->references = 1;
	memcpy(lookup->host, host, len + 1);
	memcpy(lookup->port, port, sizeof(lookup->port));
	return lookup;
}

static size_t copy_addresses(const struct addrinfo *list,
                             struct lk__address addresses[LK__RESOLVE_MAX])
{
	size_t count = 0;

	for (; list && count < LK__RESOLVE_MAX; list = list->ai_next) {
		struct lk__address *address = &addresses[count];
		if (list->ai_addrlen > sizeof(address->addr))
			continue;
		memset(address, 0, sizeof(*address));
		memcpy(&address->addr, list->ai_addr, list->ai_addrlen);
		address->len = list->ai_addrlen;
		address->family = list->ai_family;
		count++;
	}
	return count;
}

/* getaddrinfo() with additional flags. */
static void look_up(const char *host, const char *port, int flags, int *status, int *system_error,
                    struct lk__address addresses[LK__RESOLVE_MAX], size_t *count)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
	struct addrinfo *list = NULL;

	*count = 0;
	*status = getaddrinfo(host, port, &hints, &list);
	*system_error = *status == EAI_SYSTEM ? errno : 0;
	if (*status == 0) {
		*count = copy_addresses(list, addresses);
		freeaddrinfo(list);
	}
}

static void *lookup_main(void *arg)
{
	struct lookup *lookup = arg;
	struct lk__address addresses[LK__RESOLVE_MAX];
	int status, system_error;
	size_t count;

	look_up(lookup->host, lookup->port, 0, &status, &system_error, addresses, &count);
	pthread_mutex_lock(&lookup->mutex);
	lookup->status = status;
	lookup->system_error = system_error;
	lookup->count = count;
	memcpy(lookup->addresses, addresses, count * sizeof(addresses[0]));
	lookup->done = true;
	pthread_mutex_unlock(&lookup->mutex);
	lk__wake_notify(&lookup->wake);
	lookup_release(lookup);
	return NULL;
}

static lk_err lookup_failed(int status, int system_error, struct lk__why *why)
{
	char text[128];

	if (status == EAI_MEMORY || (status == EAI_SYSTEM && system_error == ENOMEM))
		return lk__why_set(why, LK_ENOMEM, "out of memory");
	if (status == EAI_SYSTEM && (system_error == EMFILE || system_error == ENFILE))
		return lk__why_set(why, LK_ESYSTEM, "no descriptor left for the name look-up");
	snprintf(text, sizeof(text), "%s", status ? gai_strerror(status) : "no address");
	text[0] = (char)tolower((unsigned char)text[0]);
	return lk__why_set(why, LK_ECONN, "%s", text);
}

/* Wait for the thread and copy its result out: the block may be freed by the thread later. */
static lk_err lookup_wait(struct lookup *lookup, int64_t deadline_ns, int cancel_fd,
                          struct lk__address addresses[LK__RESOLVE_MAX], size_t *count,
                          struct lk__why *why)
{
	lk_err err;
	int ready = lk__poll2(lookup->wake.read_fd, POLLIN, cancel_fd, deadline_ns);

	if (ready & 2)
		return lk__why_set(why, LK_ECONN, "canceled");
	pthread_mutex_lock(&lookup->mutex);
	if (!lookup->done) {
		err = lk__why_set(why, LK_ECONN, "name look-up timed out");
	} else if (lookup->status || !lookup->count) {
		err = lookup_failed(lookup->status, lookup->system_error, why);
	} else {
		*count = lookup->count;
		memcpy(addresses, lookup->addresses, *count * sizeof(addresses[0]));
		err = LK_OK;
	}
	pthread_mutex_unlock(&lookup->mutex);
	return err;
}

lk_err lk__resolve(const char *host, int port, int64_t deadline_ns, int cancel_fd,
                   struct lk__address addresses[LK__RESOLVE_MAX], size_t *count,
                   struct lk__why *why)
{
	struct lookup *lookup;
	pthread_t thread;
	char service[PORT_SIZE];
	int status, system_error;
	lk_err err;

	snprintf(service, sizeof(service), "%u", (unsigned)(unsigned short)port);
	look_up(host, service, AI_NUMERICHOST, &status, &system_error, addresses, count);
	if (status == 0 && *count)
		return LK_OK;
	if (status != EAI_NONAME)
		return lookup_failed(status, system_error, why);
	lookup = lookup_new(host, service, &err, why);
	if (!lookup)
		return err;
	lookup->references = 2;
	if (!lk__thread_start(&thread, "lk-resolve", lookup_main, lookup)) {
		lookup->references = 1;
		lookup_release(lookup);
		return lk__why_set(why, LK_ESYSTEM, "cannot start a thread for the name look-up");
	}
	pthread_detach(thread);
	err = lookup_wait(lookup, deadline_ns, cancel_fd, addresses, count, why);
	lookup_release(lookup);
	return err;
}
