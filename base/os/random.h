/*
 * random.h - bytes that nobody can guess: names, keys and secrets.
 */
#ifndef RLV_BASE_OS_RANDOM_H
#define RLV_BASE_OS_RANDOM_H

#include <stddef.h>

#include "base/error.h"

/* At most 256 bytes. -EIO: the kernel gives none. */
RLV_MUST_CHECK int random_fill(void *out, size_t bytes);

#endif
