#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#include "wire/control/announce.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct fixture {
	char dir[TEMP_DIR_BYTES];
	char path[TEMP_DIR_BYTES + 16];
};

static int setup(void **state)
{
	static struct fixture fixture;

	temp_dir_make(fixture.dir);
	snprintf(fixture.path, sizeof(fixture.path), "%s/store.uri", fixture.dir);
	*state = &fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	temp_dir_remove(f->dir);
	return 0;
}

#define ON_FILE(test) TEST_WITH(test, setup, teardown)

static const struct announcement here = { "node-7.cluster", 40123, TOKEN };

static void put_text(const struct fixture *f, const char *text)
{
	int fd = open(f->path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void expect_read(const struct fixture *f, const struct announcement *want)
{
	struct announcement news;

	assert_int_equal(announce_read(f->path, &news), 0);
	assert_string_equal(news.host, want->host);
	assert_int_equal(news.port, want->port);
	assert_string_equal(news.token, want->token);
}

ON_FILE(announce_write__is_read_again)
{
	const struct announcement v6 = { "fe80::1", 1, "relive-write-3-x" };
	struct fixture *f = *state;
	struct stat st;

	assert_int_equal(announce_write(f->path, &here), 0);
	expect_read(f, &here);
	assert_int_equal(stat(f->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(announce_write(f->path, &v6), 0);
	expect_read(f, &v6);
}

ON_FILE(announce_write__names_the_folder_that_is_missing)
{
	struct fixture *f = *state;
	char path[TEMP_DIR_BYTES + 32];

	snprintf(path, sizeof(path), "%s/missing/store.uri", f->dir);
	assert_int_equal(announce_write(path, &here), -ENOENT);
	assert_non_null(strstr(error_last(), "/missing/"));
}

/* As on a full disk: the file may not grow beyond 10 bytes. What clean-up meets is not told instead. */
ON_FILE(announce_write__leaves_the_last_one_where_there_is_no_space)
{
	struct fixture *f = *state;
	struct rlimit before, small;

	assert_int_equal(announce_write(f->path, &here), 0);
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	small = (struct rlimit){ .rlim_cur = 10, .rlim_max = before.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(announce_write(f->path, &here), -ENOSPC);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	announce_remove("/nowhere/store.uri", &here);
	assert_non_null(strstr(error_last(), "No space left"));
	expect_read(f, &here);
}

ON_FILE(announce_read__refuses_a_file_that_others_may_read_or_that_is_none)
{
	struct fixture *f = *state;
	struct announcement news = { .port = 99 };

	assert_int_equal(announce_read(f->path, &news), -ENOENT);
	assert_int_equal(announce_write(f->path, &here), 0);
	assert_int_equal(chmod(f->path, 0640), 0);
	assert_int_equal(announce_read(f->path, &news), -EACCES);
	assert_int_equal(announce_read(f->dir, &news), -EACCES);
	assert_int_equal(news.port, 99);
}

ON_FILE(announce_read__refuses_what_is_no_announcement)
{
	static const char *const bad[] = {
		"",
		"\n\n",
		"relive://h:1\n",
		"relive://h:1\n" TOKEN,
		"relive://h:\n" TOKEN "\n",
		"relive://h:0\n" TOKEN "\n",
		"relive://h:65536\n" TOKEN "\n",
		"relive://h:1x\n" TOKEN "\n",
		"relive://:1\n" TOKEN "\n",
		"relive://[]:1\n" TOKEN "\n",
		"relive://h\n" TOKEN "\n",
		"http://h:1\n" TOKEN "\n",
	};
	struct fixture *f = *state;
	struct announcement news = { .port = 99 };
	char longest[1024];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		put_text(f, bad[i]);
		if (announce_read(f->path, &news) != -EPROTO)
			fail_msg("taken: %s", bad[i]);
	}
	memset(longest, 'x', sizeof(longest));
	memcpy(longest, "relive://", 9);
	snprintf(longest + 300, sizeof(longest) - 300, ":1\n" TOKEN "\n");
	put_text(f, longest);
	assert_int_equal(announce_read(f->path, &news), -EPROTO);
	assert_int_equal(news.port, 99);
}

ON_FILE(announce_remove__leaves_the_file_of_another_server)
{
	const struct announcement other = { "node-7.cluster", 40124, TOKEN };
	struct fixture *f = *state;

	assert_int_equal(announce_write(f->path, &other), 0);
	announce_remove(f->path, &here);
	expect_read(f, &other);
	announce_remove(f->path, &other);
	assert_int_equal(access(f->path, F_OK), -1);
	announce_remove(f->path, &other);
}

int main(void)
{
	return test_run(NULL, NULL);
}
