/*
 * Remote addresses: a region's number, 1..RPTR_MAX_REGION, 0 = none, and an offset in it.
 *
 * No virtual address and no rkey is ever stored: a client translates the region number with the
 * table it got from the metadata server, so that re-registration is an update of that table.
 */
#ifndef RLV_WIRE_RPTR_H
#define RLV_WIRE_RPTR_H

#include <stdbool.h>

#include "wire/le.h"

#define RPTR_MAX_REGION 4095u
#define RPTR_MAX_OFFSET (UINT64_C(1) << 38)

#endif
