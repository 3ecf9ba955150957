/*
 * placement.h - which of several devices a job goes to.
 *
 * A device where all of its jobs and the new one could be resident goes before one where the job would
 * wait for admission. Of several, GATE_PACK takes the one with the least room left, so that large jobs
 * find room elsewhere; the other orders take the one with the most. Where it waits everywhere, it goes to the device
 * whose jobs ask for the least, beside its budget. A plain function of the gates' state. Thread: owner.
 */
#ifndef RLV_DEVICE_PLACEMENT_H
#define RLV_DEVICE_PLACEMENT_H

#include "device/gate.h"

/* n gates, alike in their order; NULL: the device is not asked. -ENOSPC: the job could run on none. */
RLV_MUST_CHECK int placement_choose(const struct gate *const *gates, uint32_t n,
				    const struct gate_request *request, uint32_t *device_out);

#endif
