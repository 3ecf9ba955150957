#include "ds/priority.h"

#include "transport/barrier.h"

#include <errno.h>
#include <math.h>

int priority_check(const float *values, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!(values[i] >= 0 && values[i] <= 3.402823466e+38f))
			return error_set(-EINVAL, "priorities[%zu] %g: want 0 or more, and finite",
					 i, (double)values[i]);
	return 0;
}

/* Rounded up, so that a small priority does not become "no item". */
static uint64_t to_quanta(const struct view_desc *view, double value, uint64_t *clamped)
{
	double quanta = ceil(value * (double)view->scale);

	if (quanta > (double)view->max_prio) {
		(*clamped)++;
		return view->max_prio;
	}
	return quanta < 1 ? 1 : (uint64_t)quanta;
}

uint64_t priority_quanta_one(const struct view_desc *view, double td, uint64_t *clamped)
{
	return to_quanta(view, pow(td + view->eps, view->alpha), clamped);
}

void priority_from_td(const struct view_desc *view, const float *td, size_t n, uint64_t *quanta_out,
		      uint64_t *clamped)
{
	for (size_t i = 0; i < n; i++)
		quanta_out[i] = priority_quanta_one(view, td[i], clamped);
}

void priority_from_value(const struct view_desc *view, const float *priorities, size_t n,
			 uint64_t *quanta_out, uint64_t *clamped)
{
	for (size_t i = 0; i < n; i++)
		quanta_out[i] = to_quanta(view, priorities[i], clamped);
}

void priority_to_value(const struct view_desc *view, const uint64_t *leaf_words, size_t n,
		       float *priorities_out)
{
	double unit = 1 / (double)view->scale;

	for (size_t i = 0; i < n; i++)
		priorities_out[i] = (float)((double)leaf_priority(leaf_words[i]) * unit);
}

void priority_weights(const double *probability, size_t n, double items, double beta, bool by_max,
		      float *weights_out)
{
	double most = 0;

	for (size_t i = 0; i < n; i++) {
		double w = pow(items * probability[i], -beta);

		most = w > most ? w : most;
		weights_out[i] = (float)w;
	}
	for (size_t i = 0; by_max && i < n; i++)
		weights_out[i] = (float)((double)weights_out[i] / most);
}

static uint64_t max_off(const struct shard *shard, uint32_t view)
{
	return shard->desc.views[view].words_off + offsetof(struct view_words, max_priority);
}

int priority_max_read(const struct shard *shard, uint32_t view, uint64_t *quanta_out)
{
	uint64_t off = max_off(shard, view);

	if (!shard->tree->base)
		return transport_load(shard->tree, off, quanta_out);
	*quanta_out = rword64_load_relaxed((const void *)(shard->tree->base + off));
	return 0;
}

int priority_max_raise(const struct shard *shard, uint32_t view, uint64_t quanta)
{
	uint64_t seen;
	uint64_t old;
	int ret = priority_max_read(shard, view, &seen);

	while (ret == 0 && seen < quanta) {
		ret = transport_cas_word(shard->tree, max_off(shard, view), seen, quanta, &old);
		if (ret == 0 && old == seen)
			break;
		seen = old;
	}
	return ret;
}
