/*
 * Daemon: what both mains share: the command line, the log, exit codes.
 */
#ifndef RLV_SERVER_DAEMON_DAEMON_H
#define RLV_SERVER_DAEMON_DAEMON_H

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

enum daemon_exit {
	DAEMON_OK = 0,
	DAEMON_FAILED = 1,
	DAEMON_USAGE = 2,
	DAEMON_BUSY = 3,      /* another process has the name */
	DAEMON_NO_MEMORY = 4, /* or no room for the pool */
	DAEMON_REFUSED = 5,   /* by the metadata server, for good */
};

/* The exit code for an error. */
enum daemon_exit daemon_exit_of(int code);

/* The options that both daemons have: --log..., --help, --version, --metrics, and --tls-...
   (daemon_set_tls). */
enum {
	DAEMON_OPT_LOG = 256,
	DAEMON_OPT_LOG_LEVEL,
	DAEMON_OPT_LOG_FORMAT,
	DAEMON_OPT_HELP,
	DAEMON_OPT_VERSION,
	DAEMON_OPT_METRICS,
	DAEMON_OPT_TLS_CERT,
	DAEMON_OPT_TLS_KEY,
	DAEMON_OPT_TLS_CA,
};

#define DAEMON_LOG_OPTIONS \
	{ "log", required_argument, NULL, DAEMON_OPT_LOG }, \
		{ "log-level", required_argument, NULL, DAEMON_OPT_LOG_LEVEL }, \
	{ \
		"log-format", required_argument, NULL, DAEMON_OPT_LOG_FORMAT \
	}

#define DAEMON_METRICS_USAGE \
	"  --metrics [IP:]PORT   serve http://IP:PORT/metrics (Prometheus) and /healthz; without IP on\n" \
	"                        127.0.0.1. It has no token: not for networks that are not trusted\n"

#define DAEMON_TLS_OPTIONS \
	{ "tls-cert", required_argument, NULL, DAEMON_OPT_TLS_CERT }, \
		{ "tls-key", required_argument, NULL, DAEMON_OPT_TLS_KEY }, \
	{ \
		"tls-ca", required_argument, NULL, DAEMON_OPT_TLS_CA \
	}
#define DAEMON_TLS_USAGE \
	"  --tls-cert FILE, --tls-key FILE, --tls-ca FILE\n" \
	"                        PEM files: TCP connections prove certificates of this CA to\n" \
	"                        each other, beside the token. All three; without them the\n" \
	"                        token is the key of TLS\n"

#define DAEMON_ENVIRONMENT_USAGE \
	"Environment\n" \
	"  RELIVE_RUNTIME_DIR  directory of sockets (default $XDG_RUNTIME_DIR/relive)\n"

struct option;
struct tls_files;

struct daemon_program {
	const char *name;
	const char *usage;
	const struct option *options;                          /* those of both daemons, too */
	int (*set)(void *opts, int option, const char *value); /* an option of its own */
};

/*
 * Gives the program's options to its set, opens the log (default stderr). 1: --help or --version was
 * there and is answered, so the program ends. -EINVAL.
 */
RLV_MUST_CHECK int daemon_parse(const struct daemon_program *program, int argc, char **argv,
				void *opts);

/* Says the last error and where help is, on stderr. DAEMON_USAGE. */
int daemon_refuse(const struct daemon_program *program);

/* Takes a --tls-... option; value is borrowed. -EINVAL: another option. */
RLV_MUST_CHECK int daemon_set_tls(struct tls_files *files, int option, const char *value);

/* BYTES with K, M, G or T behind. -EINVAL. */
RLV_MUST_CHECK int daemon_parse_size(const char *text, uint64_t *bytes_out);
/* Seconds, with a fraction. -EINVAL. */
RLV_MUST_CHECK int daemon_parse_seconds(const char *text, uint64_t *ns_out);
/* [HOST]:PORT, HOST or relive://HOST:PORT; host_out is "" without one. -EINVAL. */
RLV_MUST_CHECK int daemon_parse_address(const char *text, char host_out[256], uint16_t *port_out);

#endif
