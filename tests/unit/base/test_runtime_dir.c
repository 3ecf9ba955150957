#include "tests/support/temp_dir.h"
#include "tests/support/test.h"

#include "base/os/runtime_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[TEMP_DIR_BYTES];

static int setup(void **state)
{
	(void)state;
	temp_dir_make(root);
	return setenv("RELIVE_RUNTIME_DIR", root, 1);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static int teardown(void **state)
{
	(void)state;
	unsetenv("RELIVE_RUNTIME_DIR");
	return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static struct runtime_dir make_dir(void)
{
	struct runtime_dir dir;

	assert_int_equal(runtime_dir_open("s", true, &dir), 0);
	return dir;
}

#define CASE(f) TEST_WITH(f, setup, teardown)

TEST(runtime_name__letters_digits_and_few_marks)
{
	assert_true(runtime_name_is_valid("a"));
	assert_true(runtime_name_is_valid("Store-1_b.c"));
	assert_false(runtime_name_is_valid(""));
	assert_false(runtime_name_is_valid(".hidden"));
	assert_false(runtime_name_is_valid(".."));
	assert_false(runtime_name_is_valid("a/b"));
	assert_false(runtime_name_is_valid("a b"));
	assert_true(runtime_name_is_valid("123456789012345678901234567890123456789012345678"));
	assert_false(runtime_name_is_valid("1234567890123456789012345678901234567890123456789"));
}

CASE(runtime_dir_open__makes_it_for_its_owner_alone)
{
	struct runtime_dir dir = make_dir();
	struct stat st;

	assert_int_equal(stat(dir.path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
}

CASE(runtime_dir_open__absent_gives_enoent)
{
	struct runtime_dir dir;

	assert_int_equal(runtime_dir_open("s", false, &dir), -ENOENT);
}

CASE(runtime_dir_open__open_to_others_gives_eacces)
{
	struct runtime_dir dir = make_dir();

	assert_int_equal(chmod(dir.path, 0770), 0);
	assert_int_equal(runtime_dir_open("s", true, &dir), -EACCES);
	assert_non_null(strstr(error_last(), "770"));
	assert_int_equal(chmod(dir.path, 0751), 0);
	assert_int_equal(runtime_dir_open("s", true, &dir), -EACCES);
}

static void write_file(const struct runtime_dir *dir, const char *name, const char *text,
		       mode_t mode)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir->path, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static unsigned int mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 07777;
}

CASE(runtime_dir_share__lets_a_group_look)
{
	struct runtime_dir dir = make_dir(), again;
	char group[16], socket[RUNTIME_PATH_BYTES];

	assert_false(dir.shared);
	assert_int_equal(runtime_dir_share(&dir, NULL), 0);
	assert_int_equal(mode_of(dir.path), 0700);
	snprintf(group, sizeof(group), "%u", (unsigned int)getegid());
	assert_int_equal(runtime_dir_share(&dir, group), 0);
	assert_int_equal(mode_of(dir.path), 0750);
	assert_int_equal(mode_of(root), 0750);
	assert_int_equal(runtime_dir_open("s", false, &again), 0);
	assert_true(again.shared);
	assert_int_equal(again.group, getegid());
	write_file(&dir, "x.sock", "", 0600);
	assert_int_equal(runtime_dir_share_socket(&again, "x.sock"), 0);
	assert_int_equal(runtime_dir_file(&dir, "x.sock", socket), 0);
	assert_int_equal(mode_of(socket), 0660);
}

CASE(runtime_dir_share__unknown_group_changes_nothing)
{
	struct runtime_dir dir = make_dir();

	assert_int_equal(runtime_dir_share(&dir, "no-such-group"), -EINVAL);
	assert_non_null(strstr(error_last(), "no-such-group"));
	assert_int_equal(mode_of(dir.path), 0700);
	assert_int_equal(mode_of(root), 0700);
}

CASE(runtime_dir_open__a_link_gives_eacces)
{
	char path[128], target[128];
	struct runtime_dir dir;

	snprintf(path, sizeof(path), "%s/s", root);
	snprintf(target, sizeof(target), "%s/t", root);
	assert_int_equal(mkdir(target, 0700), 0);
	assert_int_equal(symlink(target, path), 0);
	assert_int_equal(runtime_dir_open("s", true, &dir), -EACCES);
}

/* An emptyDir of Kubernetes. */
CASE(runtime_dir_open__a_volume_for_everybody_gets_a_folder_of_ours)
{
	char want[160], ours[128];
	struct runtime_dir dir;
	struct stat st;
	int fd, pid;

	snprintf(ours, sizeof(ours), "%s/relive-%u", root, (unsigned int)geteuid());
	snprintf(want, sizeof(want), "%s/s", ours);
	assert_int_equal(chmod(root, 0777), 0);
	assert_int_equal(runtime_dir_open("s", false, &dir), -ENOENT);
	assert_int_equal(runtime_dir_open("s", true, &dir), 0);
	assert_string_equal(dir.path, want);
	assert_int_equal(stat(ours, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(runtime_store_lock("s", &fd, &pid), 0);
	runtime_store_unlock("s", fd, true);
	assert_int_equal(runtime_dir_open("s", false, &dir), 0);
}

/* Somebody was there first: with a folder that others may enter, with a link, with one of their own. */
CASE(runtime_dir_open__a_folder_that_others_made_there_gives_eacces)
{
	char ours[128];
	struct runtime_dir dir;

	snprintf(ours, sizeof(ours), "%s/relive-%u", root, (unsigned int)geteuid());
	assert_int_equal(chmod(root, 0777), 0);
	assert_int_equal(mkdir(ours, 0700), 0);
	assert_int_equal(chmod(ours, 0777), 0);
	assert_int_equal(runtime_dir_open("s", true, &dir), -EACCES);
	assert_non_null(strstr(error_last(), "relive-"));
	assert_int_equal(rmdir(ours), 0);
	assert_int_equal(symlink("/", ours), 0);
	assert_int_equal(runtime_dir_open("s", true, &dir), -EACCES);
	assert_int_equal(unlink(ours), 0);
	if (geteuid() != 0)
		return;
	assert_int_equal(mkdir(ours, 0700), 0);
	assert_int_equal(chown(ours, 12345, 12345), 0);
	assert_int_equal(runtime_dir_open("s", true, &dir), -EACCES);
	assert_non_null(strstr(error_last(), "12345"));
}

CASE(runtime_dir_open__bad_name_gives_einval)
{
	struct runtime_dir dir;

	assert_int_equal(runtime_dir_open("../s", true, &dir), -EINVAL);
	assert_non_null(strstr(error_last(), "../s"));
}

CASE(runtime_dir_open__relative_root_gives_einval)
{
	struct runtime_dir dir;

	setenv("RELIVE_RUNTIME_DIR", "here", 1);
	assert_int_equal(runtime_dir_open("s", true, &dir), -EINVAL);
	setenv("RELIVE_RUNTIME_DIR", root, 1);
}

CASE(runtime_dir_open__xdg_without_our_own_variable)
{
	char want[128];
	struct runtime_dir dir;

	unsetenv("RELIVE_RUNTIME_DIR");
	setenv("XDG_RUNTIME_DIR", root, 1);
	assert_int_equal(runtime_dir_open("s", true, &dir), 0);
	snprintf(want, sizeof(want), "%s/relive/s", root);
	assert_string_equal(dir.path, want);
	unsetenv("XDG_RUNTIME_DIR");
}

CASE(runtime_dir_file__too_long_for_a_socket_gives_enametoolong)
{
	char path[RUNTIME_PATH_BYTES], name[RUNTIME_PATH_BYTES];
	struct runtime_dir dir = make_dir();

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(runtime_dir_file(&dir, name, path), -ENAMETOOLONG);
	assert_int_equal(runtime_dir_file(&dir, "metad.sock", path), 0);
}

CASE(runtime_dir_token_make__is_made_once)
{
	char first[RUNTIME_TOKEN_BYTES], second[RUNTIME_TOKEN_BYTES];
	struct runtime_dir dir = make_dir();
	struct stat st;
	char path[128];

	assert_int_equal(runtime_dir_token(&dir, first), -ENOENT);
	assert_int_equal(runtime_dir_token_make(&dir, first), 0);
	assert_int_equal(strlen(first), 64);
	assert_int_equal(runtime_dir_token_make(&dir, second), 0);
	assert_string_equal(first, second);
	snprintf(path, sizeof(path), "%s/token", dir.path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
}

CASE(runtime_dir_token__readable_by_others_gives_eacces)
{
	struct runtime_dir dir = make_dir();
	char token[RUNTIME_TOKEN_BYTES];

	assert_int_equal(runtime_dir_token_make(&dir, token), 0);
	write_file(&dir, "token", token, 0640);
	assert_int_equal(runtime_dir_token(&dir, token), -EACCES);
}

CASE(runtime_dir_token__half_a_token_gives_eproto)
{
	struct runtime_dir dir = make_dir();
	char token[RUNTIME_TOKEN_BYTES];

	write_file(&dir, "token", "0123", 0600);
	assert_int_equal(runtime_dir_token(&dir, token), -EPROTO);
}

CASE(runtime_dir_lock__held_by_another_process_gives_ebusy)
{
	struct runtime_dir dir = make_dir();
	int fd, pid = 0, status, other;
	pid_t child;

	assert_int_equal(runtime_dir_lock(&dir, "metad", &fd, &pid), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		int ret = runtime_dir_lock(&dir, "metad", &other, &pid);

		_exit(ret == -EBUSY && pid == (int)getppid() ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	runtime_dir_unlock(&dir, "metad", fd);
}

CASE(runtime_dir_lock__stale_pid_file_is_overwritten)
{
	struct runtime_dir dir = make_dir();
	int fd, pid = 0;
	char path[128], text[16] = { 0 };

	write_file(&dir, "metad.pid", "1\n", 0600);
	write_file(&dir, "metad.lock", "", 0600);
	assert_int_equal(runtime_dir_lock(&dir, "metad", &fd, &pid), 0);
	snprintf(path, sizeof(path), "%s/metad.pid", dir.path);
	pid = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(read(pid, text, sizeof(text) - 1) > 0);
	close(pid);
	assert_int_equal(atoi(text), getpid());
	runtime_dir_unlock(&dir, "metad", fd);
	assert_int_equal(access(path, F_OK), -1);
}

/* Tested in a child, because the holder of a lock can take it again. */
static int holder_seen_by_another(const struct runtime_dir *dir, const char *name)
{
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0)
		_exit(runtime_dir_holder(dir, name) == (int)getppid());
	assert_int_equal(waitpid(child, &status, 0), child);
	return WEXITSTATUS(status);
}

CASE(runtime_dir_holder__is_asked_without_a_pid_file)
{
	struct runtime_dir dir = make_dir();
	char path[128];
	int fd, pid;

	snprintf(path, sizeof(path), "%s/metad.pid", dir.path);
	assert_int_equal(runtime_dir_holder(&dir, "metad"), 0);
	assert_int_equal(runtime_dir_lock(&dir, "metad", &fd, &pid), 0);
	assert_int_equal(unlink(path), 0);
	assert_true(holder_seen_by_another(&dir, "metad"));
	runtime_dir_unlock(&dir, "metad", fd);
	assert_int_equal(runtime_dir_holder(&dir, "metad"), 0);
}

/* Tries for the store's lock until it has it, says so, and ends with it. */
static pid_t start_taker(int said)
{
	pid_t child = fork();
	int fd, pid;

	assert_true(child >= 0);
	if (child)
		return child;
	while (runtime_store_lock("s", &fd, &pid) == -EBUSY)
		usleep(1000);
	_exit(write(said, "x", 1) == 1 ? 0 : 1);
}

/* Each removes the file that the others wait for: still one has it at a time, and all get it. */
CASE(runtime_store_lock__of_a_store_that_goes_is_handed_on)
{
	int said[2], fd, pid, status;
	pid_t children[4];
	char word;

	assert_int_equal(pipe(said), 0);
	assert_int_equal(runtime_store_lock("s", &fd, &pid), 0);
	for (int i = 0; i < 4; i++)
		children[i] = start_taker(said[1]);
	runtime_store_unlock("s", fd, true);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(read(said[0], &word, 1), 1);
		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		assert_int_equal(status, 0);
	}
	close(said[0]);
	close(said[1]);
}

CASE(runtime_store_lock__ends_with_its_process)
{
	int fd, pid, status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		(void)!runtime_store_lock("s", &fd, &pid);
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(runtime_store_lock("s", &fd, &pid), 0);
	runtime_store_unlock("s", fd, true);
}

int main(void)
{
	return test_run(NULL, NULL);
}
