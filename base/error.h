/*
 * error.h - the meaning of error codes, and the message of the last error.
 *
 * Every fallible function returns 0 or -errno. A code says what is dead afterwards, so that a
 * caller can act on it without knowing where it came from:
 *
 *   dead        code            meaning                                        what to do
 *   ---------   -------------   --------------------------------------------   --------------------
 *   nothing     -EAGAIN         back-pressure, or a word was not as expected   poll, then retry
 *               -EBUSY          in use: children open, block held, lock held   release, then retry
 *               -EINTR          the caller asked the wait to stop              as the caller likes
 *   the call    -EINVAL         an argument is wrong; the message names it     correct the caller
 *               -ERANGE         a number is outside what the object holds      correct the caller
 *               -EOVERFLOW      sizes whose sum or product does not fit        correct the caller
 *               -ENOENT         no object of that name                         create it
 *               -EEXIST         the name is taken, or has another signature    choose another
 *               -ENODATA        below the minimum size, or nothing to draw     insert, then retry
 *               -ENOSPC         pool, ring, slots or table full                free, then retry
 *               -ENOMEM         no memory for the call                         free, then retry
 *               -ENOTSUP        this transport or build cannot do it           use another
 *               -EACCES         the right, token or file mode forbids it       ask for the right
 *               -ESTALE         the version, epoch or generation moved on      re-read, then retry
 *               -ETIMEDOUT      the deadline passed; the outcome is unknown    re-read the words
 *               -EBADMSG        a checksum does not match its bytes            re-read; then report
 *   the handle  -EOWNERDEAD     we were fenced: our blocks are not ours        re-attach
 *               -ECHILD         the handle was made before fork()              open in the child
 *               -EBADF          the handle is closed                           open again
 *   connection  -ECONNRESET     the connection is gone; words may be changed   reconnect, re-read
 *               -ECONNREFUSED   nobody answers there: nothing was asked        retry later
 *               -EPROTO         the peer's layout, version or framing differs  do not retry
 *   node        -EHOSTDOWN      the node is dead; its regions are lost         use the other nodes
 *
 * A code that is not listed comes from the kernel as it is and kills the call only.
 *
 * The message is kept in a thread-local buffer of fixed size: recording it allocates nothing and
 * cannot fail. It says which argument or which call failed, and does not guess the cause.
 */
#ifndef RLV_BASE_ERROR_H
#define RLV_BASE_ERROR_H

#include <stdbool.h>
#include <stdint.h>

#define RLV_MUST_CHECK __attribute__((warn_unused_result))
#define RLV_PRINTF(fmt_idx, args_idx) __attribute__((format(printf, fmt_idx, args_idx)))

#define ERROR_TEXT_BYTES 512

/*
 * Records the message of a failure on this thread and returns code, so that a function can end
 * with `return error_set(-EINVAL, "capacity 0: must be at least 1");`. Keeps the global errno.
 * A message longer than the buffer is cut. Thread: any.
 */
int error_set(int code, const char *fmt, ...) RLV_PRINTF(2, 3);

/*
 * The code as the caller wrote it, so that compilers and analysers see that it is not 0. It is
 * evaluated twice.
 */
#define error_set(code, ...) error_same(error_set(code, __VA_ARGS__), code)

static inline int error_same(int recorded, int code)
{
	(void)recorded;
	return code;
}

/*
 * Puts a text before the message that this thread has recorded, as "open table replay: ". Records
 * code in place of the former one, and returns it.
 */
int error_prefix(int code, const char *fmt, ...) RLV_PRINTF(2, 3);

/* The last message of this thread, "" if none. Borrowed until the thread's next error_*. */
const char *error_last(void);

/* The code given with the last message, 0 if none. */
int error_last_code(void);

void error_clear(void);

/* Saves the message of a failed call during its cleanup, whose own failures would overwrite it. */
struct error_kept {
	int code;
	char text[ERROR_TEXT_BYTES];
};

void error_keep(struct error_kept *kept_out);
void error_restore(const struct error_kept *kept);

/* True if a code that a peer sent is 0 or a negative errno of Linux: -1 to -133, EHWPOISON. */
static inline bool error_is_code(int64_t code)
{
	return code <= 0 && code >= -133;
}

/* The name of a code: "EINVAL" for -EINVAL, "E?" for an unknown one. Static. */
const char *error_name(int code);

#endif
