#include "tests/support/fake/fake_verbs_pair.h"

#include "tests/support/test.h"

#include "base/mem/chunk.h"

#include <string.h>

#define BEGIN_NS ((uint64_t)1000 * CLOCK_NS_PER_S)

static void serve(void *ctx)
{
	struct fake_pair *pair = ctx;

	if (pair->tg && pair->tg->ops->progress(pair->tg, 0))
		print_message("progress: %s\n", error_last());
}

void fake_pair_listen(struct fake_pair *pair)
{
	struct target_opts opts = { .pool_bytes = (uint64_t)8 << 20, .buffers = pair->buffers };

	*pair = (struct fake_pair){ .buffers = pair->buffers,
				    .spec = { .kind = 1, .size = (uint64_t)4 << 20 } };
	fake_clock_init(&pair->clock, BEGIN_NS);
	opts.clock = &pair->clock.clock;
	assert_int_equal(transport_target_open("verbs", &opts, &pair->tg), 0);
	assert_int_equal(pair->tg->ops->register_region(pair->tg, &pair->spec), 0);
	if (pair->tg->ops->listen(pair->tg, "127.0.0.1:0"))
		fail_msg("listen: %s", error_last());
	fake_verbs.idle = serve;
	fake_verbs.idle_ctx = pair;
}

int fake_pair_open(struct fake_pair *pair, struct transport **tr_out)
{
	struct transport_opts opts = { .clock = &pair->clock.clock,
				       .timeout_ns = PAIR_TIMEOUT_NS,
				       .client_id = PAIR_CLIENT };

	return transport_open(pair->tg->ops->uri(pair->tg), &opts, tr_out);
}

int fake_pair_attach(struct fake_pair *pair, struct transport *tr, struct region **region_out)
{
	struct region_grant grant;
	int ret = transport_grant(pair->tg, PAIR_CLIENT, pair->spec.id, RIGHT_ALL, &grant);

	return ret ? ret : transport_attach(tr, &grant, region_out);
}

int fake_pair_connect(struct fake_pair *pair)
{
	int ret = fake_pair_open(pair, &pair->tr);

	return ret ? ret : fake_pair_attach(pair, pair->tr, &pair->region);
}

void fake_pair_close(struct fake_pair *pair)
{
	struct chunk_usage usage;

	transport_close(&pair->tr);
	transport_target_close(&pair->tg);
	fake_verbs_end();
	chunk_usage(&usage);
	assert_int_equal(usage.chunks, 0);
}

int fake_pair_setup(void **state)
{
	struct fake_pair *pair = calloc(1, sizeof(*pair));

	assert_non_null(pair);
	*state = pair;
	fake_verbs_begin();
	fake_pair_listen(pair);
	if (fake_pair_connect(pair))
		fail_msg("connect: %s", error_last());
	fake_verbs_forget();
	pair->tr->stats = (struct transport_stats){ 0 };
	return 0;
}

int fake_pair_teardown(void **state)
{
	struct fake_pair *pair = *state;

	fake_pair_close(pair);
	free(pair);
	return 0;
}

uint64_t *fake_pair_word(struct fake_pair *pair, uint64_t off)
{
	return (uint64_t *)(void *)(pair->spec.base + off);
}
