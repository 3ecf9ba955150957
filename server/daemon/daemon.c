#include "server/daemon/daemon.h"

#include "server/daemon/log.h"
#include "server/daemon/version.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "wire/tls.h"

#include "base/bits.h"
#include "base/os/clock.h"

#define DEFAULT_PORT 7117

enum daemon_exit daemon_exit_of(int code)
{
	switch (code) {
	case 0:
		return DAEMON_OK;
	case -EBUSY:
	case -EADDRINUSE:
		return DAEMON_BUSY;
	case -ENOMEM:
	case -ENOSPC:
		return DAEMON_NO_MEMORY;
	case -EACCES:
	case -EEXIST:
	case -EPERM:
	case -EPROTO:
		return DAEMON_REFUSED;
	case -EINVAL:
		return DAEMON_USAGE;
	default:
		return DAEMON_FAILED;
	}
}

static int set_option(const struct daemon_program *program, int option, const char *value,
		      void *opts)
{
	switch (option) {
	case DAEMON_OPT_LOG:
		return daemon_log_open(value);
	case DAEMON_OPT_LOG_LEVEL:
		return daemon_log_set_level(value);
	case DAEMON_OPT_LOG_FORMAT:
		return daemon_log_set_format(value);
	case DAEMON_OPT_HELP:
		fputs(program->usage, stdout);
		return 1;
	case DAEMON_OPT_VERSION:
		printf("%s %s\n", program->name, SERVER_VERSION);
		return 1;
	default:
		return program->set(opts, option, value);
	}
}

static int wrong_option(char **argv, int option)
{
	const char *name = argv[optind > 1 ? optind - 1 : 0];

	return option == ':' ? error_set(-EINVAL, "%.64s: needs a value", name)
			     : error_set(-EINVAL, "%.64s: no such option", name);
}

int daemon_refuse(const struct daemon_program *program)
{
	fprintf(stderr, "%s: %s\n  try: %s --help\n", program->name, error_last(), program->name);
	return DAEMON_USAGE;
}

int daemon_parse(const struct daemon_program *program, int argc, char **argv, void *opts)
{
	int option, ret = 0;

	daemon_log_begin();
	opterr = 0; /* it is we who say what is wrong */
	while (ret == 0 && (option = getopt_long(argc, argv, ":", program->options, NULL)) != -1)
		ret = option == '?' || option == ':' ? wrong_option(argv, option)
						     : set_option(program, option, optarg, opts);
	if (ret == 0 && optind < argc)
		ret = error_set(-EINVAL, "%s: no argument is wanted", argv[optind]);
	return ret;
}

int daemon_set_tls(struct tls_files *files, int option, const char *value)
{
	switch (option) {
	case DAEMON_OPT_TLS_CERT:
		files->cert = value;
		return 0;
	case DAEMON_OPT_TLS_KEY:
		files->key = value;
		return 0;
	case DAEMON_OPT_TLS_CA:
		files->ca = value;
		return 0;
	default:
		return error_set(-EINVAL, "unknown option");
	}
}

/* 0 = no such unit. */
static uint64_t unit_bytes(const char *unit)
{
	static const char units[] = "KMGTkmgt";
	const char *at = strchr(units, unit[0]);

	if (unit[0] == '\0')
		return 1;
	return at && unit[1] == '\0' ? UINT64_C(1) << (10 * ((at - units) % 4 + 1)) : 0;
}

int daemon_parse_size(const char *text, uint64_t *bytes_out)
{
	uint64_t number, bytes;
	char *end;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || errno || unit_bytes(end) == 0 ||
	    !checked_mul_u64(number, unit_bytes(end), &bytes))
		return error_set(-EINVAL, "size \"%.32s\": want BYTES, or with K, M, G, T", text);
	*bytes_out = bytes;
	return 0;
}

int daemon_parse_seconds(const char *text, uint64_t *ns_out)
{
	char *end;
	double seconds = strtod(text, &end);

	if (!isdigit((unsigned char)text[0]) || *end || !(seconds > 0) || seconds > 1e9)
		return error_set(-EINVAL, "seconds \"%.32s\": want a number above 0", text);
	*ns_out = (uint64_t)(seconds * (double)CLOCK_NS_PER_S);
	return 0;
}

int daemon_parse_address(const char *text, char host_out[256], uint16_t *port_out)
{
	const char *at = strncmp(text, "relive://", 9) == 0 ? text + 9 : text;
	bool bracket = at[0] == '[';
	const char *host = at + bracket;
	const char *host_end = bracket ? strchr(host, ']') : strrchr(host, ':');
	const char *port = host_end ? strchr(host_end, ':') : NULL;
	unsigned long number = DEFAULT_PORT;
	char *end = NULL;
	size_t len;

	if (bracket && !host_end)
		return error_set(-EINVAL, "address \"%.64s\": no ]", text);
	len = host_end ? (size_t)(host_end - host) : strlen(host);
	if (port) {
		number = strtoul(port + 1, &end, 10);
		if (!isdigit((unsigned char)port[1]) || *end || number > UINT16_MAX)
			return error_set(-EINVAL, "address \"%.64s\": the port is 0 to 65535",
					 text);
	}
	if (len >= 256)
		return error_set(-EINVAL, "address \"%.64s\": host too long", text);
	memcpy(host_out, host, len);
	host_out[len] = '\0';
	*port_out = (uint16_t)number;
	return 0;
}
