/* SPDX-License-Identifier: MIT
 * A batch job that starts when five loaders have finished: batch_gate [URL]
 *
 * The gate is a latch of five steps.  Loader 3 crashes at the worst moment: it has counted, and has
 * not reported this.  It is restarted, loads again, and counts again.  Its step has the same name
 * both times, so the latch counts it once.  If it counted twice, the batch job would start without
 * the data of loader 5, which is slow. */
#include <latchkey.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOADERS 5
#define CRASHING 3 /* the first time, after it counted */
#define SLOW 5
#define WAIT_MS 60000
#define PATH_SIZE 256

struct night {
	const char *url;
	char folder[PATH_SIZE]; /* for the loaded files; also the name of the latch */
};

/* Exit unless the call of the library succeeded. */
static void need(lk_err err, const char *what)
{
	if (err == LK_OK)
		return;
	fprintf(stderr, "batch_gate: %s: %s\n", what, lk_errmsg());
	exit(1);
}

static void need_system(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "batch_gate: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Open a client and the latch of this night; each process does this first. */
static lk_client *open_gate(const struct night *night, lk_latch **gate)
{
	lk_client *client;

	need(lk_client_open(night->url, NULL, &client), "no store");
	need(lk_latch_open(client, night->folder, 0, NULL, gate), "no latch");
	return client;
}

static void result_path(const struct night *night, int loader, char path[PATH_SIZE])
{
	snprintf(path, PATH_SIZE, "%.*s/part-%d", PATH_SIZE - 32, night->folder, loader);
}

/* Write the loaded file as a whole or not at all, so that loading may be repeated. */
static void load(const struct night *night, int loader)
{
	struct timespec work = {.tv_sec = loader == SLOW, .tv_nsec = loader * 50000000L};
	char path[PATH_SIZE], new_path[PATH_SIZE + 4];
	FILE *file;

	nanosleep(&work, NULL);
	result_path(night, loader, path);
	snprintf(new_path, sizeof(new_path), "%s.new", path);
	file = fopen(new_path, "w");
	need_system(file != NULL, new_path);
	need_system(fprintf(file, "%d\n", loader) > 0, new_path);
	need_system(fclose(file) == 0, new_path);
	need_system(rename(new_path, path) == 0, path);
}

static void run_loader(const struct night *night, int loader, bool again)
{
	lk_latch *gate;
	lk_client *client = open_gate(night, &gate);
	lk_latch_step step;
	char name[32];

	load(night, loader);
	snprintf(name, sizeof(name), "loader %d", loader);
	need(lk_latch_down(gate, 1, name, 0, &step), "cannot count");
	if (loader == CRASHING && !again)
		kill(getpid(), SIGKILL);
	printf("loader %d: %s, %lld to go\n", loader,
	       step.counted ? "has finished" : "had counted before its crash",
	       (long long)step.remaining);
	need(lk_client_close(client), "cannot close");
	/* If the step counted twice, the gate would open too early. */
	exit(step.counted == again ? 1 : 0);
}

/* Sleep until the gate opens, then check that all files exist. */
static void run_batch(const struct night *night)
{
	lk_latch *gate;
	lk_client *client = open_gate(night, &gate);
	char path[PATH_SIZE];
	int found = 0;

	need(lk_latch_await(gate, WAIT_MS), "the gate does not open");
	for (int loader = 1; loader <= LOADERS; loader++) {
		result_path(night, loader, path);
		found += access(path, R_OK) == 0;
	}
	printf("batch: starts, and finds %d of %d results\n", found, LOADERS);
	need(lk_client_close(client), "cannot close");
	exit(found == LOADERS ? 0 : 1);
}

static pid_t start_batch(const struct night *night)
{
	pid_t pid = fork();

	need_system(pid >= 0, "cannot fork");
	if (pid == 0)
		run_batch(night);
	return pid;
}

static pid_t start_loader(const struct night *night, int loader, bool again)
{
	pid_t pid = fork();

	need_system(pid >= 0, "cannot fork");
	if (pid == 0)
		run_loader(night, loader, again);
	return pid;
}

/* Start all loaders, restart those that crash, and wait for all.  True if each succeeded. */
static bool run_night(const struct night *night)
{
	pid_t batch = start_batch(night), loaders[LOADERS + 1] = {0};
	int status, running = 1 + LOADERS, crashes = 0;
	bool ok = true;

	for (int loader = 1; loader <= LOADERS; loader++)
		loaders[loader] = start_loader(night, loader, false);
	while (running > 0) {
		pid_t pid = wait(&status);
		int loader = 1;

		need_system(pid > 0, "cannot wait");
		while (loader <= LOADERS && loaders[loader] != pid)
			loader++;
		if (pid != batch && WIFSIGNALED(status)) {
			printf("loader %d: crashed, progress unknown; restarted\n", loader);
			loaders[loader] = start_loader(night, loader, true);
			crashes++;
		} else {
			ok = ok && WIFEXITED(status) && WEXITSTATUS(status) == 0;
			running--;
		}
	}
	return ok && crashes == 1;
}

static void clean_up(const struct night *night)
{
	char path[PATH_SIZE];

	for (int loader = 1; loader <= LOADERS; loader++) {
		result_path(night, loader, path);
		unlink(path);
	}
	rmdir(night->folder);
}

int main(int argc, char **argv)
{
	struct night night = {.url = argc > 1 ? argv[1] : NULL,
	                      .folder = "/tmp/latchkey-night-XXXXXX"};
	lk_client *client;
	lk_latch *gate;
	bool ok;

	/* Write each line at once, so that no child process inherits a partial line. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	need_system(mkdtemp(night.folder) != NULL, night.folder);
	client = open_gate(&night, &gate);
	need(lk_latch_set(gate, LOADERS, NULL), "cannot set the latch");
	ok = run_night(&night);
	need(lk_latch_remove(gate), "cannot remove the latch");
	need(lk_client_close(client), "cannot close");
	clean_up(&night);
	printf("%s\n", ok ? "the batch had everything, the crashed loader counted once"
	                  : "something went wrong");
	return ok ? 0 : 1;
}
