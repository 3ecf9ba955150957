#include "cli/doctor/doctor.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "program/interrupt.h"
#include "program/spawn.h"

#include "base/bits.h"
#include "base/os/clock.h"
#include "base/os/process.h"
#include "cli/cli.h"

static const struct check {
	const char *name;
	void (*run)(struct doctor *doctor);
	bool of_store; /* not run without a URI, nor after an error in another one of the store */
} checks[] = {
	{ "versions", doctor_versions, false },   { "runtime-dir", doctor_runtime_dir, false },
	{ "limits", doctor_limits, false },       { "huge-pages", doctor_huge_pages, false },
	{ "clock", doctor_clock, false },         { "memfd", doctor_memfd, false },
	{ "dev-shm", doctor_dev_shm, false },     { "pid-namespace", doctor_pid_namespace, false },
	{ "memlock", doctor_memlock, false },     { "rdma", doctor_rdma, false },
	{ "libfabric", doctor_libfabric, false }, { "gpu", doctor_gpu, false },
	{ "address", doctor_address, true },      { "server", doctor_server, true },
};

static const char *const severities[] = { "ok", "info", "warning", "error" };

void doctor_found(struct doctor *doctor, enum severity severity, const char *fmt, ...)
{
	struct finding *finding = &doctor->found[doctor->n];
	va_list args;

	if (doctor->n == DOCTOR_FINDINGS)
		return;
	finding->check = doctor->check;
	finding->severity = severity;
	va_start(args, fmt);
	vsnprintf(finding->text, sizeof(finding->text), fmt, args);
	va_end(args);
	doctor->n++; /* last, as a check may be killed at any time */
}

bool doctor_line(char line_out[DOCTOR_LINE_BYTES], const char *fmt, ...)
{
	char path[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(path, sizeof(path), fmt, args);
	va_end(args);
	if (process_read_text(path, line_out, DOCTOR_LINE_BYTES) < 0)
		line_out[0] = 0;
	line_out[strcspn(line_out, "\n")] = 0;
	return line_out[0];
}

/* Runs a check in a child, at most for doctor->timeout_ns. */
static void doctor_run(struct doctor *doctor, const struct check *check)
{
	uint64_t deadline = deadline_after(clock_monotonic(), doctor->timeout_ns);
	enum severity severity = check->of_store ? FINDING_ERROR : FINDING_WARNING;
	char text[SPAWN_STATUS_BYTES];
	int status = 0;
	bool ended;
	pid_t pid;

	doctor->check = check->name;
	if (spawn_fork(&pid)) {
		doctor_found(doctor, FINDING_ERROR,
			     "%s\nulimit -u, or a larger pids limit of the container",
			     error_last());
		return;
	}
	if (pid == 0) {
		check->run(doctor);
		_exit(0);
	}
	while (!(ended = spawn_ended(pid, &status)) &&
	       !deadline_expired(clock_monotonic(), deadline))
		interrupt_sleep(CLOCK_NS_PER_MS);
	if (!ended) {
		(void)kill(pid, SIGKILL);
		for (int i = 0; i < 100 && !spawn_ended(pid, &status); i++)
			interrupt_sleep(CLOCK_NS_PER_MS); /* no longer: it may hang in the kernel */
		doctor_found(doctor, severity,
			     "no answer in %.1f s\nrelive doctor --timeout 30s, if it is only slow",
			     (double)doctor->timeout_ns / CLOCK_NS_PER_S);
	} else if (status) {
		doctor_found(doctor, severity,
			     "the check crashed: %s\nsend a report with this output",
			     spawn_status_text(status, text));
	}
}

static void doctor_print(struct finding *finding, struct json *json)
{
	char *fix = strrchr(finding->text, '\n');

	if (fix)
		*fix++ = 0;
	if (fix && !*fix)
		fix = NULL;
	if (!json) {
		printf("%-8s %-14s %s\n", severities[finding->severity], finding->check,
		       finding->text);
		if (fix)
			printf("%23s fix: %s\n", "", fix);
		return;
	}
	json_object_begin(json);
	json_put_string(json, "check", finding->check);
	json_put_string(json, "severity", severities[finding->severity]);
	json_put_string(json, "seen", finding->text);
	if (fix)
		json_put_string(json, "fix", fix);
	json_object_end(json);
}

/* Runs the checks and prints each finding as it comes. Returns the command's exit code. */
static int doctor_examine(struct doctor *doctor, bool as_json)
{
	uint32_t counts[FINDING_ERROR + 1] = { 0 }, shown = 0;
	struct json *json = as_json ? cli_json_begin() : NULL;
	bool way = doctor->uri != NULL;
	int code = CLI_OK;

	if (json) {
		json_key(json, "findings");
		json_array_begin(json);
	}
	for (const struct check *check = checks; check < checks + ARRAY_LEN(checks); check++) {
		if (check->of_store && !way)
			continue;
		doctor_run(doctor, check);
		for (; shown < doctor->n; shown++) {
			counts[doctor->found[shown].severity]++;
			way &= !check->of_store || doctor->found[shown].severity != FINDING_ERROR;
			doctor_print(&doctor->found[shown], json);
		}
	}
	if (json) {
		json_array_end(json);
		json_put_u64(json, "errors", counts[FINDING_ERROR]);
		json_put_u64(json, "warnings", counts[FINDING_WARNING]);
		code = cli_json_end(json);
	} else {
		printf("%u errors, %u warnings\n", counts[FINDING_ERROR], counts[FINDING_WARNING]);
	}
	return counts[FINDING_ERROR] ? CLI_FAILURE : code;
}

int cmd_doctor(int argc, char **argv)
{
	struct cli_common common = CLI_COMMON_INIT;
	const char *word = NULL;
	const struct arg_option options[] = {
		CLI_OPTION_STORE(common),
		CLI_OPTION_JSON(common),
		{ "timeout", "TIME", "longest time of one check (default 5s)", &common.timeout_ns,
		  ARG_DURATION },
	};
	const struct args args = {
		.usage = "doctor [URI] [OPTIONS]",
		.summary =
			"Checks this host, and with a URI or --store the way from here to that store. "
			"Each finding has a\nseverity (ok, info, warning, error), what was seen, and "
			"the line that fixes it. Exit code 1 if\none is an error. Changes nothing.",
		.options = options,
		.n_options = ARRAY_LEN(options),
		.examples = "relive doctor\n"
			    "relive doctor --store replay\n"
			    "RELIVE_TOKEN=TOKEN relive doctor relive://10.0.0.1:7117 --json",
		.positional = &word,
		.max_positional = 1,
	};
	int code = cli_parse(&args, argc, argv);
	bool of_store = common.store || word;
	struct doctor *doctor;

	if (code == CLI_CONTINUE)
		code = cli_take_uri(&common, &word, 1, 0);
	if (code != CLI_CONTINUE)
		return code;
	if (of_store && strncmp(common.uri, "shm:", 4) != 0 &&
	    strncmp(common.uri, "relive://", 9) != 0) {
		cli_error("%s: give shm:NAME or relive://HOST:PORT", common.uri);
		return CLI_USAGE;
	}
	doctor = mmap(NULL, sizeof(*doctor), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (doctor == MAP_FAILED)
		return cli_fail_local(-errno, "map %zu bytes", sizeof(*doctor));
	doctor->uri = of_store ? common.uri : NULL;
	doctor->timeout_ns = common.timeout_ns;
	code = doctor_examine(doctor, common.json);
	munmap(doctor, sizeof(*doctor));
	return code;
}
