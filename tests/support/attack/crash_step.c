#include "tests/support/attack/crash_step.h"

#include "tests/support/test.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define NO_PTRACE 86 /* exit status of a child that cannot be traced */
#define MOST_INSTRUCTIONS 200000000ull

uint8_t *crash_step_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(memory != MAP_FAILED);
	return memory;
}

void crash_step_free(uint8_t *memory, size_t bytes)
{
	munmap(memory, bytes);
}

static _Noreturn void child(const struct crash_step *step)
{
	int rc;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(NO_PTRACE);
	rc = step->prepare ? step->prepare(step->ctx) : 0;
	raise(SIGSTOP);
	if (rc == 0)
		rc = step->run(step->ctx);
	raise(SIGSTOP);
	_exit(rc ? 1 + (-rc & 63) : 0);
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* One instruction. false: it is at its end (or gone, then *gone). */
static bool step_once(pid_t pid, int *status)
{
	if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) || waitpid(pid, status, 0) != pid)
		return false;
	return WIFSTOPPED(*status) && WSTOPSIG(*status) == SIGTRAP;
}

static void step_all(const struct crash_step *step, pid_t pid, const uint8_t *memory,
		     struct crash_step_report *report)
{
	uint8_t *seen = malloc(step->bytes);
	uint8_t *copy = aligned_alloc(4096, (step->bytes + 4095) & ~(size_t)4095);
	uint64_t every = step->every ? step->every : 1;
	int status = 0;

	assert_non_null(seen);
	assert_non_null(copy);
	memcpy(seen, memory, step->bytes);
	while (step_once(pid, &status) && report->instructions < MOST_INSTRUCTIONS) {
		report->instructions++;
		if (memcmp(seen, memory, step->bytes) == 0)
			continue;
		memcpy(seen, memory, step->bytes);
		if (report->states++ % every)
			continue;
		memcpy(copy, memory, step->bytes);
		step->look(step->ctx, copy);
		report->looks++;
	}
	free(copy);
	free(seen);
	if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGSTOP) {
		end_child(pid);
		fail_msg("the child did not reach its end: status 0x%x", (unsigned)status);
	}
}

static int finish(pid_t pid)
{
	int status;

	ptrace(PTRACE_CONT, pid, NULL, NULL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status) ? 1 - WEXITSTATUS(status) : 0;
}

void crash_step_run(const struct crash_step *step, uint8_t *memory,
		    struct crash_step_report *report_out)
{
	struct crash_step_report report = { 0 };
	cpu_set_t allowed, one;
	int status = 0;
	pid_t pid;

#ifndef __x86_64__
	skip(); /* a load-linked pair never succeeds when it is stepped */
#endif
	fflush(stdout);
	/* On one processor a step needs no wake-up of another, which takes half of the time. */
	assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
	CPU_ZERO(&one);
	CPU_SET((unsigned)sched_getcpu(), &one);
	sched_setaffinity(0, sizeof(one), &one);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		child(step);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PTRACE)
		skip();
	assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	step_all(step, pid, memory, &report);
	report.rc = finish(pid);
	sched_setaffinity(0, sizeof(allowed), &allowed);
	*report_out = report;
}
