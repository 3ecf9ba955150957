/*
 * serve.c - the target's socket.
 */
#include "transport/shm/serve.h"

#include <errno.h>

int serve_open(struct target *target, const char *path, struct serve **serve_out)
{
	(void)target;
	(void)serve_out;
	return error_set(-ENOTSUP, "listen on %s: not yet", path);
}

void serve_close(struct serve *serve, bool forked)
{
	(void)serve;
	(void)forked;
}

int serve_progress(struct serve *serve)
{
	(void)serve;
	return 0;
}

int serve_poll_fd(const struct serve *serve)
{
	(void)serve;
	return -1;
}

void serve_drop_client(struct serve *serve, struct client *client)
{
	(void)serve;
	(void)client;
}
