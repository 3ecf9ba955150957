#include "base/os/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Fields of /proc/PID/stat count from 1; 1 is the pid, 2 the name in brackets. */
enum { STAT_STATE = 3, STAT_NUM_THREADS = 20, STAT_START_TIME = 22 };

struct stat_fields {
	char state;
	uint64_t num_threads;
	uint64_t start_time;
};

int process_read_text(const char *path, char *buf, size_t room)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	do
		n = read(fd, buf, room - 1);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		n = -errno;
	else
		buf[n] = '\0';
	close(fd);
	return (int)n;
}

static int read_stat(uint32_t pid, struct stat_fields *fields_out)
{
	struct stat_fields fields = { 0 };
	char path[32], text[1024];
	const char *at;
	int n;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	n = process_read_text(path, text, sizeof(text));
	if (n == -EPERM)
		return -EACCES;
	if (n == -ENOENT || n == -ESRCH || n == 0) /* with hidepid another user's look absent */
		return kill((pid_t)pid, 0) && errno == EPERM ? -EACCES : -ESRCH;
	if (n < 0)
		return n;
	at = strrchr(text, ')'); /* the name may hold blanks and brackets */
	if (!at || at[1] != ' ')
		return -EPROTO;
	at += 2;
	fields.state = *at;
	for (int field = STAT_STATE; at && field < STAT_START_TIME; field++) {
		at = strchr(at, ' ');
		at = at ? at + 1 : NULL;
		if (at && field + 1 == STAT_NUM_THREADS)
			fields.num_threads = strtoull(at, NULL, 10);
	}
	if (!at)
		return -EPROTO;
	fields.start_time = strtoull(at, NULL, 10);
	*fields_out = fields;
	return 0;
}

static int read_boot_id(uint8_t boot_id[PROCESS_BOOT_ID_BYTES])
{
	char text[64] = "";
	const char *at = text;
	int n = process_read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text));

	if (n < 0)
		return error_set(-ENOTSUP, "read the boot id in /proc: %s", error_name(n));
	for (size_t i = 0; i < PROCESS_BOOT_ID_BYTES; i++, at += 2) {
		char byte[3] = "", *end;

		at += *at == '-';
		memcpy(byte, at, strnlen(at, 2));
		boot_id[i] = (uint8_t)strtoul(byte, &end, 16);
		if (end != byte + 2)
			return -EPROTO;
	}
	return 0;
}

int process_read(uint32_t pid, struct process_id *id_out)
{
	struct process_id id = { .pid = pid };
	struct stat_fields fields;
	int rc = read_stat(pid, &fields);

	if (rc == -ESRCH)
		return error_set(rc, "no process has pid %u", pid);
	if (rc == -EACCES)
		return error_set(rc, "process %u: /proc hides it (hidepid)", pid);
	if (!rc)
		rc = read_boot_id(id.boot_id);
	if (rc)
		return rc;
	id.start_time = fields.start_time;
	*id_out = id;
	return 0;
}

int process_self(struct process_id *id_out)
{
	int rc = process_read((uint32_t)getpid(), id_out);

	return rc == -ESRCH ? error_set(-ENOTSUP, "/proc has no entry of this process") : rc;
}

bool process_is_stopped(const struct process_id *id)
{
	struct stat_fields fields = { 0 };

	return read_stat(id->pid, &fields) == 0 && fields.start_time == id->start_time &&
	       (fields.state == 'T' || fields.state == 't');
}

bool process_is_gone(const struct process_id *id)
{
	uint8_t boot_id[PROCESS_BOOT_ID_BYTES];
	struct stat_fields fields = { 0 };
	int rc;

	if (!read_boot_id(boot_id) && memcmp(boot_id, id->boot_id, sizeof(boot_id)) != 0)
		return true;
	rc = read_stat(id->pid, &fields);
	if (rc)
		return rc == -ESRCH;
	if (fields.start_time != id->start_time)
		return true;
	/* A zombie leader may leave other threads running; alone, it has given its memory back. */
	return fields.state == 'X' || (fields.state == 'Z' && fields.num_threads <= 1);
}
