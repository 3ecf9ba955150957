/*
 * group.h - groups of users by name.
 */
#ifndef RLV_BASE_OS_GROUP_H
#define RLV_BASE_OS_GROUP_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

/*
 * Finds the group of that name or number, to which this process may give its files. -EINVAL: no
 * such group, -EPERM: this process is not root and not a member. Thread: setup.
 */
RLV_MUST_CHECK int group_find(const char *name, gid_t *gid_out);

/* True if this process is a member. Root has no membership beyond its groups. Thread: any. */
bool group_has_us(gid_t gid);

#endif
