#include "bench/weights/codec.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "bench/harness/time.h"
#include "bench/harness/yardstick.h"
#include "bench/weights/change.h"

const char *const codec_role_names[CODEC_ROLES] = {
	[CODEC_MEMCPY] = "memcpy",
	[CODEC_SUM] = "sum",
	[CODEC_DIFF] = "diff",
	[CODEC_APPLY] = "apply",
};

int codec_open(struct codec *c, uint64_t bytes, uint32_t element_bytes, double density,
	       uint64_t seed)
{
	uint64_t room;
	int ret;

	memset(c, 0, sizeof(*c));
	c->array = (struct delta_array){ bytes / element_bytes, element_bytes, seed };
	c->bytes = c->array.elements * element_bytes;
	c->density = density;
	rng_seed(&c->rng, seed, 0);
	room = delta_room(&c->array, c->array.elements);
	ret = pages_alloc(c->bytes, PAGE_THP, &c->now);
	ret = ret ? ret : pages_alloc(c->bytes, PAGE_THP, &c->shadow);
	ret = ret ? ret : pages_alloc(c->bytes, PAGE_THP, &c->reader);
	for (uint32_t i = 0; i < 2; i++)
		ret = ret ? ret : pages_alloc(room, PAGE_THP, &c->deltas[i]);
	if (ret) {
		codec_close(c);
		return ret;
	}
	rng_fill_u64(&c->rng, c->now.ptr, c->bytes / 8);
	memcpy(c->shadow.ptr, c->now.ptr, c->bytes);
	memcpy(c->reader.ptr, c->now.ptr, c->bytes);
	c->published.bytes = c->shadow.ptr;
	c->read.bytes = c->reader.ptr;
	c->published.sum = c->read.sum = delta_sum(&c->array, 0, c->now.ptr, c->bytes);
	return 0;
}

static double timed(struct codec *c, enum codec_role role, uint64_t ns)
{
	double gbps = (double)c->bytes / (double)max_u64(ns, 1);

	series_add(&c->gbps[role], gbps);
	return gbps;
}

static int diff_twice(struct codec *c, struct delta_in deltas_out[2])
{
	uint64_t ns = 0;

	for (uint32_t i = 0; i < 2; i++) {
		struct delta_out out = { .at = c->deltas[i].ptr, .room = c->deltas[i].bytes };
		uint64_t start;
		int ret;

		change_elements(&c->rng, c->now.ptr, c->array.elements, c->array.element_bytes,
				c->density);
		start = time_wall_ns();
		ret = delta_diff(&c->array, &c->published, c->now.ptr, &out);
		ns += time_wall_ns() - start;
		if (ret)
			return ret;
		deltas_out[i] = (struct delta_in){ out.at, out.bytes };
		series_add(&c->wire_ratio, (double)c->bytes / (double)out.bytes);
	}
	(void)timed(c, CODEC_DIFF, ns / 2);
	return 0;
}

int codec_window(struct codec *c)
{
	struct delta_in deltas[2];
	uint64_t start, sum;
	int ret = diff_twice(c, deltas);

	start = time_wall_ns();
	ret = ret ? ret : delta_apply_chain(&c->array, &c->read, deltas, 2);
	if (ret)
		return ret;
	(void)timed(c, CODEC_APPLY, time_wall_ns() - start);
	start = time_wall_ns();
	sum = delta_sum(&c->array, 0, c->reader.ptr, c->bytes);
	(void)timed(c, CODEC_SUM, time_wall_ns() - start);
	start = time_wall_ns();
	memcpy(c->reader.ptr, c->now.ptr, c->bytes);
	yardstick_use(c->reader.ptr);
	(void)timed(c, CODEC_MEMCPY, time_wall_ns() - start);
	if (sum != c->read.sum || sum != c->published.sum)
		return error_set(-EBADMSG, "the sums of publisher and reader differ");
	for (uint32_t role = 0; role < CODEC_ROLES; role++) {
		const struct series *gbps = c->gbps;

		series_add(&c->of_memcpy[role], gbps[role].value[gbps[role].n - 1] /
							gbps[CODEC_MEMCPY].value[gbps[role].n - 1]);
	}
	return 0;
}

void codec_close(struct codec *c)
{
	pages_free(&c->now);
	pages_free(&c->shadow);
	pages_free(&c->reader);
	pages_free(&c->deltas[0]);
	pages_free(&c->deltas[1]);
}
