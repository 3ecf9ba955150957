#include "client/sampler/sampler.h"

#include "relive/landing.h"

#include <errno.h>
#include <math.h>
#include <string.h>

int readbacks_init(struct rlv_sampler *sp)
{
	struct readbacks *all = &sp->readbacks;
	size_t n = sp->opts.batch_size;

	all->bytes = READBACKS * n * sizeof(float);
	all->keys = mem_alloc(READBACKS * n * sizeof(uint64_t));
	if (!all->keys)
		return error_set(-ENOMEM, "sampler: cannot allocate memory for %zu keys", n);
	for (uint32_t i = 0; i < READBACKS; i++)
		all->ring[i].keys = all->keys + i * n;
	return 0;
}

void readbacks_fini(struct rlv_sampler *sp)
{
	if (sp->readbacks.memory)
		rlv_landing_free(sp->opts.dest, sp->readbacks.memory, sp->readbacks.bytes);
	mem_free(sp->readbacks.keys);
}

int readbacks_apply(struct rlv_sampler *sp, bool wait)
{
	struct readbacks *all = &sp->readbacks;
	int ret = 0;

	while (ret == 0 && all->n) {
		const struct readback *oldest = &all->ring[all->first];

		ret = wait ? landing_await(sp->opts.dest, &oldest->mark)
			   : landing_reached(sp->opts.dest, &oldest->mark);
		if (ret == -EAGAIN)
			return 0;
		if (ret == -ETIMEDOUT)
			break; /* still on its way */
		for (uint32_t i = 0; i < oldest->n; i++)
			oldest->td[i] = fabsf(oldest->td[i]);
		if (ret == 0)
			ret = rlv_sampler_update(sp, oldest->keys, oldest->td, oldest->n, NULL);
		all->first = (all->first + 1) % READBACKS;
		all->n--;
	}
	return ret;
}

/* Its memory is made at the first use: most samplers update from the host. */
static int readbacks_memory(struct rlv_sampler *sp)
{
	struct readbacks *all = &sp->readbacks;
	int ret;

	if (all->memory)
		return 0;
	ret = rlv_landing_alloc(sp->opts.dest, 64, all->bytes, &all->memory);
	for (uint32_t i = 0; ret == 0 && i < READBACKS; i++)
		all->ring[i].td = (float *)all->memory + (size_t)i * sp->opts.batch_size;
	return ret;
}

int rlv_sampler_update_device(struct rlv_sampler *sampler, const uint64_t *keys, uint64_t address,
			      uint32_t n, void *native)
{
	struct readbacks *all = sampler ? &sampler->readbacks : NULL;
	struct readback *next;
	int ret;

	if (!sampler || !sampler->opts.dest)
		return error_set(-EINVAL, "update: want a sampler with opts.dest");
	if (!keys || !address || n == 0 || n > sampler->opts.batch_size)
		return error_set(-EINVAL, "update: want keys and TD errors of 1..%u items",
				 sampler->opts.batch_size);
	ret = readbacks_apply(sampler, false);
	if (ret)
		return ret;
	if (landing_is_in_place(sampler->opts.dest))
		return rlv_sampler_update(sampler, keys, (const float *)(uintptr_t)address, n,
					  NULL);
	if (all->n == READBACKS)
		return error_set(-EBUSY, "update: %d updates are on their way: flush the sampler",
				 READBACKS);
	ret = readbacks_memory(sampler);
	if (ret)
		return ret;
	next = &all->ring[(all->first + all->n) % READBACKS];
	next->n = n;
	memcpy(next->keys, keys, n * sizeof(*keys));
	ret = landing_fetch(sampler->opts.dest,
			    &(struct landing_fetch){ native, next->td, address, n * sizeof(float) },
			    &next->mark);
	all->n += ret == 0;
	return ret;
}
