#include "ds/replay/priority.h"

#include "ds/replay/priority_kernel.h"

#include "transport/barrier.h"

#include "base/os/cpu.h"

#include <errno.h>
#include <float.h>
#include <math.h>

static bool is_good(float value)
{
	return (value >= 0) & (value <= FLT_MAX); /* without a branch */
}

int priority_check(const float *values, size_t n)
{
	uint32_t bad = 0;

	for (size_t i = 0; i < n; i++)
		bad |= !is_good(values[i]);
	for (size_t i = 0; bad && i < n; i++)
		if (!is_good(values[i]))
			return error_set(-EINVAL, "priorities[%zu] %g: want 0 or more, and finite",
					 i, (double)values[i]);
	return 0;
}

static const struct priority_kernel *kernel_of_cpu(void)
{
#if defined(__x86_64__)
	switch (cpu_level()) {
	case CPU_AVX512:
		return &priority_kernel_avx512;
	case CPU_AVX2:
		return &priority_kernel_avx2;
	case CPU_PLAIN:
		break;
	}
#endif
	return &priority_kernel_plain;
}

static struct priority_law bounds_of(const struct view_desc *view)
{
	return (struct priority_law){
		.add = view->eps,
		.power = view->alpha,
		.scale = (double)view->scale,
		.max = (double)view->max_prio,
	};
}

uint64_t priority_quanta_one(const struct view_desc *view, double td, uint64_t *clamped)
{
	struct priority_law bounds = bounds_of(view);
	const float none = 0;
	uint64_t quanta;

	bounds.add += td; /* keeps the full double */
	*clamped += priority_kernel_plain.quanta(&bounds, &none, 1, &quanta);
	return quanta;
}

void priority_from_td(const struct view_desc *view, const float *td, size_t n, uint64_t *quanta_out,
		      uint64_t *clamped)
{
	const struct priority_law bounds = bounds_of(view);

	*clamped += kernel_of_cpu()->quanta(&bounds, td, n, quanta_out);
}

void priority_from_value(const struct view_desc *view, const float *priorities, size_t n,
			 uint64_t *quanta_out, uint64_t *clamped)
{
	struct priority_law bounds = bounds_of(view);

	bounds.add = 0;
	bounds.power = 1;
	*clamped += kernel_of_cpu()->quanta(&bounds, priorities, n, quanta_out);
}

void priority_to_value(const struct view_desc *view, const uint64_t *leaf_words, size_t n,
		       float *priorities_out)
{
	double unit = 1 / (double)view->scale;

	for (size_t i = 0; i < n; i++)
		priorities_out[i] = (float)((double)leaf_priority(leaf_words[i]) * unit);
}

double priority_weights_factor(const double *probability, size_t n, double items)
{
	bool by_max = items <= 0;
	double least = INFINITY;

	/* The smallest probability has the largest weight. */
	for (size_t i = 0; by_max && i < n; i++)
		least = probability[i] < least ? probability[i] : least;
	return by_max ? 1 / least : items;
}

void priority_weights(const double *probability, size_t n, double items, double beta,
		      float *weights_out)
{
	kernel_of_cpu()->powers(probability, n, priority_weights_factor(probability, n, items),
				-beta, weights_out);
}

uint64_t priority_max_off(const struct shard *shard, uint32_t view)
{
	return shard->desc.views[view].words_off + offsetof(struct view_words, max_priority);
}

int priority_max_read(const struct shard *shard, uint32_t view, uint64_t *quanta_out)
{
	uint64_t off = priority_max_off(shard, view);

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
		ret = transport_cas_word(shard->tree, priority_max_off(shard, view), seen, quanta,
					 &old);
		if (ret == 0 && old == seen)
			break;
		seen = old;
	}
	return ret;
}
