/*
 * Epoch: which of the two inner arrays a change is counted in, and the promise that lets a
 * rebuild prove that nobody still holds a change counted under an older epoch (rule 7).
 *
 * One struct epoch for each handle (writer or sampler) and shard. Every call that changes leaves
 * runs between enter and leave:
 *
 *   enter   page.promise = e; seq_cst; re-read e, repeat if it moved
 *   ...     swap leaves; buffer deltas under the epoch that the swapped tags say
 *   leave   after the flush: page.promise = SLOT_IDLE. Deltas kept across calls keep the promise.
 *
 * Delta targets (fixed at the CAS by the tags of the words it swapped, never by the mode at flush):
 *   e   -> e     arr[e]   += new - old
 *   e   -> e+1   arr[e]   += new - old,  arr[e+1] += new      (DUAL: the leaf migrates)
 *   e+1 -> e+1   arr[e+1] += new - old,  arr[e] too while DUAL
 *
 * A promise v means "I hold and will make no delta computed under an epoch < v". A pass from e to
 * e+1 waits for every promise >= e, so the shard is never more than one epoch ahead of a promise.
 *
 * Where changes travel as chains nobody waits for the promise: it is a write at the head of the
 * chain whose CASes it covers, and its end a write behind the additions, with a fence flag. The view
 * of the epoch is the one of the last call, unchecked: a CAS that finds the tag it expects has
 * proved what the view said, and another tag has it read again. Only in a view that is DUAL a tag
 * proves too little, so that is read anew behind the promise (docs/memory-model.md, "Chains").
 */
#ifndef RLV_DS_PART_EPOCH_H
#define RLV_DS_PART_EPOCH_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/part/part.h"

#include "transport/transport.h"

#include "wire/part_layout.h"

#include "base/error.h"

struct epoch {
	struct region *region; /* tree region of the part */
	uint64_t word_off;     /* the part's epoch word */
	struct region *page; /* where this handle's promise is; NULL = a reader, it never announces */
	uint64_t pin_off;
	uint32_t number; /* as last read */
	uint32_t pinned; /* in force while entered: number, or one less after a refresh */
	enum epoch_mode mode;
	bool entered;
	bool damaged; /* a leaf's tag was of no epoch: sums may be wrong, a rebuild is due */

	/* Chains only. */
	bool known;     /* the view may be used without another look */
	bool due;       /* the promise has not been handed out yet */
	bool standing;  /* it has been, and was not withdrawn */
	uint64_t stage; /* what that write carries */
};

/*
 * owner: whose page is attached, and says what this handle promises; 0 = a reader. Thread: owner, for
 * all functions of this file.
 */
void epoch_init(struct epoch *ep, const struct part *part, uint32_t owner);

/*
 * Announces the epoch and rechecks it. While entered (deltas kept across calls) it only re-reads;
 * when the epoch moved past the promise it answers -ESTALE and changes nothing: flush, leave, enter
 * again.
 * Errors: -EINVAL (no slot), -EAGAIN (the epoch kept moving), -ETIMEDOUT, -ECONNRESET, -EHOSTDOWN;
 * after an error the handle is not entered, and its promise may stand until the next leave.
 * Cost: 2 phases over a wire, none counted on a CPU transport beyond the two words.
 */
RLV_MUST_CHECK int epoch_enter(struct epoch *ep);

/*
 * Re-reads the word in the middle of a call, after a tag outside the view was met. The older
 * promise stays: it promises less. Cost: 1 phase over a wire.
 */
RLV_MUST_CHECK int epoch_refresh(struct epoch *ep);

/*
 * Idle again. The caller has flushed every delta. May be repeated; on an error the promise stands
 * and the handle is still entered. Cost: 1 phase over a wire.
 */
RLV_MUST_CHECK int epoch_leave(struct epoch *ep);

/* Epoch for readers: no announcement. Cost: as refresh. */
RLV_MUST_CHECK int epoch_read(struct epoch *ep);

/*
 * The tag that a CAS must write over a word tagged old_tag, under ep's view. -ESTALE = the tag is
 * of another epoch: refresh and try again.
 */
RLV_MUST_CHECK int epoch_next_tag(const struct epoch *ep, uint32_t old_tag, uint32_t *tag_out);

/* -------- as chains -------- */

/*
 * Enters without waiting: what epoch_pin gives must go ahead of the first change. -ESTALE as
 * epoch_enter. Cost: none; 1 phase in the first call and after one that met a rebuild.
 */
RLV_MUST_CHECK int epoch_enter_chain(struct epoch *ep);

/* The promise, if it is due; false = there is nothing to send. ep stays where it is meanwhile. */
bool epoch_pin(struct epoch *ep, struct transport_wr *wr_out);

/* Sends it and waits, for changes that do not travel as chains. Cost: 1 phase if it is due. */
RLV_MUST_CHECK int epoch_send_pin(struct epoch *ep);

/*
 * Idle again: the write that withdraws the promise, for the chain of the additions, behind them.
 * false = there is nothing to send.
 */
bool epoch_withdraw(struct epoch *ep, struct transport_wr *wr_out);

/* Does promise (a word of a slot) hold back a pass that starts from epoch number? */
bool epoch_blocks_pass(uint64_t pin, uint32_t number);

#endif
