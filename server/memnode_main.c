/*
 * relive-memnode: a memory node.
 */
#include "server/daemon.h"
#include "server/memnode.h"
#include "server/version.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

static void usage(FILE *file)
{
	fputs("Usage: relive-memnode --name NAME --store STORE [options]\n"
	      "Offers memory to a Relive store, and is passive on the data path.\n\n"
	      "  --name NAME      of this node, one in its store\n"
	      "  --store STORE    the store that it belongs to\n"
	      "  --size BYTES     of the pool, with K, M, G or T (default 1G, or the file's size)\n"
	      "  --file PATH      keep the pool in a file; made if it is not there\n"
	      "  --dax PATH       keep the pool on a DAX device\n"
	      "  --metad URI      relive://HOST:PORT of the metadata server (default: the\n"
	      "                   store's socket on this host; token from RELIVE_TOKEN then)\n"
	      "  --log FILE       append log lines to FILE instead of stderr\n"
	      "  --help, --version\n\n"
	      "Exit: 0 stopped by SIGTERM or SIGINT, 1 failed, 2 usage, 3 the node runs already,\n"
	      "4 no memory or room for the pool, 5 refused by the metadata server.\n"
	      "Directory of sockets: RELIVE_RUNTIME_DIR, else $XDG_RUNTIME_DIR/relive.\n",
	      file);
}

enum { OPT_NAME = 1, OPT_STORE, OPT_SIZE, OPT_FILE, OPT_METAD, OPT_LOG, OPT_HELP, OPT_VERSION };

static const struct option options[] = {
	{ "name", required_argument, NULL, OPT_NAME },
	{ "store", required_argument, NULL, OPT_STORE },
	{ "size", required_argument, NULL, OPT_SIZE },
	{ "file", required_argument, NULL, OPT_FILE },
	{ "dax", required_argument, NULL, OPT_FILE },
	{ "metad", required_argument, NULL, OPT_METAD },
	{ "log", required_argument, NULL, OPT_LOG },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

static char metad_host[256];

static int set_option(struct memnode_opts *opts, int option, const char *value, FILE **log)
{
	switch (option) {
	case OPT_NAME:
		opts->name = value;
		return 0;
	case OPT_STORE:
		opts->store = value;
		return 0;
	case OPT_SIZE:
		return daemon_parse_size(value, &opts->pool_bytes);
	case OPT_FILE:
		opts->path = value;
		return 0;
	case OPT_METAD:
		opts->host = metad_host;
		return daemon_parse_address(value, metad_host, &opts->port);
	case OPT_LOG:
		*log = fopen(value, "ae");
		return *log ? 0 : error_set(-EINVAL, "log %s: cannot be opened", value);
	default:
		return error_set(-EINVAL, "unknown option");
	}
}

static int parse(int argc, char **argv, struct memnode_opts *opts, FILE **log)
{
	int option, ret = 0;

	while (ret == 0 && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == OPT_HELP) {
			usage(stdout);
			exit(DAEMON_OK);
		}
		if (option == OPT_VERSION) {
			puts("relive-memnode " SERVER_VERSION);
			exit(DAEMON_OK);
		}
		ret = set_option(opts, option, optarg, log);
	}
	if (ret == 0 && optind < argc)
		ret = error_set(-EINVAL, "%s: no argument is wanted", argv[optind]);
	if (ret == 0 && (!opts->name || !opts->store))
		ret = error_set(-EINVAL, "--name and --store are wanted");
	return ret;
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
	umask(077);
}

int main(int argc, char **argv)
{
	struct memnode_opts opts = { .stop = &stop };
	struct memnode *node = NULL;
	FILE *log = stderr;
	int ret = parse(argc, argv, &opts, &log);

	if (ret) {
		fprintf(stderr, "relive-memnode: %s\n", error_last());
		usage(stderr);
		return DAEMON_USAGE;
	}
	daemon_log_to(log);
	catch_signals();
	ret = memnode_open(&opts, &node);
	if (ret == 0)
		ret = memnode_run(node);
	if (ret)
		fprintf(stderr, "relive-memnode: %s\n", error_last());
	memnode_close(&node);
	return (int)daemon_exit_of(ret);
}
