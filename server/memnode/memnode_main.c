/*
 * relive-memnode: a memory node.
 */
#include "server/daemon/daemon.h"
#include "server/daemon/log.h"
#include "server/memnode/memnode.h"

#include "wire/control.pb-c.h"

#include "base/mem/guard.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#if RLV_HAVE_JEMALLOC
#include "base/jemalloc/arena.h"
#endif

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

static const char usage[] =
	"Usage: relive-memnode --name NAME --store STORE [options]\n"
	"Serves a pool of memory to a Relive store. Passive on the data path.\n\n"
	"Options\n"
	"  --name NAME           of this node, unique in its store\n"
	"  --store STORE         the store that it belongs to\n"
	"  --size BYTES          size of the pool, with K, M, G or T (default 1G; of a pool that\n"
	"                        exists, its size)\n"
	"  --file PATH           keep the pool in the directory PATH, which is created if missing,\n"
	"                        one file per region; or on a DAX device. Refused: a regular file\n"
	"                        (these are pools of embed:FILE), a directory that holds other\n"
	"                        files, other devices, a read-only file system\n"
	"  --dax PATH            the same, for a DAX device\n"
	"  --pages auto|huge|small\n"
	"                        pages of a pool in memory: transparent huge pages where the host\n"
	"                        grants them (auto), reserved huge pages while there are any, or\n"
	"                        4 KiB\n"
	"  --trust-clients       give clients of this host descriptors of the DAX device, each of\n"
	"                        which opens all of it. Without it they are refused, and only\n"
	"                        verbs and ofi serve\n"
	"  --adopt               the pool belongs to another store, or holds tables that this store\n"
	"                        does not know: take those that are whole into the catalog\n"
	"  --discard             erase what the pool holds and the store does not know; with\n"
	"                        --adopt, what cannot be adopted. Without either such a pool is\n"
	"                        refused\n"
	"  --metad URI           relive://HOST:PORT of the metadata server, with the token in\n"
	"                        RELIVE_TOKEN, or relive://@FILE, which the server announces\n"
	"                        itself in (default: the store's socket on this host)\n"
	"  --transport auto|shm|verbs|ofi\n"
	"                        how clients reach the memory (default auto: shm if the metadata\n"
	"                        server is on this host and --listen is not given, else verbs if\n"
	"                        there is an RDMA device, else ofi; relive status says why)\n"
	"  --listen HOST:PORT    verbs, ofi: address that accepts clients (default any, :0)\n"
	"  --interface NAME      verbs, ofi: accept them at the address of this interface\n"
	"  --ports LOW-HIGH      ofi: use ports of this range only: one, and with --provider one\n"
	"                        for each link\n"
	"  --provider NAME       ofi: provider of libfabric for long READs (default none)\n";

static const char exit_codes[] = "  3  the node runs already\n"
				 "  4  no memory, or no room for the pool\n"
				 "  5  refused by the metadata server\n";

static const char environment[] =
	"  RELIVE_TOKEN        token of a store whose server is on another host; with @FILE it\n"
	"                      goes before the one in the file\n"
	"  RELIVE_TLS_CERT, RELIVE_TLS_KEY, RELIVE_TLS_CA\n"
	"                      PEM files, where --tls-... are not given\n";

static const char examples[] =
	"  relive-memnode --store replay --name a --size 8G\n"
	"  relive-memnode --store replay --name b --metad relive://10.0.0.1:7117 --transport verbs\n";

enum {
	OPT_NAME = 1,
	OPT_STORE,
	OPT_SIZE,
	OPT_FILE,
	OPT_PAGES,
	OPT_METAD,
	OPT_TRANSPORT,
	OPT_LISTEN,
	OPT_ADOPT,
	OPT_DISCARD,
	OPT_TRUST_CLIENTS,
	OPT_INTERFACE,
	OPT_PORTS,
	OPT_PROVIDER,
};

static const struct option options[] = {
	{ "name", required_argument, NULL, OPT_NAME },
	{ "store", required_argument, NULL, OPT_STORE },
	{ "size", required_argument, NULL, OPT_SIZE },
	{ "file", required_argument, NULL, OPT_FILE },
	{ "dax", required_argument, NULL, OPT_FILE },
	{ "pages", required_argument, NULL, OPT_PAGES },
	{ "transport", required_argument, NULL, OPT_TRANSPORT },
	{ "listen", required_argument, NULL, OPT_LISTEN },
	{ "interface", required_argument, NULL, OPT_INTERFACE },
	{ "ports", required_argument, NULL, OPT_PORTS },
	{ "provider", required_argument, NULL, OPT_PROVIDER },
	{ "trust-clients", no_argument, NULL, OPT_TRUST_CLIENTS },
	{ "adopt", no_argument, NULL, OPT_ADOPT },
	{ "discard", no_argument, NULL, OPT_DISCARD },
	{ "metad", required_argument, NULL, OPT_METAD },
	{ NULL, 0, NULL, 0 },
};

static char metad_host[256];

static int parse_ports(const char *text, uint16_t ports_out[2])
{
	char *end = NULL;
	unsigned long low = strtoul(text, &end, 10);
	unsigned long high = *end == '-' ? strtoul(end + 1, &end, 10) : 0;

	if (low == 0 || high < low || high > UINT16_MAX || *end)
		return error_set(-EINVAL, "--ports %.32s: want LOW-HIGH, as 7200-7299", text);
	ports_out[0] = (uint16_t)low;
	ports_out[1] = (uint16_t)high;
	return 0;
}

static int set_option(void *ctx, int option, const char *value)
{
	static const char *const pages[] = {
		[PAGE_SMALL] = "small",
		[PAGE_THP] = "auto",
		[PAGE_HUGETLB] = "huge",
	};
	struct memnode_opts *opts = ctx;
	const char **const texts[] = {
		[OPT_NAME] = &opts->name,           [OPT_STORE] = &opts->store,
		[OPT_FILE] = &opts->path,           [OPT_LISTEN] = &opts->listen,
		[OPT_TRANSPORT] = &opts->transport, [OPT_INTERFACE] = &opts->interface,
		[OPT_PROVIDER] = &opts->provider,
	};

	switch (option) {
	case OPT_SIZE:
		return daemon_parse_size(value, &opts->pool_bytes);
	case OPT_TRUST_CLIENTS:
		opts->trust_clients = true;
		return 0;
	case OPT_ADOPT:
		opts->claim |= RELIVE__POOL_CLAIM__POOL_ADOPT;
		return 0;
	case OPT_DISCARD:
		opts->claim |= RELIVE__POOL_CLAIM__POOL_DISCARD;
		return 0;
	case OPT_PAGES:
		for (enum page_kind kind = PAGE_SMALL; kind <= PAGE_HUGETLB; kind++)
			if (strcmp(value, pages[kind]) == 0) {
				opts->pages = kind;
				return 0;
			}
		return error_set(-EINVAL, "--pages %.16s: want auto, huge or small", value);
	case OPT_PORTS:
		return parse_ports(value, opts->ports);
	case OPT_METAD:
		if (strncmp(value, "relive://@", strlen("relive://@")) == 0) {
			opts->host = value + strlen("relive://");
			return 0;
		}
		opts->host = metad_host;
		return daemon_parse_address(value, metad_host, &opts->port);
	default:
		*texts[option] = value;
		return 0;
	}
}

static const struct daemon_program program = {
	.name = "relive-memnode",
	.usage = usage,
	.exit_codes = exit_codes,
	.environment = environment,
	.examples = examples,
	.options = options,
	.set = set_option,
};

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct memnode_opts opts = { .pages = PAGE_THP, .stop = &stop };
	struct memnode *node = NULL;
	struct daemon_common common;
	int ret = daemon_parse(&program, argc, argv, &opts, &common);

	if (ret > 0)
		return DAEMON_OK;
	if (ret == 0 && (!opts.name || !opts.store))
		ret = error_set(-EINVAL, "--name NAME or --store STORE is missing");
	if (ret == 0 && opts.claim && !opts.path)
		ret = error_set(-EINVAL, "--adopt, --discard: need a pool with --file or --dax");
	if (ret)
		return daemon_refuse(&program);
	opts.group = common.group;
	opts.metrics = common.metrics;
	opts.tls = common.tls;
	tls_take_program();
#if RLV_HAVE_JEMALLOC
	opts.buffers = &arena_hooks;
#endif
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	daemon_prepare();
	ret = guard_install();
	if (ret == 0)
		ret = memnode_open(&opts, &node);
	if (ret == 0)
		ret = memnode_run(node);
	if (ret)
		daemon_log_failure(program.name);
	memnode_close(&node);
	return (int)daemon_exit_of(ret);
}
