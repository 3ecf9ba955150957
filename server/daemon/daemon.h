/*
 * Daemon: code that the daemons share: command line, log, start, exit codes.
 */
#ifndef RLV_SERVER_DAEMON_DAEMON_H
#define RLV_SERVER_DAEMON_DAEMON_H

#include <stdint.h>
#include <stdio.h>

#include "wire/control/tls.h"

#include "base/error.h"

enum daemon_exit {
	DAEMON_OK = 0,
	DAEMON_FAILED = 1,
	DAEMON_USAGE = 2,
	DAEMON_BUSY = 3,      /* another process has the name */
	DAEMON_NO_MEMORY = 4, /* or no room for the pool */
	DAEMON_REFUSED = 5,   /* refused by the metadata server, for good */
};

/* Exit code of the process for an error code, 0 included; DAEMON_FAILED for all codes without one
   of their own. */
enum daemon_exit daemon_exit_of(int code);

/* Common options of the daemons: --group, --metrics, --tls-...; also --die-with-parent, --log...,
   --help, --version. */
struct daemon_common {
	const char *group;
	const char *metrics;
	struct tls_files tls;
};

/* Long options of a daemon have values from 1 to this. */
#define DAEMON_OPTIONS_MAX 32

struct option;

/* --help prints usage, common options, exit codes, environment, examples. */
struct daemon_program {
	const char *name;
	const char *usage;      /* up to its own options */
	const char *exit_codes; /* from 3 on */
	const char *environment;
	const char *examples;
	const struct option *options; /* its own options; a NULL name ends the list */
	int (*set)(void *opts, int option, const char *value);
};

/*
 * Passes the program's options to its set callback and stores the common ones in *common_out, whose
 * strings point into argv; opens the log (default stderr). 1: --help or --version was printed, the
 * program is to end. -EINVAL: an option is unknown or invalid, or an argument is no option; -ESRCH:
 * --die-with-parent, and there is no parent.
 */
RLV_MUST_CHECK int daemon_parse(const struct daemon_program *program, int argc, char **argv,
				void *opts, struct daemon_common *common_out);

/*
 * For a daemon that serves: SIGPIPE is ignored, what it makes is its user's alone, and it may open as many
 * descriptors as the system allows: each connection, page of a client and extent needs one.
 */
void daemon_prepare(void);

/* Prints the last error and a reference to --help on stderr. Returns DAEMON_USAGE. */
int daemon_refuse(const struct daemon_program *program);

/* Parses a number of bytes, with an optional suffix K, M, G or T (powers of 1024). -EINVAL: other
   text, or more than 64 bits. */
RLV_MUST_CHECK int daemon_parse_size(const char *text, uint64_t *bytes_out);
/* Parses seconds, with an optional fraction, to ns. -EINVAL: not a number in (0, 1e9]. */
RLV_MUST_CHECK int daemon_parse_seconds(const char *text, uint64_t *ns_out);
/* Parses HOST:PORT, :PORT or HOST, also after relive://; IPv6 in brackets. Without a host host_out
   is "", without a port *port_out is 7117. -EINVAL: a bad port, no ], or too long a host. */
RLV_MUST_CHECK int daemon_parse_address(const char *text, char host_out[256], uint16_t *port_out);

#endif
