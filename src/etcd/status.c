/* SPDX-License-Identifier: MIT
 * The table of etcd's errors.  etcd has many more errors than gRPC has statuses, so the texts
 * decide.  A status without a text that is known decides only if it can mean one thing.
 *
 * etcd answers "request timed out" when a proposal was not applied in time; it may be applied
 * later.  A change of the leader, or the stop of a member, can end a request after its proposal as
 * well as before. */
#include "status.h"

#include <stdio.h>
#include <string.h>

#define ANY NULL

struct row {
	int status;
	const char *text; /* part of the message; ANY: of those without a row of their own */
	struct lk__etcd_verdict verdict;
};

/* The first row that fits counts. */
static const struct row rows[] = {
	{LK__GRPC_UNAUTHENTICATED, "invalid auth token", {LK__ETCD_LOGIN, false}},
	{LK__GRPC_INVALID_ARGUMENT, "revision of auth store is old", {LK__ETCD_LOGIN, false}},
	{LK__GRPC_INVALID_ARGUMENT, "authentication failed", {LK__ETCD_DENIED, false}},
	{LK__GRPC_INVALID_ARGUMENT, LK__ETCD_NO_USER, {LK__ETCD_DENIED, false}},
	{LK__GRPC_PERMISSION_DENIED, ANY, {LK__ETCD_DENIED, false}},
	{LK__GRPC_UNAUTHENTICATED, ANY, {LK__ETCD_DENIED, false}},

	{LK__GRPC_UNAVAILABLE, "no leader", {LK__ETCD_AMBIGUOUS, true}},
	{LK__GRPC_UNAVAILABLE, "leader changed", {LK__ETCD_AMBIGUOUS, false}},
	{LK__GRPC_UNAVAILABLE, "request timed out", {LK__ETCD_AMBIGUOUS, true}},
	{LK__GRPC_UNAVAILABLE, "server stopped", {LK__ETCD_AMBIGUOUS, true}},
	{LK__GRPC_UNAVAILABLE, "unhealthy cluster", {LK__ETCD_AMBIGUOUS, true}},
	{LK__GRPC_UNAVAILABLE, "not capable", {LK__ETCD_AGAIN, true}},
	{LK__GRPC_UNAVAILABLE, "not supported for learner", {LK__ETCD_AGAIN, true}},
	{LK__GRPC_FAILED_PRECONDITION, "not supported for learner", {LK__ETCD_AGAIN, true}},
	{LK__GRPC_UNAVAILABLE, ANY, {LK__ETCD_AMBIGUOUS, true}},
	{LK__GRPC_RESOURCE_EXHAUSTED, "database space exceeded", {LK__ETCD_FULL, false}},
	{LK__GRPC_RESOURCE_EXHAUSTED, "too many requests", {LK__ETCD_AMBIGUOUS, false}},

	{LK__GRPC_NOT_FOUND, "lease not found", {LK__ETCD_NO_LEASE, false}},
	{LK__GRPC_OUT_OF_RANGE, "has been compacted", {LK__ETCD_COMPACTED, false}},
	{LK__GRPC_OUT_OF_RANGE, "is a future revision", {LK__ETCD_FUTURE, false}},

	{LK__GRPC_INVALID_ARGUMENT, ANY, {LK__ETCD_REFUSED, false}},
	{LK__GRPC_NOT_FOUND, ANY, {LK__ETCD_REFUSED, false}},
	{LK__GRPC_ALREADY_EXISTS, ANY, {LK__ETCD_REFUSED, false}},
	{LK__GRPC_FAILED_PRECONDITION, ANY, {LK__ETCD_REFUSED, false}},
	{LK__GRPC_OUT_OF_RANGE, ANY, {LK__ETCD_REFUSED, false}},
	{LK__GRPC_UNIMPLEMENTED, ANY, {LK__ETCD_REFUSED, false}},
	{LK__GRPC_DATA_LOSS, "corrupt cluster", {LK__ETCD_REFUSED, true}},
};

struct lk__etcd_verdict lk__etcd_judge(const struct lk__h2_event *event)
{
	if (event->fate == LK__H2_NOT_RUN)
		return (struct lk__etcd_verdict){LK__ETCD_AGAIN, true};
	if (event->fate == LK__H2_LOST)
		return (struct lk__etcd_verdict){LK__ETCD_AMBIGUOUS, true};
	if (event->status == LK__GRPC_OK)
		return (struct lk__etcd_verdict){LK__ETCD_DONE, false};
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (rows[i].status == event->status &&
		    (rows[i].text == ANY || strstr(event->text, rows[i].text)))
			return rows[i].verdict;
	return (struct lk__etcd_verdict){LK__ETCD_AMBIGUOUS, false};
}

bool lk__etcd_is_old(const char *version)
{
	int major = 0, minor = 0, patch = 0;

	if (sscanf(version, "%d.%d.%d", &major, &minor, &patch) < 2)
		return true;
	if (major != 3 || minor > 5)
		return major < 3;
	return minor < 4 || patch < (minor == 4 ? 31 : 13);
}

const char *lk__etcd_cure(const char *text)
{
	static const struct {
		const char *text, *cure;
	} cures[] = {
		{"permission denied",
	         " (the user's role needs readwrite for the prefix of the keys)"},
		{LK__ETCD_NO_USER, " (name a user: etcd://USER:PASSWORD@HOST, or use etcds:// "
	                           "with a client certificate)"},
		{"database space exceeded", " (nothing new is acquired or extended; holds are "
	                                    "renewed and released; etcdctl compact, defrag, then "
	                                    "alarm disarm)"},
		{"authentication is not enabled", " (leave user and password out of the URL)"},
	};

	for (size_t i = 0; i < sizeof(cures) / sizeof(*cures); i++)
		if (strstr(text, cures[i].text))
			return cures[i].cure;
	return "";
}
