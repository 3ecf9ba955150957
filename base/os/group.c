#include "base/os/group.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

bool group_has_us(gid_t gid)
{
	return gid == getegid() || group_member(gid);
}

int group_find(const char *name, gid_t *gid_out)
{
	const struct group *group = getgrnam(name); /* NOLINT(concurrency-mt-unsafe): setup */
	unsigned long number = 0;
	char *end = NULL;
	gid_t gid;

	errno = 0;
	if (!group && *name >= '0' && *name <= '9') /* containers know groups by number only */
		number = strtoul(name, &end, 10);
	if (!group && (!end || *end || errno || number >= UINT_MAX))
		return error_set(-EINVAL, "group %.64s: this host has no group of that name", name);
	gid = group ? group->gr_gid : (gid_t)number;
	if (geteuid() != 0 && !group_has_us(gid))
		return error_set(-EPERM,
				 "group %.64s: uid %u is not in it; log in again if you were "
				 "added to it just now",
				 name, (unsigned int)geteuid());
	*gid_out = gid;
	return 0;
}
