/*
 * Holds a call of this process in its middle: its leaves are changed, the sums above them are not,
 * and its pin stands. So a client looks that is stopped or killed there.
 */
#ifndef RLV_TESTS_SUPPORT_MID_CALL_H
#define RLV_TESTS_SUPPORT_MID_CALL_H

/*
 * From now on the next call that changes leaves of a tree calls hold after them, once. If the tree is changed
 * in its mapping hold runs in a signal handler. Returns 0, or -errno.
 */
int mid_call_arm(void (*hold)(void *ctx), void *ctx);

/*
 * A program that wraps transport_post_chain calls this there: over a wire the leaves have been answered then,
 * and the chain is that of the sums.
 */
void mid_call_posts(void);

#endif
