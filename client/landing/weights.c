/*
 * weights.c - importance weights: the device computes them behind the copy of a batch, by its kernel, where that loads.
 */
#include "client/landing/state.h"

#include <errno.h>

#include "base/log.h"

bool landing_weighs(const struct rlv_landing *landing)
{
	return landing->weighs;
}

int landing_choose_weights(struct rlv_landing *landing, uint32_t wish) LOCK_UNCHECKED
{
	struct backend *dev = landing->backend;
	int ret;

	landing->info.weights = RLV_LANDING_WEIGHTS_HOST;
	if (wish == RLV_LANDING_WEIGHTS_HOST)
		return 0;
	ret = dev ? dev->ops->gather(dev, landing->streams[0].number,
				     &(struct backend_gather){ 0 }) /* loads the kernels */
		  : error_set(-ENOTSUP, "the device's memory is the host's");
	if (ret == -ENODEV || (ret && wish == RLV_LANDING_WEIGHTS_DEVICE))
		return ret;
	if (ret && dev)
		log_info("landing: the CPU computes importance weights: %s", error_last());
	landing->weighs = ret == 0;
	if (landing->weighs)
		landing->info.weights = RLV_LANDING_WEIGHTS_DEVICE;
	return 0;
}

int landing_queue_weights(struct rlv_landing *landing, const struct landing_buffer *buffer,
			  const struct landing_weights *weights)
{
	uint64_t to = (uint64_t)((const uint8_t *)weights->weights - buffer->host);
	uint64_t from = (uint64_t)((const uint8_t *)weights->probability - buffer->host);
	const struct backend_weights work = { .weights = buffer->at + to,
					      .probability = buffer->at + from,
					      .n = weights->n,
					      .factor = weights->factor,
					      .power = weights->power };
	int ret;

	if (to > buffer->bytes || from > buffer->bytes ||
	    weights->n > (buffer->bytes - to) / sizeof(float) ||
	    weights->n > (buffer->bytes - from) / sizeof(double))
		return error_set(-EINVAL, "landing: weights end behind their buffer");
	ret = landing->backend->ops->weigh(landing->backend, landing->streams[0].number, &work);
	landing->info.weighed += ret == 0;
	return ret;
}
