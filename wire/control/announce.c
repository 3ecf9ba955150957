#include "wire/control/announce.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCHEME "relive://"
#define TEXT_BYTES (ANNOUNCE_HOST_BYTES + TOKEN_TEXT_BYTES + 32)

static int check_private(int fd, const char *path)
{
	struct stat st;

	if (fstat(fd, &st))
		return error_set(-errno, "stat %s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & (S_IRWXG | S_IRWXO)))
		return error_set(-EACCES,
				 "%s: uid %u mode %03o, want a file of our own with mode 0600",
				 path, (unsigned int)st.st_uid, (unsigned int)(st.st_mode & 0777));
	return 0;
}

int announce_write(const char *path, const struct announcement *news)
{
	bool v6 = strchr(news->host, ':') != NULL;
	char part[PATH_MAX], text[TEXT_BYTES];
	int n = snprintf(part, sizeof(part), "%s.XXXXXX", path);
	int len = snprintf(text, sizeof(text), SCHEME "%s%s%s:%u\n%s\n", v6 ? "[" : "", news->host,
			   v6 ? "]" : "", news->port, news->token);
	int fd, ret;

	if (n < 0 || (size_t)n >= sizeof(part))
		return error_set(-ENAMETOOLONG, "announce: path of %d bytes", n);
	fd = mkostemp(part, O_CLOEXEC);
	if (fd < 0)
		return error_set(-errno, "create %s: %s", part, strerror(errno));
	ret = check_private(fd, part);
	errno = ENOSPC; /* of a write that ends early */
	if (ret == 0 && (write(fd, text, (size_t)len) != len || fsync(fd)))
		ret = error_set(-errno, "write %s: %s", part, strerror(errno));
	close(fd);
	if (ret == 0 && rename(part, path))
		ret = error_set(-errno, "rename %s to %s: %s", part, path, strerror(errno));
	if (ret)
		(void)unlink(part);
	return ret;
}

/* Reads the lines of an announcement. False: the text is none. */
static bool announce_parse(char *text, struct announcement *news)
{
	char *host = text + strlen(SCHEME), *line = strchr(text, '\n'), *colon, *end = NULL;
	char *token = line ? line + 1 : NULL;
	unsigned long port;

	if (!token || strncmp(text, SCHEME, strlen(SCHEME)) != 0)
		return false;
	*line = 0;
	line = strchr(token, '\n');
	colon = strrchr(host, ':');
	if (!line || line - token >= TOKEN_TEXT_BYTES || !colon)
		return false;
	*line = 0;
	*colon = 0;
	if (host[0] == '[' && colon[-1] == ']') {
		host++;
		colon[-1] = 0;
	}
	port = strtoul(colon + 1, &end, 10);
	if (*end || port == 0 || port > UINT16_MAX || !*host || strlen(host) >= ANNOUNCE_HOST_BYTES)
		return false;
	news->port = (uint16_t)port;
	memcpy(news->host, host, strlen(host) + 1);
	memcpy(news->token, token, strlen(token) + 1);
	return true;
}

int announce_read(const char *path, struct announcement *news_out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct announcement news;
	char text[TEXT_BYTES];
	ssize_t len;
	int ret;

	if (fd < 0)
		return error_set(-errno, "announcement %s: %s", path, strerror(errno));
	ret = check_private(fd, path);
	len = ret ? 0 : read(fd, text, sizeof(text) - 1);
	if (len < 0)
		ret = error_set(-errno, "read %s: %s", path, strerror(errno));
	close(fd);
	if (ret)
		return ret;
	text[len] = 0;
	if (!announce_parse(text, &news))
		return error_set(-EPROTO, "%s: holds no announcement of a store", path);
	*news_out = news;
	return 0;
}

void announce_remove(const char *path, const struct announcement *news)
{
	struct announcement now = { .port = 0 };
	struct error_kept kept;

	error_keep(&kept);
	if (announce_read(path, &now) == 0 && strcmp(now.host, news->host) == 0 &&
	    now.port == news->port && strcmp(now.token, news->token) == 0)
		(void)unlink(path);
	error_restore(&kept);
}
