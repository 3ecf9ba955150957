#include "server/daemon/daemon.h"

#include "server/daemon/log.h"
#include "server/daemon/version.h"
#include "server/net/http.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/os/clock.h"

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

/* -------- common options -------- */

enum {
	OPT_LOG = 256,
	OPT_LOG_LEVEL,
	OPT_LOG_FORMAT,
	OPT_HELP,
	OPT_VERSION,
	OPT_GROUP,
	OPT_METRICS,
	OPT_TLS_CERT,
	OPT_TLS_KEY,
	OPT_TLS_CA,
	OPT_DIE_WITH_PARENT,
};

static const struct option common_options[] = {
	{ "group", required_argument, NULL, OPT_GROUP },
	{ "metrics", required_argument, NULL, OPT_METRICS },
	{ "tls-cert", required_argument, NULL, OPT_TLS_CERT },
	{ "tls-key", required_argument, NULL, OPT_TLS_KEY },
	{ "tls-ca", required_argument, NULL, OPT_TLS_CA },
	{ "die-with-parent", no_argument, NULL, OPT_DIE_WITH_PARENT },
	{ "log", required_argument, NULL, OPT_LOG },
	{ "log-level", required_argument, NULL, OPT_LOG_LEVEL },
	{ "log-format", required_argument, NULL, OPT_LOG_FORMAT },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

static const char common_usage[] =
	"  --group GROUP         let users of this group connect to the socket: the store's\n"
	"                        directory gets mode 0750, the socket 0660 (default: the group\n"
	"                        of the directory if it has that mode, else only this user)\n"
	"  --metrics [IP:]PORT   serve http://IP:PORT/metrics (Prometheus) and /healthz (default\n"
	"                        IP 127.0.0.1). They ask for no token: use trusted networks only\n"
	"  --tls-cert FILE, --tls-key FILE, --tls-ca FILE\n"
	"                        PEM files: both ends of a TCP connection must show a certificate\n"
	"                        of this CA, beside the token. Give all three; without them the\n"
	"                        token is the key of TLS\n"
	"  --die-with-parent     end, as by SIGTERM, when the thread that started this process ends\n"
	"  --log FILE            append the log to FILE instead of stderr; at 8 MiB it is renamed\n"
	"                        to FILE.1, which is overwritten; SIGHUP reopens FILE\n"
	"  --log-level error|warn|info|debug\n"
	"                        least severe level to log (default info)\n"
	"  --log-format text|json\n"
	"                        json: one object a line with time, level, where, message\n"
	"  --help                print this page\n"
	"  --version             print the version\n";

static const char common_exit_codes[] = "Exit codes\n"
					"  0  stopped by SIGTERM or SIGINT\n"
					"  1  failed\n"
					"  2  wrong usage\n";

static const char common_environment[] =
	"Environment\n"
	"  RELIVE_RUNTIME_DIR  directory of sockets (default $XDG_RUNTIME_DIR/relive)\n";

/*
 * A parent that ends before prctl sends no signal, but another process becomes ours: process 1, unless
 * there is a nearer subreaper.
 */
static int tie_to_parent(void)
{
	pid_t parent = getppid();

	if (prctl(PR_SET_PDEATHSIG, SIGTERM))
		return error_set(-errno, "--die-with-parent: %s", strerror(errno));
	if (parent == 1 || getppid() != parent)
		return error_set(-ESRCH,
				 "--die-with-parent: the process that started this one has ended, "
				 "or is process 1, with which all end: leave the option out");
	return 0;
}

static int set_common(const struct daemon_program *program, int option, const char *value,
		      struct daemon_common *common)
{
	const char **const texts[] = {
		[OPT_GROUP - OPT_LOG] = &common->group,
		[OPT_METRICS - OPT_LOG] = &common->metrics,
		[OPT_TLS_CERT - OPT_LOG] = &common->tls.cert,
		[OPT_TLS_KEY - OPT_LOG] = &common->tls.key,
		[OPT_TLS_CA - OPT_LOG] = &common->tls.ca,
	};

	switch (option) {
	case OPT_LOG:
		return daemon_log_open(value);
	case OPT_LOG_LEVEL:
		return daemon_log_set_level(value);
	case OPT_LOG_FORMAT:
		return daemon_log_set_format(value);
	case OPT_DIE_WITH_PARENT:
		return tie_to_parent();
	case OPT_HELP:
		printf("%s%s\n%s%s\n%s%s\nExamples\n%s", program->usage, common_usage,
		       common_exit_codes, program->exit_codes, common_environment,
		       program->environment, program->examples);
		return 1;
	case OPT_VERSION:
		printf("%s %s\n", program->name, SERVER_VERSION);
		return 1;
	default:
		*texts[option - OPT_LOG] = value;
		return option == OPT_METRICS ? http_check_address(value) : 0;
	}
}

void daemon_prepare(void)
{
	struct rlimit limit;

	signal(SIGPIPE, SIG_IGN);
	umask(077);
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int daemon_refuse(const struct daemon_program *program)
{
	fprintf(stderr, "%s: %s\n  try: %s --help\n", program->name, error_last(), program->name);
	return DAEMON_USAGE;
}

int daemon_parse(const struct daemon_program *program, int argc, char **argv, void *opts,
		 struct daemon_common *common_out)
{
	struct option all[DAEMON_OPTIONS_MAX + ARRAY_LEN(common_options)];
	int option, ret = 0;
	size_t n = 0;

	memset(common_out, 0, sizeof(*common_out));
	for (; n < DAEMON_OPTIONS_MAX && program->options[n].name; n++)
		all[n] = program->options[n];
	memcpy(all + n, common_options, sizeof(common_options));
	daemon_log_begin();
	opterr = 0; /* errors are reported here */
	while (ret == 0 && (option = getopt_long(argc, argv, ":", all, NULL)) != -1) {
		if (option == '?' || option == ':')
			ret = error_set(-EINVAL, "%.64s: %s", argv[optind > 1 ? optind - 1 : 0],
					option == ':' ? "needs a value" : "no such option");
		else if (option >= OPT_LOG)
			ret = set_common(program, option, optarg, common_out);
		else
			ret = program->set(opts, option, optarg);
	}
	if (ret == 0 && optind < argc)
		ret = error_set(-EINVAL, "%s: takes no arguments, only options", argv[optind]);
	return ret;
}

int daemon_parse_size(const char *text, uint64_t *bytes_out)
{
	static const char units[] = "KMGT";
	uint64_t number, unit = 1;
	const char *at = NULL;
	char *end;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (*end)
		at = strchr(units, toupper((unsigned char)*end));
	if (at)
		unit <<= 10 * (at - units + 1);
	if (!isdigit((unsigned char)text[0]) || errno || (*end && (!at || end[1])) ||
	    !checked_mul_u64(number, unit, bytes_out))
		return error_set(-EINVAL, "size \"%.32s\": want BYTES, or with K, M, G, T", text);
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
	unsigned long number = 7117;
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
