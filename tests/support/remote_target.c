/*
 * remote_target.c - calls as packets: one question, one answer.
 */
#include "tests/support/remote_target.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define ARGUMENT "remote-target"
#define REGIONS 16

enum op {
	OPEN,
	LISTEN,
	REGISTER,
	UNREGISTER,
	LIST,
	GRANT,
	REVOKE,
	FENCE,
	PERSIST,
	IDENTITY,
	OWN,
	STATS,
	CLOSE
};

struct call {
	enum op op;
	char text[TRANSPORT_URI_BYTES]; /* kind, address or name of a store */
	char path[TRANSPORT_URI_BYTES];
	struct target_opts opts;
	struct target_region spec;
	uint8_t store_uuid[16];
	uint64_t client_id, off, len;
	uint32_t region, rights;
	struct region_range range;
	enum fence_how how;
	size_t n;
};

struct answer {
	int ret;
	char text[ERROR_TEXT_BYTES];
	char uri[TRANSPORT_URI_BYTES];
	uint64_t incarnation;
	struct target_region regions[REGIONS];
	size_t n;
	struct region_grant grant;
	enum fence_result result;
	struct pool_identity identity;
	struct target_stats stats;
	char page_kind[32];
};

/* -------- two hosts -------- */

/* The first that comes to HOST:PORT, or a connection to it. -1, with errno. */
static int join(const char *where, bool listens)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *addr;
	const char *port = strrchr(where, ':');
	char host[128];
	int sock, come = -1;

	(void)snprintf(host, sizeof(host), "%.*s", (int)(port - where), where);
	if (getaddrinfo(host, port + 1, &hints, &addr))
		return -1;
	sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (!listens && connect(sock, addr->ai_addr, addr->ai_addrlen) == 0)
		come = dup(sock);
	else if (listens && bind(sock, addr->ai_addr, addr->ai_addrlen) == 0 && !listen(sock, 1))
		come = accept(sock, NULL, NULL);
	freeaddrinfo(addr);
	close(sock);
	return come;
}

/* -------- the process of the target -------- */

static int open_here(const struct call *call, struct transport_target **tg)
{
	struct target_opts opts = call->opts;

	opts.path = call->path[0] ? call->path : NULL;
	return transport_target_open(call->text, &opts, tg);
}

static int run(struct transport_target *t, const struct call *call, struct answer *answer)
{
	switch (call->op) {
	case LISTEN:
		return t->ops->listen(t, call->text);
	case REGISTER:
		answer->regions[0] = call->spec;
		return t->ops->register_region(t, &answer->regions[0]);
	case UNREGISTER:
		return t->ops->unregister_region(t, call->region);
	case LIST:
		answer->n = call->n;
		return t->ops->list_regions(t, answer->regions, &answer->n);
	case GRANT:
		return t->ops->grant(t, call->client_id, &call->range, call->rights,
				     &answer->grant);
	case REVOKE:
		return t->ops->revoke(t, call->client_id, call->region);
	case FENCE:
		return t->ops->fence(t, call->client_id, call->how, &answer->result);
	case PERSIST:
		return t->ops->persist(t, call->region, call->off, call->len);
	case IDENTITY:
		return t->ops->identity(t, &answer->identity);
	case OWN:
		return t->ops->own(t, call->store_uuid, call->text);
	case STATS:
		t->ops->stats(t, &answer->stats);
		(void)snprintf(answer->page_kind, sizeof(answer->page_kind), "%s",
			       answer->stats.page_kind);
		return 0;
	case OPEN:
	case CLOSE:
		break;
	}
	return -EINVAL;
}

static void serve_call(int sock, struct transport_target **tg)
{
	static struct call call;
	static struct answer answer;

	if (recv(sock, &call, sizeof(call), MSG_WAITALL) != (ssize_t)sizeof(call))
		_exit(0);
	memset(&answer, 0, sizeof(answer));
	error_clear();
	if (call.op == OPEN)
		answer.ret = open_here(&call, tg);
	else if (call.op == CLOSE)
		transport_target_close(tg);
	else
		answer.ret = *tg ? run(*tg, &call, &answer) : -EINVAL;
	(void)snprintf(answer.text, sizeof(answer.text), "%s", error_last());
	if (*tg) {
		answer.incarnation = (*tg)->incarnation;
		(void)snprintf(answer.uri, sizeof(answer.uri), "%s", (*tg)->ops->uri(*tg));
	}
	if (send(sock, &answer, sizeof(answer), MSG_NOSIGNAL) != (ssize_t)sizeof(answer))
		_exit(0);
}

void remote_target_main(int argc, char **argv)
{
	struct transport_target *tg = NULL;
	int sock;

	if (argc != 3 || strcmp(argv[1], ARGUMENT) != 0)
		return;
	sock = strchr(argv[2], ':') ? join(argv[2], true) : (int)strtol(argv[2], NULL, 10);
	if (sock < 0)
		_exit(1);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		struct pollfd ready[2] = { { .fd = sock, .events = POLLIN },
					   { .fd = tg ? tg->ops->poll_fd(tg) : -1,
					     .events = POLLIN } };

		(void)poll(ready, 2, 100);
		if (tg)
			(void)!tg->ops->progress(tg, 0);
		if (ready[0].revents)
			serve_call(sock, &tg);
	}
}

/* -------- the test's process -------- */

struct remote_target {
	struct transport_target tg;
	struct answer answer; /* the last one */
};

/* The other process: started once, and good for one target after the other. */
static struct {
	pid_t owner; /* who started it */
	int sock;
	bool busy;
} worker;

static struct remote_target *of(struct transport_target *tg)
{
	return (struct remote_target *)tg;
}

/* As of a real one: a forked child has a copy, and may only close it. */
static int check(void)
{
	if (worker.owner == getpid())
		return 0;
	return error_set(-ECHILD, "target: it is the parent's");
}

static int ask(struct transport_target *tg, const struct call *call)
{
	struct remote_target *remote = of(tg);
	int ret = check();

	if (ret)
		return ret;
	if (send(worker.sock, call, sizeof(*call), MSG_NOSIGNAL) != (ssize_t)sizeof(*call) ||
	    recv(worker.sock, &remote->answer, sizeof(remote->answer), MSG_WAITALL) !=
		    (ssize_t)sizeof(remote->answer))
		return error_set(-EHOSTDOWN, "the process of the target is gone");
	if (remote->answer.ret)
		return error_set(remote->answer.ret, "%s", remote->answer.text);
	return 0;
}

static int remote_listen(struct transport_target *tg, const char *address)
{
	struct call call = { .op = LISTEN };

	(void)snprintf(call.text, sizeof(call.text), "%s", address);
	return ask(tg, &call);
}

static const char *remote_uri(struct transport_target *tg)
{
	return of(tg)->answer.uri;
}

static int remote_register(struct transport_target *tg, struct target_region *spec)
{
	struct call call = { .op = REGISTER, .spec = *spec };
	int ret = ask(tg, &call);

	if (ret)
		return ret;
	*spec = of(tg)->answer.regions[0];
	spec->base = NULL;
	return 0;
}

static int remote_unregister(struct transport_target *tg, uint32_t region)
{
	struct call call = { .op = UNREGISTER, .region = region };

	return ask(tg, &call);
}

static int remote_list(struct transport_target *tg, struct target_region *regions, size_t *n_inout)
{
	struct call call = { .op = LIST, .n = *n_inout < REGIONS ? *n_inout : REGIONS };
	int ret = ask(tg, &call);

	*n_inout = of(tg)->answer.n;
	for (size_t i = 0; ret == 0 && i < *n_inout; i++) {
		regions[i] = of(tg)->answer.regions[i];
		regions[i].base = NULL;
	}
	return ret;
}

static int remote_grant(struct transport_target *tg, uint64_t client_id,
			const struct region_range *range, uint32_t rights,
			struct region_grant *grant_out)
{
	struct call call = {
		.op = GRANT, .client_id = client_id, .range = *range, .rights = rights
	};
	int ret = ask(tg, &call);

	if (ret == 0)
		*grant_out = of(tg)->answer.grant;
	return ret;
}

static int remote_revoke(struct transport_target *tg, uint64_t client_id, uint32_t region)
{
	struct call call = { .op = REVOKE, .client_id = client_id, .region = region };

	return ask(tg, &call);
}

static int remote_fence(struct transport_target *tg, uint64_t client_id, enum fence_how how,
			enum fence_result *result_out)
{
	struct call call = { .op = FENCE, .client_id = client_id, .how = how };
	int ret = ask(tg, &call);

	if (ret == 0)
		*result_out = of(tg)->answer.result;
	return ret;
}

static int remote_persist(struct transport_target *tg, uint32_t region, uint64_t off, uint64_t len)
{
	struct call call = { .op = PERSIST, .region = region, .off = off, .len = len };

	return ask(tg, &call);
}

static int remote_identity(struct transport_target *tg, struct pool_identity *out)
{
	struct call call = { .op = IDENTITY };
	int ret = ask(tg, &call);

	if (ret == 0)
		*out = of(tg)->answer.identity;
	return ret;
}

static int remote_own(struct transport_target *tg, const uint8_t store_uuid[16],
		      const char *store_name)
{
	struct call call = { .op = OWN };

	memcpy(call.store_uuid, store_uuid, sizeof(call.store_uuid));
	(void)snprintf(call.text, sizeof(call.text), "%s", store_name);
	return ask(tg, &call);
}

static int remote_progress(struct transport_target *tg, uint64_t timeout_ns)
{
	int ret = check();

	(void)tg;
	if (ret == 0)
		(void)poll(NULL, 0, (int)(timeout_ns / (uint64_t)CLOCK_NS_PER_MS));
	return ret;
}

static int remote_poll_fd(struct transport_target *tg)
{
	(void)tg;
	return -1;
}

static void remote_stats(struct transport_target *tg, struct target_stats *out)
{
	struct call call = { .op = STATS };

	*out = (struct target_stats){ .page_kind = "" };
	if (ask(tg, &call))
		return;
	*out = of(tg)->answer.stats;
	out->page_kind = of(tg)->answer.page_kind;
}

static void remote_close(struct transport_target *tg)
{
	struct call call = { .op = CLOSE };

	if (ask(tg, &call) == 0)
		worker.busy = false;
	free(tg);
}

static const struct transport_target_ops remote_ops = {
	.name = "remote",
	.listen = remote_listen,
	.uri = remote_uri,
	.register_region = remote_register,
	.unregister_region = remote_unregister,
	.list_regions = remote_list,
	.grant = remote_grant,
	.revoke = remote_revoke,
	.fence = remote_fence,
	.persist = remote_persist,
	.identity = remote_identity,
	.own = remote_own,
	.progress = remote_progress,
	.poll_fd = remote_poll_fd,
	.stats = remote_stats,
	.close = remote_close,
};

/*
 * A process that has used rdma-core cannot go on in a child of its own: the child is run anew. It
 * ends with us.
 */
static int start(void)
{
	const char *where = getenv("RLV_TEST_TARGET");
	char number[16], self[512] = "";
	int socks[2];
	pid_t pid;

	if (where) {
		worker.sock = join(where, false);
		if (worker.sock < 0)
			return error_set(-errno, "%s: %s", where, strerror(errno));
		worker.owner = getpid();
		return 0;
	}
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, socks))
		return error_set(-errno, "target's process: %s", strerror(errno));
	pid = fork();
	if (pid == 0) {
		(void)snprintf(number, sizeof(number), "%d", socks[1]);
		close(socks[0]);
		(void)execl(self, self, ARGUMENT, number, (char *)NULL);
		_exit(127);
	}
	close(socks[1]);
	if (pid < 0)
		return error_set(-errno, "fork: %s", strerror(errno));
	worker.owner = getpid();
	worker.sock = socks[0];
	return 0;
}

int remote_target_open(const char *kind, const struct target_opts *opts,
		       struct transport_target **tg_out)
{
	struct remote_target *remote = calloc(1, sizeof(*remote));
	struct call call = { .op = OPEN, .opts = *opts };
	int ret = worker.owner ? check() : start();

	if (!remote || ret || worker.busy) {
		free(remote);
		return ret ? ret : error_set(-EBUSY, "one target at a time");
	}
	call.opts.clock = NULL;
	(void)snprintf(call.text, sizeof(call.text), "%s", kind);
	(void)snprintf(call.path, sizeof(call.path), "%s", opts->path ? opts->path : "");
	remote->tg.ops = &remote_ops;
	ret = ask(&remote->tg, &call);
	if (ret) {
		free(remote);
		return ret;
	}
	worker.busy = true;
	remote->tg.incarnation = remote->answer.incarnation;
	*tg_out = &remote->tg;
	return 0;
}
