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

/* Containers know groups by number only. */
static bool parse_gid(const char *text, gid_t *gid_out)
{
	char *end;
	unsigned long gid;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	gid = strtoul(text, &end, 10);
	if (*end || errno || gid >= UINT_MAX)
		return false;
	*gid_out = (gid_t)gid;
	return true;
}

int group_find(const char *name, gid_t *gid_out)
{
	const struct group *group = getgrnam(name); /* NOLINT(concurrency-mt-unsafe): setup */
	gid_t gid = group ? group->gr_gid : 0;

	if (!group && !parse_gid(name, &gid))
		return error_set(-EINVAL, "group %.64s: this host has no group of that name", name);
	if (geteuid() != 0 && !group_has_us(gid))
		return error_set(-EPERM,
				 "group %.64s: uid %u is not in it; log in again if you were "
				 "added to it just now",
				 name, (unsigned int)geteuid());
	*gid_out = gid;
	return 0;
}
