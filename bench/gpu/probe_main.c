/*
 * probe_main.c - gpu_probe [PART ...]: all parts, or the named ones, each in a process of its own.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/gpu/probe.h"

static const struct part {
	const char *name;
	void (*run)(void);
	unsigned seconds;
} parts[] = {
	{ "attributes", part_attributes, 30 },
	{ "context", part_context, 60 },
	{ "vmm", part_vmm, 90 },
	{ "stall", part_stall, 60 },
	{ "share", part_share, 60 },
	{ "progress", part_progress, 60 },
	{ "events", part_events, 40 },
	{ "dmabuf", part_dmabuf, 30 },
	{ "handover", part_handover, 60 },
	{ "gather", part_gather, 120 },
};

static const struct child {
	const char *name;
	void (*run)(int socket);
} children[] = {
	{ "context", child_context }, { "importer", child_importer },
	{ "owner", child_owner },     { "watcher", child_watcher },
	{ "events", child_events },   { "handover", child_handover },
};

static int run_child(const char *name)
{
	for (size_t i = 0; i < sizeof(children) / sizeof(children[0]); i++) {
		if (!strcmp(children[i].name, name))
			children[i].run(3);
	}
	return 0;
}

static int run_part(const struct part *part)
{
	int status = 0, pid;

	printf("part %s\n", part->name);
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)alarm(part->seconds);
		if (cuda_calls_load(&cu))
			printf("failed load %s\n", error_last());
		else if (context_open())
			part->run();
		(void)fflush(stdout);
		_exit(0);
	}
	(void)waitpid(pid, &status, 0);
	if (WIFSIGNALED(status))
		printf("failed part %s signal %d\n", part->name, WTERMSIG(status));
	return status != 0;
}

int main(int argc, char **argv)
{
	int failed = 0;

	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && !strcmp(argv[1], "--child")) {
		(void)alarm(100);
		if (cuda_calls_load(&cu)) {
			printf("failed load %s\n", error_last());
			return 1;
		}
		return run_child(argv[2]);
	}
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		bool wanted = argc == 1;

		for (int arg = 1; arg < argc; arg++)
			wanted = wanted || !strcmp(argv[arg], parts[i].name);
		failed += wanted && run_part(&parts[i]);
	}
	return failed != 0;
}
