/*
 * other_user.h - parts of a test run as other users of the host, which root alone can do.
 */
#ifndef RLV_TESTS_SUPPORT_ATTACK_OTHER_USER_H
#define RLV_TESTS_SUPPORT_ATTACK_OTHER_USER_H

#include <stdbool.h>
#include <sys/types.h>

/* User and group numbers for tests; they need not be in /etc/passwd. */
#define OTHER_NODE 65531
#define OTHER_CLIENT 65532
#define OTHER_GROUP 65530

/* Says that the program is skipped, and why: it is not run by root. */
bool other_user_skips(void);

/* Switches this process to uid OTHER_NODE, and back. */
void other_user_begin(void);
void other_user_end(void);

/*
 * Runs fn in a child that is user uid with its own group and, unless it is 0, group; gives the exit
 * status, 128 + a signal. The child can read its own /proc/self/fd, like a program that it started.
 */
int other_user_run(uid_t uid, gid_t group, int (*fn)(void *ctx), void *ctx);

#endif
