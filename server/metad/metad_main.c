/*
 * relive-metad: the metadata server of a store.
 */
#include "server/daemon/daemon.h"
#include "server/daemon/log.h"
#include "server/metad/metad.h"
#include "server/statedb/restore.h"

#include "base/mem/guard.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

static const char usage[] =
	"Usage: relive-metad --store STORE [options]\n"
	"Keeps the catalog of a Relive store: tables, nodes, clients. Never on a data path.\n\n"
	"Options\n"
	"  --store STORE         name of the store\n"
	"  --listen [HOST]:PORT  also listen on TCP (default host 127.0.0.1, port 7117)\n"
	"  --announce FILE       write where the server listens, and the token, to FILE (0600), which\n"
	"                        others name as relive://@FILE; removed when it ends. Without\n"
	"                        --listen: any port of all addresses of this host\n"
	"  --dir DIR             directory of STORE.db (default: the store's directory)\n"
	"  --lease SECONDS       a client that is silent for this long is suspect (default 10)\n"
	"  --node-lease SECONDS  a memory node that is silent for this long is down (default 1)\n"
	"  --node-lost SECONDS   a node in memory that is down for this long is lost with all its\n"
	"                        items; 0 = never (default 30)\n"
	"  --slow-start SECONDS  time until a new shard gets its full share of new blocks\n"
	"                        (default 10)\n"
	"  --stalled wait|kill   what to do with a suspect client that still runs and holds slots\n"
	"                        (default wait)\n"
	"  --stall-limit SECONDS\n"
	"                        with --stalled kill: kill it after this time (default 60)\n"
	"  --trust               accept rows without checksums (row_crc = 2) from a memory node\n"
	"                        that did not shut down cleanly: a power loss may have torn some\n"
	"  --max-conns N         connections at once (default 1024); an eighth of them, at most\n"
	"                        64, is reserved for clients of this host\n"
	"  --restore FILE        replace the catalog by FILE (of relive backup), then exit\n"
	"  --force               with --restore: even if the store has a catalog\n";

static const char exit_codes[] = "  3  another server runs for this store, or the port is in use\n"
				 "  4  no memory, or the disk is full\n"
				 "  5  the state is of another version\n";

static const char environment[] =
	"  RELIVE_TOKEN        64 hexadecimal digits: the token of a new store\n";

static const char examples[] =
	"  relive-metad --store replay --listen 0.0.0.0:7117 --log-format json\n";

enum {
	OPT_STORE = 1,
	OPT_LISTEN,
	OPT_DIR,
	OPT_LEASE,
	OPT_STALLED,
	OPT_STALL_LIMIT,
	OPT_MAX_CONNS,
	OPT_NODE_LEASE,
	OPT_NODE_LOST,
	OPT_SLOW_START,
	OPT_TRUST,
	OPT_RESTORE,
	OPT_FORCE,
	OPT_ANNOUNCE,
};

struct request {
	struct metad_opts metad;
	struct restore_opts restore; /* without a file: serve */
};

static const struct option options[] = {
	{ "store", required_argument, NULL, OPT_STORE },
	{ "listen", required_argument, NULL, OPT_LISTEN },
	{ "announce", required_argument, NULL, OPT_ANNOUNCE },
	{ "dir", required_argument, NULL, OPT_DIR },
	{ "lease", required_argument, NULL, OPT_LEASE },
	{ "stalled", required_argument, NULL, OPT_STALLED },
	{ "stall-limit", required_argument, NULL, OPT_STALL_LIMIT },
	{ "node-lease", required_argument, NULL, OPT_NODE_LEASE },
	{ "node-lost", required_argument, NULL, OPT_NODE_LOST },
	{ "slow-start", required_argument, NULL, OPT_SLOW_START },
	{ "trust", no_argument, NULL, OPT_TRUST },
	{ "max-conns", required_argument, NULL, OPT_MAX_CONNS },
	{ "restore", required_argument, NULL, OPT_RESTORE },
	{ "force", no_argument, NULL, OPT_FORCE },
	{ NULL, 0, NULL, 0 },
};

static char listen_host[256];

static int set_option(void *ctx, int option, const char *value)
{
	struct request *request = ctx;
	struct metad_opts *opts = &request->metad;
	uint64_t *const seconds[] = {
		[OPT_LEASE] = &opts->lease_ns,           [OPT_STALL_LIMIT] = &opts->stall_ns,
		[OPT_NODE_LEASE] = &opts->node_lease_ns, [OPT_NODE_LOST] = &opts->node_lost_ns,
		[OPT_SLOW_START] = &opts->ramp_ns,
	};
	uint64_t n;
	int ret;

	switch (option) {
	case OPT_RESTORE:
		request->restore.file = value;
		return 0;
	case OPT_FORCE:
		request->restore.force = true;
		return 0;
	case OPT_STORE:
		opts->store = value;
		return 0;
	case OPT_LISTEN:
		opts->listen = true;
		opts->host = listen_host;
		return daemon_parse_address(value, listen_host, &opts->port);
	case OPT_ANNOUNCE:
		opts->announce = value;
		return 0;
	case OPT_DIR:
		opts->dir = value;
		return 0;
	case OPT_STALLED:
		opts->kill_stalled = strcmp(value, "kill") == 0;
		if (!opts->kill_stalled && strcmp(value, "wait") != 0)
			return error_set(-EINVAL, "--stalled %.16s: want wait or kill", value);
		return 0;
	case OPT_TRUST:
		opts->trust = true;
		return 0;
	case OPT_MAX_CONNS:
		ret = daemon_parse_size(value, &n);
		if (ret == 0 && (n == 0 || n > 65536))
			ret = error_set(-EINVAL, "--max-conns %.16s: want 1 to 65536", value);
		opts->max_conns = ret ? 0 : (uint32_t)n;
		return ret;
	default:
		if (option != OPT_NODE_LOST || strcmp(value, "0") != 0)
			return daemon_parse_seconds(value, seconds[option]);
		opts->node_lost_ns = UINT64_MAX;
		return 0;
	}
}

static const struct daemon_program program = {
	.name = "relive-metad",
	.usage = usage,
	.exit_codes = exit_codes,
	.environment = environment,
	.examples = examples,
	.options = options,
	.set = set_option,
};

static int metad_main_serve(const struct metad_opts *opts)
{
	struct metad *md = NULL;
	int ret;

	tls_take_program();
	ret = guard_install();
	if (ret == 0)
		ret = metad_open(opts, &md);
	if (ret == 0)
		ret = metad_run(md);
	if (ret)
		daemon_log_failure(program.name);
	metad_close(&md);
	return ret;
}

int main(int argc, char **argv)
{
	struct request request = { .restore = { .file = NULL } };
	struct metad_opts *metad = &request.metad;
	struct restore_opts *restore = &request.restore;
	int ret = daemon_parse(&program, argc, argv, &request, &metad->common);

	if (ret > 0)
		return DAEMON_OK;
	if (ret == 0 && !metad->store)
		ret = error_set(-EINVAL, "--store STORE is missing");
	if (ret == 0 && restore->force && !restore->file)
		ret = error_set(-EINVAL, "--force: needs --restore");
	if (ret)
		return daemon_refuse(&program);
	daemon_prepare();
	if (metad->announce && !metad->listen) {
		metad->listen = true;
		metad->host = "0.0.0.0";
	}
	if (!restore->file)
		return (int)daemon_exit_of(metad_main_serve(metad));
	restore->store = metad->store;
	restore->dir = metad->dir;
	ret = restore_catalog(restore);
	if (ret)
		daemon_log_failure(program.name);
	return (int)daemon_exit_of(ret);
}
