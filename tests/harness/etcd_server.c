/* SPDX-License-Identifier: MIT
 * Real etcd servers for tests. */
#include "etcd_server.h"

#include "process.h"
#include "server.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MS 60000 /* on a loaded machine */
#define START_TRIES 3

const char *etcd_program(const char *name)
{
	static char path[1000];
	const char *dir = getenv("LATCHKEY_ETCD");

	if (dir && *dir) {
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		return path;
	}
	snprintf(path, sizeof(path), "build/deps/etcd/%s", name);
	return access(path, X_OK) ? name : path;
}

/* GET the path of the port that is plain also with TLS; false if the reply does not fit. */
static bool get(const struct etcd_servers *servers, int node, const char *path, char *reply,
                size_t size)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char request[80];
	int request_len = snprintf(request, sizeof(request), "GET %s HTTP/1.0\r\n\r\n", path);
	size_t len = 0;
	ssize_t got = 1;

	address.sin_port = htons((unsigned short)servers->nodes[node].health_port);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (!connect(fd, (struct sockaddr *)&address, sizeof(address)) &&
	    send(fd, request, (size_t)request_len, MSG_NOSIGNAL) > 0)
		while (got > 0 && len < size - 1) {
			struct pollfd ready = {fd, POLLIN, 0};
			got = poll(&ready, 1, 3000) == 1 ? recv(fd, reply + len, size - 1 - len, 0)
			                                 : 0;
			len += got > 0 ? (size_t)got : 0;
		}
	close(fd);
	reply[len] = '\0';
	return len < size - 1;
}

bool etcd_is_healthy(const struct etcd_servers *servers, int node)
{
	char reply[2000];

	return get(servers, node, "/health", reply, sizeof(reply)) &&
	       strstr(reply, "\"health\":\"true\"");
}

double etcd_metric(const struct etcd_servers *servers, int node, const char *name,
                   const char *contains)
{
	static char reply[1000000];
	size_t name_len = strlen(name);
	double sum = 0;
	char *rest = reply, *line;

	ck_assert(get(servers, node, "/metrics", reply, sizeof(reply)));
	while ((line = strsep(&rest, "\n"))) {
		const char *value = strrchr(line, ' ');

		if (!strncmp(line, name, name_len) && strstr(line, contains) && value)
			sum += strtod(value, NULL);
	}
	return sum;
}

static void run(const struct etcd_servers *servers, int node)
{
	const struct etcd_node *own = &servers->nodes[node];
	const char *scheme = servers->tls ? "https" : "http";
	char name[10], dir[120], client[60], peer[60], health[60], cluster[300], files[3][200];
	char program[1000];
	const char *argv[ETCD_ARGS_MAX + 50] = {
		"etcd",  "--name",
		name,    "--data-dir",
		dir,     "--listen-client-urls",
		client,  "--advertise-client-urls",
		client,  "--listen-peer-urls",
		peer,    "--initial-advertise-peer-urls",
		peer,    "--initial-cluster",
		cluster, "--listen-metrics-urls",
		health,  "--logger",
		"zap",   "--log-level",
		"error",
	};
	int count = 21, len = 0;
	char *const *exec_argv;

	snprintf(name, sizeof(name), "n%d", node);
	snprintf(dir, sizeof(dir), "%s/%s", servers->dir, name);
	snprintf(client, sizeof(client), "%s://127.0.0.1:%d", scheme, own->port);
	snprintf(peer, sizeof(peer), "http://127.0.0.1:%d", own->peer_port);
	snprintf(health, sizeof(health), "http://127.0.0.1:%d", own->health_port);
	for (int i = 0; i < servers->count; i++)
		len += snprintf(cluster + len, sizeof(cluster) - (size_t)len,
		                "%sn%d=http://127.0.0.1:%d", i ? "," : "", i,
		                servers->nodes[i].peer_port);
	if (servers->tls) {
		static const char *const options[] = {"--cert-file", "--key-file",
		                                      "--trusted-ca-file"};
		static const char *const names[] = {"server.pem", "server.key", "ca.pem"};
		for (int i = 0; i < 3; i++) {
			snprintf(files[i], sizeof(files[i]), "%s/%s", servers->tls, names[i]);
			/* With a CA, it demands certificates of clients. */
			if (i < 2 || servers->client_certificates) {
				argv[count++] = options[i];
				argv[count++] = files[i];
			}
		}
		if (servers->client_certificates)
			argv[count++] = "--client-cert-auth";
	}
	/* A loaded disk would end leaders; no test cuts the power. */
	if (!servers->syncs)
		argv[count++] = "--unsafe-no-fsync";
	for (int i = 0; servers->args[i]; i++)
		argv[count++] = servers->args[i];
	argv[count] = NULL;
	memcpy(&exec_argv, &(const char **){argv}, sizeof(exec_argv));
	if (own->folder)
		snprintf(program, sizeof(program), "%s/etcd", own->folder);
	execvp(own->folder ? program : etcd_program("etcd"), exec_argv);
}

void etcd_begin(struct etcd_servers *servers, int node)
{
	pid_t parent = getpid(), pid = process_fork();
	char log[120];

	if (!pid) {
		int null = open("/dev/null", O_RDWR), out;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(125);
		snprintf(log, sizeof(log), "%s/n%d.log", servers->dir, node);
		out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
		dup2(null, 0);
		dup2(out, 1);
		dup2(out, 2);
		signal(SIGPIPE, SIG_DFL);
		unsetenv("ETCD_NAME");
		if (servers->first_group && setgid((gid_t)(servers->first_group + node)))
			_exit(124);
		run(servers, node);
		_exit(126);
	}
	servers->nodes[node].pid = pid;
}

/* False if it has ended, as it does if a port is in use. */
static bool is_running(struct etcd_servers *servers, int node)
{
	struct etcd_node *own = &servers->nodes[node];

	if (own->pid && waitpid(own->pid, NULL, WNOHANG) == own->pid)
		own->pid = 0;
	return own->pid != 0;
}

static bool wait_for(struct etcd_servers *servers, int node)
{
	return WITHIN(START_MS, !is_running(servers, node) || etcd_is_healthy(servers, node)) &&
	       is_running(servers, node);
}

void etcd_kill(struct etcd_servers *servers, int node)
{
	struct etcd_node *own = &servers->nodes[node];

	if (!own->pid)
		return;
	kill(own->pid, SIGKILL);
	while (waitpid(own->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	own->pid = 0;
}

void etcd_pause(struct etcd_servers *servers, int node)
{
	pid_t pid = servers->nodes[node].pid;
	int status;

	ck_assert(!kill(pid, SIGSTOP));
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
}

static bool start_all(struct etcd_servers *servers)
{
	folder_make(servers->dir, sizeof(servers->dir));
	for (int i = 0; i < servers->count; i++) {
		servers->nodes[i].port = port_pick();
		servers->nodes[i].peer_port = port_pick();
		servers->nodes[i].health_port = port_pick();
	}
	if (servers->prepare)
		servers->prepare(servers);
	for (int i = 0; i < servers->count; i++)
		etcd_begin(servers, i);
	for (int i = 0; i < servers->count; i++)
		if (!wait_for(servers, i))
			return false;
	return true;
}

void etcd_start(struct etcd_servers *servers, int count)
{
	servers->count = count;
	for (int tries = 0; tries < START_TRIES; tries++) {
		if (start_all(servers))
			return;
		for (int i = 0; i < count; i++)
			etcd_kill(servers, i);
	}
	ck_abort_msg("etcd in %s does not start: see its n0.log", servers->dir);
}

void etcd_stop(struct etcd_servers *servers)
{
	for (int i = 0; i < servers->count; i++)
		etcd_kill(servers, i);
	folder_remove(servers->dir);
}

void etcd_restart(struct etcd_servers *servers, int node)
{
	etcd_kill(servers, node);
	etcd_begin(servers, node);
	ck_assert_msg(wait_for(servers, node), "etcd in %s does not start again", servers->dir);
}

void etcd_restart_dead(struct etcd_servers *servers)
{
	for (int i = 0; i < servers->count; i++)
		if (!servers->nodes[i].pid)
			etcd_begin(servers, i);
	for (int i = 0; i < servers->count; i++)
		ck_assert_msg(wait_for(servers, i), "etcd in %s does not start again",
		              servers->dir);
}

const char *etcd_ctl(const struct etcd_servers *servers, const char *fmt, ...)
{
	static char out[4000];
	char command[1600];
	va_list args;
	size_t len;
	FILE *pipe;
	int used = snprintf(command, sizeof(command),
	                    "%s --dial-timeout=10s --command-timeout=30s "
	                    "--endpoints=http://127.0.0.1:%d ",
	                    etcd_program("etcdctl"), servers->nodes[0].port);

	va_start(args, fmt);
	vsnprintf(command + used, sizeof(command) - (size_t)used, fmt, args);
	va_end(args);
	pipe = popen(command, "r");
	ck_assert_ptr_nonnull(pipe);
	len = fread(out, 1, sizeof(out) - 1, pipe);
	out[len] = '\0';
	ck_assert_msg(pclose(pipe) == 0, "%s: %s", command, out);
	return out;
}

const char *etcd_url(const struct etcd_servers *servers, const char *userinfo, const char *options)
{
	static char url[400];
	int len = snprintf(url, sizeof(url), "etcd%s://%s", servers->tls ? "s" : "", userinfo);

	for (int i = 0; i < servers->count; i++)
		len += snprintf(url + len, sizeof(url) - (size_t)len, "%s127.0.0.1:%d",
		                i ? "," : "", servers->nodes[i].port);
	snprintf(url + len, sizeof(url) - (size_t)len, "%s", options);
	return url;
}
