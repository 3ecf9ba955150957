#include "tests/support/memory_node.h"

#include "tests/support/test.h"

#include "base/alloc.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/memnode_pool.h"

#define LOOK_NS (2 * CLOCK_NS_PER_MS)
#define FRAME_NS CLOCK_NS_PER_S

static void must(int ret)
{
	if (ret)
		fail_msg("%s", error_last());
}

static void start(struct memory_node *mn, uint64_t pool_bytes)
{
	struct target_opts opts = {
		.pool_bytes = pool_bytes,
		.path = mn->path[0] ? mn->path : NULL,
		.dir = true,
		.create = true,
		.page_kind = PAGE_SMALL,
	};
	char path[96];

	snprintf(path, sizeof(path), "%s/sock", mn->dir);
	must(transport_target_open("shm", &opts, &mn->target));
	if (mn->path[0])
		must(memnode_pool_begin(mn->target));
	must(mn->target->ops->listen(mn->target, path));
}

static void stop(struct memory_node *mn)
{
	char path[96];

	memory_node_hang_up(mn);
	transport_target_close(&mn->target);
	snprintf(path, sizeof(path), "%s/sock", mn->dir);
	(void)unlink(path);
}

static void init(struct memory_node *mn, const char *name)
{
	memset(mn, 0, sizeof(*mn));
	snprintf(mn->name, sizeof(mn->name), "%s", name);
	temp_dir_make(mn->dir);
}

void memory_node_open(struct memory_node *mn, const char *name, uint64_t pool_bytes)
{
	init(mn, name);
	start(mn, pool_bytes);
}

void memory_node_open_file(struct memory_node *mn, const char *name, uint64_t pool_bytes)
{
	init(mn, name);
	snprintf(mn->path, sizeof(mn->path), "%s/pool", mn->dir);
	start(mn, pool_bytes);
}

void memory_node_restart(struct memory_node *mn)
{
	struct target_stats stats;

	mn->target->ops->stats(mn->target, &stats);
	stop(mn);
	start(mn, mn->path[0] ? 0 : stats.pool_bytes);
}

void memory_node_end_and_restart(struct memory_node *mn)
{
	memnode_pool_end(mn->target);
	memory_node_restart(mn);
}

void memory_node_close(struct memory_node *mn)
{
	stop(mn);
	if (mn->path[0])
		temp_dir_remove(mn->path);
	(void)rmdir(mn->dir);
}

static void answer_one(struct memory_node *mn)
{
	const struct memnode_service svc = {
		.target = mn->target,
		.name = mn->name,
		.uri = mn->target->ops->uri(mn->target),
		.persistent = mn->path[0] != '\0',
	};
	struct memnode_answer answer;
	struct channel_frame frame;

	if (channel_wait(&mn->channel, deadline_after(clock_monotonic(), LOOK_NS)))
		return;
	if (atomic_load(&mn->hold)) {
		(void)poll(NULL, 0, LOOK_NS / CLOCK_NS_PER_MS);
		return;
	}
	if (channel_receive(&mn->channel, deadline_after(clock_monotonic(), FRAME_NS), &frame))
		return;
	memnode_serve(&svc, &frame, &answer);
	if (memnode_reply(&mn->channel, &frame.head, &answer) == 0)
		atomic_fetch_add(&mn->requests, 1);
}

static void *serve_clients(void *arg)
{
	struct memory_node *mn = arg;

	while (!atomic_load(&mn->stop))
		(void)!mn->target->ops->progress(mn->target, LOOK_NS);
	return NULL;
}

static void *run(void *arg)
{
	struct memory_node *mn = arg;
	pthread_t clients;

	if (pthread_create(&clients, NULL, serve_clients, mn))
		return NULL;
	while (!atomic_load(&mn->stop))
		answer_one(mn);
	pthread_join(clients, NULL);
	return NULL;
}

struct node_news memory_node_news(struct memory_node *mn)
{
	struct pool_identity identity;
	struct target_stats stats;
	struct node_news news = {
		.name = mn->name,
		.uri = mn->target->ops->uri(mn->target),
		.pages = "4k",
		.incarnation = mn->target->incarnation,
		.persistent = mn->path[0] != '\0',
	};

	mn->target->ops->stats(mn->target, &stats);
	must(mn->target->ops->identity(mn->target, &identity));
	news.pool_bytes = stats.pool_bytes;
	news.sole_opener = stats.sole_opener;
	memcpy(news.pool, identity.pool_uuid, sizeof(news.pool));
	return news;
}

struct node *memory_node_join(struct memory_node *mn, struct nodes *nodes, bool *replaced_out)
{
	const struct node_news news = memory_node_news(mn);
	struct node *node = NULL;
	struct channel ch;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	channel_init(&ch, fds[0], NULL);
	channel_init(&mn->channel, fds[1], NULL);
	must(nodes_admit(nodes, &news));
	must(nodes_join(nodes, &news, &ch, &node, replaced_out));
	atomic_store(&mn->stop, false);
	assert_int_equal(pthread_create(&mn->thread, NULL, run, mn), 0);
	mn->serving = true;
	return node;
}

void memory_node_hang_up(struct memory_node *mn)
{
	if (!mn->serving)
		return;
	atomic_store(&mn->stop, true);
	pthread_join(mn->thread, NULL);
	channel_fini(&mn->channel);
	mn->serving = false;
}
