#include "cli/host/cmdline.h"

#include <argz.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/os/clock.h"

void cmdline_add(struct cmdline *line, const char *arg)
{
	size_t len = strlen(arg) + 1;

	if (line->error)
		return;
	if (len > sizeof(line->text) - line->len ||
	    argz_count(line->text, line->len) == CMDLINE_MAX_ARGS) {
		line->error = error_set(
			-E2BIG, "command line with %.40s: more than %d arguments or %d bytes", arg,
			CMDLINE_MAX_ARGS, CMDLINE_BYTES);
		return;
	}
	memcpy(line->text + line->len, arg, len);
	line->len += len;
}

const char *cmdline_next(const struct cmdline *line, const char *arg)
{
	return argz_next(line->text, line->len, arg);
}

static const char *cmdline_find(const struct cmdline *line, const char *name)
{
	const char *arg = NULL;

	while ((arg = cmdline_next(line, arg)) != NULL && strcmp(arg, name) != 0)
		;
	return arg;
}

/* Also finds --name=value, which a daemon started by hand may have. */
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

void cmdline_set(struct cmdline *line, const char *name, const char *value)
{
	const char *at = cmdline_find(line, name);
	const char *old = at ? cmdline_next(line, at) : NULL;

	if (!value)
		return;
	if (old) {
		size_t from = (size_t)(at - line->text);
		size_t to = (size_t)(old - line->text) + strlen(old) + 1;

		memmove(line->text + from, line->text + to, line->len - to);
		line->len -= to - from;
	}
	cmdline_add(line, name);
	cmdline_add(line, value);
}

void cmdline_set_bytes(struct cmdline *line, const char *name, uint64_t bytes)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)bytes);
	cmdline_set(line, name, bytes ? text : NULL);
}

void cmdline_set_ns(struct cmdline *line, const char *name, int64_t ns)
{
	char text[32];

	snprintf(text, sizeof(text), "%.9g", ns == INT64_MAX ? 0 : (double)ns / CLOCK_NS_PER_S);
	cmdline_set(line, name, ns ? text : NULL);
}

void cmdline_set_path(struct cmdline *line, const char *name, const char *path)
{
	char here[PATH_MAX] = "", full[2 * PATH_MAX];

	if (!path)
		return;
	if (path[0] != '/' && !getcwd(here, sizeof(here)) && !line->error)
		line->error = error_set(-errno, "%s %.64s: working directory: %m", name, path);
	snprintf(full, sizeof(full), "%s%s%s", here, here[0] ? "/" : "", path);
	cmdline_set(line, name, full);
}

void cmdline_merge(struct cmdline *line, const struct cmdline *other)
{
	const char *name = NULL;

	while ((name = cmdline_next(other, name)) != NULL) {
		const char *value = cmdline_next(other, name);

		cmdline_set(line, name, value);
		name = value;
	}
	if (!line->error)
		line->error = other->error;
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
	line_out->error = 0;
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
