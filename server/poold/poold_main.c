/*
 * relive-poold: the broker of the memory of devices.
 */
#include "server/daemon/daemon.h"
#include "server/daemon/log.h"
#include "server/poold/poold.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"Usage: relive-poold --device host:BYTES|cuda:NUMBER[:BYTES] [options]\n"
	"Shares the memory of devices among jobs of this host (docs/device-pool.md).\n\n"
	"Options\n"
	"  --name NAME           of the pool on this host (default 0)\n"
	"  --device host:BYTES   a device: memory of this host, with K, M, G or T; for several,\n"
	"                        repeat it. A job is on one, which the broker chooses\n"
	"  --device cuda:NUMBER[:BYTES]\n"
	"                        a GPU, by its number for broker and jobs alike (the same\n"
	"                        CUDA_VISIBLE_DEVICES), and how much of it (default 9/10)\n"
	"  --size BYTES          the same as --device host:BYTES\n"
	"  --extent BYTES        unit in which jobs hold memory (default 32M)\n"
	"  --budget BYTES        memory that the jobs of a device may hold together\n"
	"                        (default: all); relive pool limit changes it\n"
	"  --strict              jobs of several users: an extent is new memory for each job.\n"
	"                        Without it, jobs of other users than the first are refused\n"
	"  --order fifo|srtf|fair|priority|round-robin|pack\n"
	"                        which job goes first (default fifo)\n"
	"  --sharing alone|peaks|curves\n"
	"                        which iterations run together: one at a time; those whose\n"
	"                        largest needs fit; those that fit at all times (default)\n"
	"  --aging N             times that later jobs may pass one that does not fit (default 2)\n"
	"  --iteration-limit SECONDS\n"
	"                        others go on when an iteration takes longer (default 60)\n"
	"  --park-after SECONDS  once a job has waited so long to be resident, those that agreed\n"
	"                        to it are parked between iterations, the longest resident\n"
	"                        first (default 10)\n";

static const char exit_codes[] =
	"  3  the pool has a broker already\n"
	"  4  no memory, or no room for the roster\n"
	"  5  refused: a roster is of a device of another size, or of one that is not\n"
	"     given, and has jobs\n";

static const char environment[] = "";

static const char examples[] =
	"  relive-poold --size 8G\n"
	"  relive-poold --device cuda:0:70G\n"
	"  relive-poold --device host:16G --device host:16G --metrics 9117\n";

enum {
	OPT_NAME = 1,
	OPT_SIZE,
	OPT_DEVICE,
	OPT_EXTENT,
	OPT_BUDGET,
	OPT_STRICT,
	OPT_ORDER,
	OPT_SHARING,
	OPT_AGING,
	OPT_ITERATION_LIMIT,
	OPT_PARK_AFTER,
};

static const struct option options[] = {
	{ "name", required_argument, NULL, OPT_NAME },
	{ "size", required_argument, NULL, OPT_SIZE },
	{ "device", required_argument, NULL, OPT_DEVICE },
	{ "extent", required_argument, NULL, OPT_EXTENT },
	{ "budget", required_argument, NULL, OPT_BUDGET },
	{ "strict", no_argument, NULL, OPT_STRICT },
	{ "order", required_argument, NULL, OPT_ORDER },
	{ "sharing", required_argument, NULL, OPT_SHARING },
	{ "aging", required_argument, NULL, OPT_AGING },
	{ "iteration-limit", required_argument, NULL, OPT_ITERATION_LIMIT },
	{ "park-after", required_argument, NULL, OPT_PARK_AFTER },
	{ NULL, 0, NULL, 0 },
};

static int parse_order(const char *text, enum gate_order *order_out)
{
	for (unsigned i = 0; i < GATE_ORDERS; i++) {
		if (strcmp(text, gate_order_name((enum gate_order)i)) == 0) {
			*order_out = (enum gate_order)i;
			return 0;
		}
	}
	return error_set(-EINVAL,
			 "--order %.16s: want fifo, srtf, fair, priority, round-robin or pack",
			 text);
}

static int parse_sharing(const char *text, enum gate_sharing *sharing_out)
{
	for (unsigned i = 0; i < GATE_SHARINGS; i++) {
		if (strcmp(text, gate_sharing_name((enum gate_sharing)i)) == 0) {
			*sharing_out = (enum gate_sharing)i;
			return 0;
		}
	}
	return error_set(-EINVAL, "--sharing %.16s: want alone, peaks or curves", text);
}

static int parse_aging(const char *text, uint32_t *aging_out)
{
	char *end = NULL;
	unsigned long n = strtoul(text, &end, 10);

	if (!*text || *text == '-' || *end || n > 1000000)
		return error_set(-EINVAL, "--aging %.16s: want a number from 0 to 1000000", text);
	*aging_out = (uint32_t)n;
	return 0;
}

/* cuda: 1 + number of the device; 0 = memory of the host. bytes NULL: the default. */
static int add_device(struct poold_opts *opts, uint32_t cuda, const char *bytes)
{
	if (opts->n_devices == POOLD_DEVICES)
		return error_set(-EINVAL, "--device: more than %u", POOLD_DEVICES);
	opts->cuda[opts->n_devices] = cuda;
	opts->n_devices++;
	return bytes ? daemon_parse_size(bytes, &opts->bytes[opts->n_devices - 1]) : 0;
}

static int parse_device(struct poold_opts *opts, const char *text)
{
	char *end = NULL;
	unsigned long number;

	if (strncmp(text, "host:", 5) == 0)
		return add_device(opts, 0, text + 5);
	number = strncmp(text, "cuda:", 5) == 0 && text[5] >= '0' && text[5] <= '9'
			 ? strtoul(text + 5, &end, 10)
			 : 0;
	if (!end || (*end && *end != ':') || number > 1023)
		return error_set(
			-EINVAL,
			"--device %.32s: want host:BYTES, cuda:NUMBER or cuda:NUMBER:BYTES", text);
	return add_device(opts, (uint32_t)number + 1, *end ? end + 1 : NULL);
}

static int set_option(void *ctx, int option, const char *value)
{
	struct poold_opts *opts = ctx;
	struct broker_opts *broker = &opts->broker;

	switch (option) {
	case OPT_NAME:
		opts->name = value;
		return 0;
	case OPT_SIZE:
		return add_device(opts, 0, value);
	case OPT_DEVICE:
		return parse_device(opts, value);
	case OPT_EXTENT:
		return daemon_parse_size(value, &broker->extent_bytes);
	case OPT_BUDGET:
		return daemon_parse_size(value, &broker->budget);
	case OPT_ORDER:
		return parse_order(value, &broker->order);
	case OPT_SHARING:
		return parse_sharing(value, &broker->sharing);
	case OPT_AGING:
		return parse_aging(value, &broker->aging);
	case OPT_ITERATION_LIMIT:
		return daemon_parse_seconds(value, &broker->iteration_ns);
	case OPT_PARK_AFTER:
		return daemon_parse_seconds(value, &broker->park_ns);
	default:
		broker->strict = true;
		return 0;
	}
}

static const struct daemon_program program = {
	.name = "relive-poold",
	.usage = usage,
	.exit_codes = exit_codes,
	.environment = environment,
	.examples = examples,
	.options = options,
	.set = set_option,
};

int main(int argc, char **argv)
{
	struct poold_opts opts = {
		.name = "0",
		.broker = { .extent_bytes = UINT64_C(32) << 20,
			    .sharing = GATE_CURVES,
			    .aging = GATE_AGING,
			    .iteration_ns = 60 * CLOCK_NS_PER_S,
			    .park_ns = 10 * CLOCK_NS_PER_S },
	};
	struct poold *poold = NULL;
	int ret = daemon_parse(&program, argc, argv, &opts, &opts.common);

	if (ret > 0)
		return DAEMON_OK;
	if (ret == 0 && !opts.n_devices)
		ret = error_set(-EINVAL, "--device host:BYTES is missing");
	if (ret == 0 && opts.common.tls.cert)
		ret = error_set(-EINVAL, "--tls-cert: a pool has no connections from other hosts");
	if (ret)
		return daemon_refuse(&program);
	daemon_prepare();
	ret = poold_open(&opts, &poold);
	if (ret == 0)
		ret = poold_run(poold);
	if (ret)
		daemon_log_failure(program.name);
	if (poold)
		poold_close(&poold);
	return (int)daemon_exit_of(ret);
}
