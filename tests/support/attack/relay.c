#include "tests/support/attack/relay.h"

#include "tests/support/sockets.h"
#include "tests/support/test.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void keep(struct relay_side *side, const uint8_t *bytes, size_t len)
{
	size_t room = sizeof(side->bytes) - side->n;

	len = len < room ? len : room;
	memcpy(side->bytes + side->n, bytes, len);
	side->n += len;
}

/* false: one of them is gone. */
static bool pass_on(struct relay_side *side, int from, int to, size_t change)
{
	uint8_t bytes[4096];
	ssize_t n = recv(from, bytes, sizeof(bytes), 0);

	if (n <= 0)
		return false;
	if (change >= side->n && change - side->n < (size_t)n)
		bytes[change - side->n] ^= 1;
	keep(side, bytes, (size_t)n);
	return send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static void serve(struct relay *relay, int client, int server)
{
	struct pollfd ready[] = { { .fd = client, .events = POLLIN },
				  { .fd = server, .events = POLLIN },
				  { .fd = relay->stop[0], .events = POLLIN } };
	bool going = true;

	while (going && poll(ready, 3, -1) > 0) {
		going = !ready[2].revents;
		if (going && ready[0].revents)
			going = pass_on(&relay->client, client, server, relay->change);
		if (going && ready[1].revents)
			going = pass_on(&relay->server, server, client, SIZE_MAX);
	}
}

static void *run(void *arg)
{
	struct relay *relay = arg;
	struct pollfd ready[] = { { .fd = relay->listener, .events = POLLIN },
				  { .fd = relay->stop[0], .events = POLLIN } };
	int client = -1, server = -1;

	if (poll(ready, 2, -1) > 0 && ready[0].revents)
		client = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC);
	if (client >= 0)
		server = sockets_connect_tcp(relay->server_port);
	if (server >= 0)
		serve(relay, client, server);
	if (client >= 0)
		close(client);
	if (server >= 0)
		close(server);
	return NULL;
}

void relay_open(struct relay *relay, uint16_t server_port, size_t change)
{
	memset(relay, 0, sizeof(*relay));
	relay->server_port = server_port;
	relay->change = change;
	relay->listener = sockets_listen_tcp(&relay->port);
	assert_int_equal(pipe(relay->stop), 0);
	assert_int_equal(pthread_create(&relay->thread, NULL, run, relay), 0);
}

void relay_close(struct relay *relay)
{
	assert_int_equal(write(relay->stop[1], "x", 1), 1);
	assert_int_equal(pthread_join(relay->thread, NULL), 0);
	close(relay->listener);
	close(relay->stop[0]);
	close(relay->stop[1]);
}

bool relay_side_has(const struct relay_side *side, const void *bytes, size_t len)
{
	return memmem(side->bytes, side->n, bytes, len) != NULL;
}
