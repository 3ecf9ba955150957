#include "tests/support/sockets.h"

#include "tests/support/test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 256

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons(port),
				     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static struct sockaddr_un unix_address(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	assert_true(strlen(path) < sizeof(address.sun_path));
	memcpy(address.sun_path, path, strlen(path) + 1);
	return address;
}

static int listen_at(int fd, const void *address, socklen_t len)
{
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, address, len), 0);
	assert_int_equal(listen(fd, BACKLOG), 0);
	return fd;
}

static int connect_to(int fd, const void *address, socklen_t len)
{
	assert_true(fd >= 0);
	if (connect(fd, address, len) == 0)
		return fd;
	close(fd);
	return -1;
}

int sockets_listen_tcp(uint16_t *port)
{
	struct sockaddr_in address = loopback(*port);
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int one = 1;

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
	(void)listen_at(fd, &address, len);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	*port = ntohs(address.sin_port);
	return fd;
}

int sockets_listen_unix(const char *path, int type)
{
	const struct sockaddr_un address = unix_address(path);

	return listen_at(socket(AF_UNIX, type | SOCK_CLOEXEC, 0), &address, sizeof(address));
}

int sockets_connect_tcp(uint16_t port)
{
	const struct sockaddr_in address = loopback(port);

	return connect_to(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), &address,
			  sizeof(address));
}

int sockets_connect_unix(const char *path, int type)
{
	const struct sockaddr_un address = unix_address(path);

	return connect_to(socket(AF_UNIX, type | SOCK_CLOEXEC, 0), &address, sizeof(address));
}

bool sockets_metrics_have(uint16_t port, const char *line)
{
	static const char request[] =
		"GET /metrics HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n";
	static char page[1 << 16];
	size_t n = 0;
	ssize_t got;
	int fd = sockets_connect_tcp(port);

	assert_int_equal(write(fd, request, sizeof(request) - 1), sizeof(request) - 1);
	while (n < sizeof(page) - 1 && (got = read(fd, page + n, sizeof(page) - 1 - n)) > 0)
		n += (size_t)got;
	page[n] = 0;
	close(fd);
	return strstr(page, line) != NULL;
}
