#include "client/pool/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/os/runtime_dir.h"

#define RETRY_NS (20 * CLOCK_NS_PER_MS)

static LOCK_ROLE(lease_role, "lease of device memory", LOCK_RANK_CHANNEL);

int lease_connect(const char *pool, int *sock_out)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char folder[RUNTIME_PATH_BYTES], path[RUNTIME_PATH_BYTES];
	struct runtime_dir dir;
	int sock, ret;

	if (!runtime_name_is_valid(pool))
		return error_set(-EINVAL, "pool \"%.64s\": want letters, digits, _ - .", pool);
	(void)snprintf(folder, sizeof(folder), "pool-%s", pool);
	ret = runtime_dir_visit(folder, &dir);
	if (ret == 0)
		ret = runtime_dir_file(&dir, "poold.sock", path);
	if (ret)
		return error_prefix(ret, "pool %s: ", pool);
	memcpy(address.sun_path, path, sizeof(address.sun_path));
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0)
		return error_set(-errno, "socket: %s", strerror(errno));
	if (connect(sock, (struct sockaddr *)&address, sizeof(address))) {
		ret = errno == EACCES || errno == EPERM ? -EACCES : -EHOSTDOWN;
		ret = error_set(ret, "pool %s: connect to %s: %s: start relive-poold", pool, path,
				strerror(errno));
		close(sock);
		return ret;
	}
	*sock_out = sock;
	return 0;
}

/* Receives the answer to a request; passes WAKEs over. */
static int lease_answer(int sock, struct lease_message *message, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd ready = { .fd = sock, .events = POLLIN };
		int ret = lease_receive(sock, message);

		if (ret == 0 && message->head.type != LEASE_WAKE)
			return 0;
		if (ret && ret != -EAGAIN)
			return ret;
		if (ret == -EAGAIN && deadline_expired(clock_monotonic(), deadline_ns))
			return error_set(-ETIMEDOUT, "the pool's broker does not answer");
		if (ret == -EAGAIN)
			(void)poll(&ready, 1, deadline_left_ms(clock_monotonic(), deadline_ns));
	}
}

int lease_call(int sock, struct lease_message *message, enum lease_type type, uint64_t deadline_ns)
{
	int ret = lease_send(sock, message, type);

	if (ret == -EAGAIN)
		ret = error_set(-ETIMEDOUT, "the pool's broker does not read");
	return ret ? ret : lease_answer(sock, message, deadline_ns);
}

static int lease_status(const struct lease_message *message)
{
	if (message->head.type != LEASE_ANSWER)
		return error_set(-EPROTO, "the pool's broker answers with type %u",
				 message->head.type);
	if (message->answer.status == 0)
		return 0;
	return error_set(message->answer.status, "%s", message->answer.text);
}

int lease_ask(struct lease *lease, struct lease_message *message, enum lease_type type)
{
	int ret = lease_call(lease->sock, message, type,
			     deadline_after(clock_monotonic(), LEASE_ANSWER_NS));

	if (ret) { /* a later answer would be taken for that of another request */
		lease->broken = true;
		return error_set(-ECONNRESET, "pool %s: %s", lease->pool, error_last());
	}
	return lease_status(message);
}

static int lease_hello(struct lease *lease, struct lease_message *message)
{
	int ret;

	memset(message, 0, sizeof(*message));
	message->hello = lease->hello;
	message->fds[0] = lease->pidfd;
	message->fds[1] = lease->page_fd;
	message->fds[2] = lease->permit_fd;
	message->n_fds = 3;
	ret = lease_ask(lease, message, LEASE_HELLO);
	if (ret)
		return ret;
	lease->hello.incarnation = message->answer.incarnation;
	lease->hello.device = message->answer.device + 1;
	return 0;
}

int lease_open(struct lease *lease, struct lease_message *answer_out)
{
	int ret = lease_connect(lease->pool, &lease->sock);

	if (ret)
		return ret;
	lock_init(&lease->lock, &lease_role);
	ret = lease_hello(lease, answer_out);
	if (ret)
		lease_close(lease);
	return ret == -ECONNRESET ? error_set(-EHOSTDOWN, "%s", error_last()) : ret;
}

void lease_close(struct lease *lease)
{
	close(lease->sock);
	lock_fini(&lease->lock);
}

/* Connects anew and presents what the job holds. */
static int lease_resume(struct lease *lease)
{
	struct lease_message message;
	int sock = -1, ret;

	lease_permit_drop(lease->permit); /* it was the former broker's */
	ret = lease_connect(lease->pool, &sock);
	if (ret)
		return ret;
	/* Threads in lease_wait poll the number. */
	ret = dup3(sock, lease->sock, O_CLOEXEC) < 0 ? error_set(-errno, "dup3: %m") : 0;
	close(sock);
	if (ret == 0) {
		lease->broken = false;
		ret = lease_hello(lease, &message);
	}
	if (ret == 0)
		ret = lease->present(lease->ctx);
	if (ret)
		lease->broken = true;
	else
		lease->resumed++;
	return ret;
}

/* True if a broker may yet come back. */
static bool lease_may_return(int ret)
{
	return ret == -EHOSTDOWN || ret == -ECONNRESET || ret == -ENOENT;
}

static int lease_mend(struct lease *lease, uint64_t deadline_ns)
{
	const struct timespec pause = { .tv_nsec = RETRY_NS };
	int ret = 0;

	while (lease->broken) {
		ret = lease_resume(lease);
		if (ret == 0 || !lease_may_return(ret) ||
		    deadline_expired(clock_monotonic(), deadline_ns))
			break;
		(void)nanosleep(&pause, NULL);
	}
	if (ret && lease_may_return(ret))
		return error_set(-EHOSTDOWN, "%s", error_last());
	return ret;
}

int lease_request(struct lease *lease, struct lease_message *message, enum lease_type type,
		  uint64_t deadline_ns)
{
	struct lease_message request = *message;
	uint32_t resumed;
	int ret;

	lock_acquire(&lease->lock, &lease_role);
	resumed = lease->resumed;
	do {
		ret = lease_mend(lease, deadline_ns);
		/* A job that has come back has not presented what it gives. */
		if (ret == 0 && (type != LEASE_GIVE || resumed == lease->resumed)) {
			*message = request;
			ret = lease_ask(lease, message, type);
		}
	} while (ret == -ECONNRESET && !deadline_expired(clock_monotonic(), deadline_ns));
	lock_release(&lease->lock, &lease_role);
	return ret == -ECONNRESET ? error_set(-EHOSTDOWN, "%s", error_last()) : ret;
}

bool lease_begin(const struct lease *lease)
{
	struct pollfd gone = { .fd = lease->sock, .events = POLLRDHUP };

	return lease_permit_allows(lease->permit) && poll(&gone, 1, 0) == 0 &&
	       lease_permit_begin(lease->permit, clock_now_ns(clock_monotonic()));
}

void lease_wait(const struct lease *lease, uint64_t deadline_ns)
{
	uint64_t look = deadline_after(clock_monotonic(), LEASE_LOOK_NS);
	struct pollfd ready = { .fd = lease->sock, .events = POLLIN };

	(void)poll(&ready, 1, deadline_left_ms(clock_monotonic(), deadline_min(look, deadline_ns)));
}
