#include "cli/host/cmdline.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/os/clock.h"

int cmdline_add(struct cmdline *line, const char *arg)
{
	size_t len = strlen(arg) + 1;
	size_t args = 1;

	for (const char *at = NULL; (at = cmdline_next(line, at)) != NULL;)
		args++;
	if (len > sizeof(line->text) - line->len || args > CMDLINE_MAX_ARGS)
		return error_set(-E2BIG,
				 "command line with %.40s: more than %d arguments or %d bytes", arg,
				 CMDLINE_MAX_ARGS, CMDLINE_BYTES);
	memcpy(line->text + line->len, arg, len);
	line->len += len;
	return 0;
}

const char *cmdline_next(const struct cmdline *line, const char *arg)
{
	const char *next = arg ? arg + strlen(arg) + 1 : line->text;

	return next < line->text + line->len ? next : NULL;
}

static const char *cmdline_find(const struct cmdline *line, const char *name)
{
	const char *arg = NULL;

	while ((arg = cmdline_next(line, arg)) != NULL && strcmp(arg, name) != 0)
		;
	return arg;
}

/* A daemon started by hand may also have --name=value. */
const char *cmdline_get(const struct cmdline *line, const char *name)
{
	const char *arg = cmdline_find(line, name);
	size_t len = strlen(name);

	if (arg)
		return cmdline_next(line, arg);
	while ((arg = cmdline_next(line, arg)) != NULL) {
		if (strncmp(arg, name, len) == 0 && arg[len] == '=')
			return arg + len + 1;
	}
	return NULL;
}

int cmdline_set(struct cmdline *line, const char *name, const char *value)
{
	const char *at = cmdline_find(line, name);
	const char *old = at ? cmdline_next(line, at) : NULL;
	int ret;

	if (!value)
		return 0;
	if (old) {
		size_t from = (size_t)(at - line->text);
		size_t to = (size_t)(old - line->text) + strlen(old) + 1;

		memmove(line->text + from, line->text + to, line->len - to);
		line->len -= to - from;
	}
	ret = cmdline_add(line, name);
	return ret ? ret : cmdline_add(line, value);
}

int cmdline_set_bytes(struct cmdline *line, const char *name, uint64_t bytes)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
	return cmdline_set(line, name, bytes ? text : NULL);
}

int cmdline_set_ns(struct cmdline *line, const char *name, int64_t ns)
{
	char text[32];

	snprintf(text, sizeof(text), "%.9g", ns == INT64_MAX ? 0 : (double)ns / CLOCK_NS_PER_S);
	return cmdline_set(line, name, ns ? text : NULL);
}

int cmdline_set_path(struct cmdline *line, const char *name, const char *path)
{
	char here[PATH_MAX], full[2 * PATH_MAX];

	if (!path || path[0] == '/')
		return cmdline_set(line, name, path);
	if (!getcwd(here, sizeof(here)))
		return error_set(-errno, "%s %.64s: working directory: %m", name, path);
	snprintf(full, sizeof(full), "%s/%s", here, path);
	return cmdline_set(line, name, full);
}

int cmdline_merge(struct cmdline *line, const struct cmdline *other)
{
	const char *name = NULL;
	int ret = 0;

	while (ret == 0 && (name = cmdline_next(other, name)) != NULL) {
		const char *value = cmdline_next(other, name);

		ret = cmdline_set(line, name, value);
		name = value;
	}
	return ret;
}

bool cmdline_equals(const struct cmdline *a, const struct cmdline *b)
{
	return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

size_t cmdline_argv(const struct cmdline *line, const char *argv[CMDLINE_MAX_ARGS + 1])
{
	const char *arg = NULL;
	size_t n = 0;

	while (n < CMDLINE_MAX_ARGS && (arg = cmdline_next(line, arg)) != NULL)
		argv[n++] = arg;
	argv[n] = NULL;
	return n;
}

int cmdline_read(const char *path, struct cmdline *line_out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return error_set(-errno, "open %s: %m", path);
	n = read(fd, line_out->text, sizeof(line_out->text));
	close(fd);
	line_out->len = 0;
	if (n <= 0 || line_out->text[n - 1] != 0)
		return error_set(-EPROTO, "%s: holds no command line", path);
	line_out->len = (size_t)n;
	return 0;
}

int cmdline_of_process(pid_t pid, struct cmdline *line_out)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
	return cmdline_read(path, line_out);
}

int cmdline_write(const char *path, const struct cmdline *line)
{
	char part[PATH_MAX];
	int fd, ret = 0;

	snprintf(part, sizeof(part), "%s.part", path);
	fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return error_set(-errno, "create %s: %m", part);
	if (write(fd, line->text, line->len) != (ssize_t)line->len || fsync(fd))
		ret = error_set(errno ? -errno : -EIO, "write %s: %m", part);
	close(fd);
	if (ret == 0 && rename(part, path))
		ret = error_set(-errno, "rename %s: %m", part);
	return ret;
}
