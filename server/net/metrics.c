#include "server/net/metrics.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/os/clock.h"

int metrics_open(struct metrics *m)
{
	*m = (struct metrics){ .name = "" };
	m->file = open_memstream(&m->text, &m->bytes);
	return m->file ? 0 : error_set(-ENOMEM, "metrics: cannot allocate memory");
}

int metrics_close(struct metrics *m)
{
	return fclose(m->file) ? error_set(-ENOMEM, "metrics: cannot allocate memory") : 0;
}

void metrics_family(struct metrics *m, const char *name, enum metrics_kind kind, const char *help)
{
	m->name = name;
	fprintf(m->file, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
		kind == METRICS_COUNTER ? "counter" : "gauge");
}

static void put_name(struct metrics *m, const struct metrics_label *labels)
{
	char before = '{';

	fputs(m->name, m->file);
	for (; labels && labels->key; labels++) {
		fprintf(m->file, "%c%s=\"", before, labels->key);
		for (const char *text = labels->value; *text; text++) {
			if (*text == '\\' || *text == '"')
				fputc('\\', m->file);
			if (*text == '\n')
				fputs("\\n", m->file);
			else
				fputc(*text, m->file);
		}
		fputc('"', m->file);
		before = ',';
	}
	if (before == ',')
		fputc('}', m->file);
	fputc(' ', m->file);
}

void metrics_u64(struct metrics *m, uint64_t value, const struct metrics_label *labels)
{
	put_name(m, labels);
	fprintf(m->file, "%" PRIu64 "\n", value);
}

void metrics_milli(struct metrics *m, uint64_t milli, const struct metrics_label *labels)
{
	put_name(m, labels);
	fprintf(m->file, "%" PRIu64 ".%03" PRIu64 "\n", milli / 1000, milli % 1000);
}

void metrics_seconds(struct metrics *m, uint64_t ns, const struct metrics_label *labels)
{
	put_name(m, labels);
	fprintf(m->file, "%" PRIu64 ".%09" PRIu64 "\n", ns / CLOCK_NS_PER_S, ns % CLOCK_NS_PER_S);
}

/* -------- the process -------- */

/* Resident memory of this process: second field, in pages, of /proc/self/statm. 0: unreadable. */
static uint64_t resident_bytes(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	uint64_t pages = 0;
	char line[128];
	char *end;

	if (!file)
		return 0;
	if (fgets(line, sizeof(line), file)) {
		(void)strtoull(line, &end, 10);
		pages = strtoull(end, NULL, 10);
	}
	fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint64_t n = 0;

	if (!dir)
		return 0;
	while (readdir(dir)) /* NOLINT(concurrency-mt-unsafe): a private stream */
		n++;
	closedir(dir);
	return n < 3 ? 0 : n - 3; /* ".", ".." and the directory itself */
}

void metrics_process(struct metrics *m)
{
	metrics_family(m, "process_cpu_seconds_total", METRICS_COUNTER,
		       "User and system CPU time of the process, in seconds.");
	metrics_seconds(m, clock_read_ns(CLOCK_PROCESS_CPUTIME_ID), NULL);
	metrics_family(m, "process_resident_memory_bytes", METRICS_GAUGE,
		       "Resident memory of the process, mapped pools included, in bytes.");
	metrics_u64(m, resident_bytes(), NULL);
	metrics_family(m, "process_open_fds", METRICS_GAUGE, "Open file descriptors.");
	metrics_u64(m, open_descriptors(), NULL);
}
