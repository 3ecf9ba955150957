#include "server/log_file.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int log_file_open(const char *path, struct log_file *log_out)
{
	FILE *file = fopen(path, "ae");
	struct stat st;

	if (!file)
		return error_set(-EINVAL, "log %s: %s", path, strerror(errno));
	*log_out = (struct log_file){ .file = file, .path = path };
	if (fstat(fileno(file), &st) == 0 && S_ISREG(st.st_mode))
		log_out->bytes = (uint64_t)st.st_size;
	return 0;
}

/* Whoever started us may have given us the same file for what we do not log. */
static void take_along(FILE *former, FILE *file)
{
	struct stat there, mine;

	if (fstat(fileno(former), &mine) == 0 && fstat(STDERR_FILENO, &there) == 0 &&
	    mine.st_ino == there.st_ino && mine.st_dev == there.st_dev) {
		(void)dup2(fileno(file), STDOUT_FILENO);
		(void)dup2(fileno(file), STDERR_FILENO);
	}
}

static void begin_anew(struct log_file *log)
{
	char former[PATH_MAX];
	int n = snprintf(former, sizeof(former), "%s.1", log->path);
	FILE *file;

	log->bytes = 0; /* also when it cannot be: the next try is after as many bytes */
	if (n < 0 || (size_t)n >= sizeof(former) || rename(log->path, former))
		return;
	file = fopen(log->path, "ae");
	if (!file)
		return;
	take_along(log->file, file);
	(void)fclose(log->file);
	log->file = file;
}

void log_file_write(struct log_file *log, const char *line)
{
	if (log->path && log->bytes >= LOG_FILE_BYTES)
		begin_anew(log);
	(void)fputs(line, log->file);
	(void)fflush(log->file);
	log->bytes += strlen(line);
}
