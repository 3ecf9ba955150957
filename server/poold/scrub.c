#include "server/poold/scrub.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/log.h"

#define POLL_NS (50 * 1000)

int scrub_open(struct backend *backend, uint64_t extent_bytes, uint32_t room,
	       struct scrub *scrub_out)
{
	struct scrub scrub = { .backend = backend, .extent_bytes = extent_bytes, .room = room };
	int ret = backend->ops->reserve(backend, room * extent_bytes, &scrub.va);

	if (ret)
		return ret;
	ret = backend->ops->stream_open(backend, NULL, &scrub.stream);
	if (ret == 0) {
		*scrub_out = scrub;
		return 0;
	}
	if (backend->ops->unreserve(backend, scrub.va, room * extent_bytes))
		log_error("scrub: %s", error_last());
	return ret;
}

static int scrub_unmap(struct scrub *scrub)
{
	int ret = 0;

	while (ret == 0 && scrub->mapped) {
		uint64_t va = scrub->va + (scrub->mapped - 1) * scrub->extent_bytes;

		ret = scrub->backend->ops->unmap(scrub->backend, va, scrub->extent_bytes);
		scrub->mapped -= ret == 0;
	}
	return ret;
}

static int scrub_mark(struct scrub *scrub)
{
	int ret = scrub->backend->ops->stream_mark(scrub->backend, scrub->stream, scrub->seq + 1);

	scrub->seq += ret == 0;
	scrub->unmarked = ret != 0;
	return ret;
}

int scrub_settle(struct scrub *scrub)
{
	uint64_t reached;
	int ret;

	if (!scrub->mapped)
		return 0;
	ret = scrub->unmarked ? scrub_mark(scrub) : 0;
	if (ret == 0)
		ret = scrub->backend->ops->stream_progress(scrub->backend, scrub->stream, &reached);
	if (ret == 0 && reached < scrub->seq)
		ret = error_set(-EAGAIN, "the device still fills extents with zeros");
	return ret ? ret : scrub_unmap(scrub);
}

/* Maps extents and queues their fill and a mark behind it. */
static int scrub_queue(struct scrub *scrub, const uint64_t *handles, uint32_t n)
{
	const struct backend_ops *ops = scrub->backend->ops;
	uint64_t bytes = scrub->extent_bytes;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < n; i++) {
		uint64_t va = scrub->va + i * bytes;

		ret = ops->map(scrub->backend, va, bytes, handles[i]);
		scrub->mapped += ret == 0;
		if (ret == 0)
			ret = ops->set_access(scrub->backend, va, bytes, BACKEND_ACCESS_READ_WRITE);
	}
	if (ret == 0)
		ret = ops->fill(scrub->backend, scrub->stream, scrub->va, n * bytes, 0);
	return ret ? ret : scrub_mark(scrub);
}

void scrub_close(struct scrub *scrub)
{
	const struct backend_ops *ops = scrub->backend ? scrub->backend->ops : NULL;

	if (!ops)
		return;
	if (scrub_settle(scrub) || ops->stream_close(scrub->backend, scrub->stream) ||
	    ops->unreserve(scrub->backend, scrub->va, scrub->room * scrub->extent_bytes))
		log_warn("scrub: %s", error_last());
	memset(scrub, 0, sizeof(*scrub));
}

static int scrub_await(struct scrub *scrub, const struct clock *clock, uint64_t deadline_ns)
{
	const struct timespec pause = { .tv_nsec = POLL_NS };
	int ret;

	while ((ret = scrub_settle(scrub)) == -EAGAIN && !deadline_expired(clock, deadline_ns))
		(void)nanosleep(&pause, NULL);
	return ret;
}

int scrub_extents(struct scrub *scrub, const uint64_t *handles, uint32_t n,
		  const struct clock *clock, uint64_t deadline_ns)
{
	int ret = scrub_await(scrub, clock, deadline_ns);

	if (ret == 0)
		ret = scrub_queue(scrub, handles, n);
	return ret ? ret : scrub_await(scrub, clock, deadline_ns);
}
