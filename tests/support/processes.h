/*
 * processes.h - real daemons for tests: a private runtime directory, started and awaited with
 * deadlines, killed when the test ends whatever happens (also when the test itself is killed).
 */
#ifndef RLV_TESTS_SUPPORT_PROCESSES_H
#define RLV_TESTS_SUPPORT_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCESSES_MAX 32
#define PROCESSES_PATH 128
#define PROCESSES_WAIT_MS 30000 /* time limit for each awaited event */

/* A private directory, RELIVE_RUNTIME_DIR of this process and of the started ones. */
struct processes {
	char dir[PROCESSES_PATH];
	pid_t pids[PROCESSES_MAX]; /* 0 = free */
	uint32_t n_started;
};

/*
 * Starts the fixture; like all of these it fails the test on any error. Skips the program where
 * there are no pidfds.
 */
void processes_init(struct processes *ps);
/* Kills the running processes and removes the directory. */
void processes_fini(struct processes *ps);

/*
 * Starts program (of RLV_BIN_DIR, unless it is a path) with the arguments, NULL-ended; stdout and
 * stderr go to DIR/log.N. Returns its pid.
 */
pid_t processes_start(struct processes *ps, const char *program, const char *const *args);

/* Forks a child that runs fn and ends with its result; the child has nothing of ps. */
pid_t processes_fork(struct processes *ps, int (*fn)(void *ctx), void *ctx);

/* Waits for the end: exit status, 128 + signal, or -1 when it did not end in time. */
int processes_wait(struct processes *ps, pid_t pid, int timeout_ms);
/* Sends the signal, and waits for the end if it kills. */
void processes_kill(struct processes *ps, pid_t pid, int signal);
bool processes_runs(const struct processes *ps, pid_t pid);

/* Prints the output of a process. True if it contains `words`. */
bool processes_log_has(const struct processes *ps, pid_t pid, const char *words);

/*
 * Starts the daemons of a store and waits until they listen. extra: NULL-ended, or NULL. Memory nodes
 * have the transport that RLV_TEST_TRANSPORT names.
 */
pid_t processes_metad(struct processes *ps, const char *store, const char *const *extra);
pid_t processes_memnode(struct processes *ps, const char *store, const char *name,
			const char *const *extra);

/* Calls fn every 5 ms until it returns true. False if it did not within PROCESSES_WAIT_MS. */
bool processes_until(bool (*fn)(void *ctx), void *ctx);

void processes_sleep_ns(int64_t ns);

/* DIR/name */
void processes_path(const struct processes *ps, const char *name, char out[PROCESSES_PATH + 64]);

/* A TCP port that nobody listens on right now. */
uint16_t processes_free_port(void);

/* The token of a store whose server has run: 64 digits and a 0. */
#define PROCESSES_TOKEN_BYTES 65
void processes_token(const struct processes *ps, const char *store, char *token);

#endif
