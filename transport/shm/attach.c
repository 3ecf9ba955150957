/*
 * attach.c - the initiator's end of the unix socket.
 */
#include "transport/shm/attach.h"

#include <errno.h>

int attach_open(const char *path, const struct transport_opts *opts, struct attach **attach_out,
		bool *persistent_out)
{
	(void)opts;
	(void)attach_out;
	(void)persistent_out;
	return error_set(-ENOTSUP, "transport uri shm:%s: not yet", path);
}

int attach_region(struct attach *attach, const struct region_grant *grant, struct region *region,
		  int *fd_out)
{
	(void)attach;
	(void)grant;
	(void)region;
	(void)fd_out;
	return error_set(-ENOTSUP, "not yet");
}

void attach_close(struct attach *attach, bool forked)
{
	(void)attach;
	(void)forked;
}
